"""The comparison of a card with its model: here on simulated cards, on a real one with `pytest -m gpu`."""

import warnings

import pytest
import torch

from kvforensics.probe_cache import cache_plans
from live_probe.allocator import MIB
from live_probe.cards import EARLIER_WORKSPACE, HOPPER_WORKSPACE
from live_probe.device import CudaDevice, allocator_settings
from live_probe.launch import LaunchOptions
from live_probe.selfcheck import RELEASES, Check, check_allocator, check_device, table, twin_of
from tests.live_probe.tiny import tiny

SMALL = LaunchOptions(0.9, None, 256, 16, cudagraph_capture_sizes=(16, 8, 1))


@pytest.mark.parametrize("family", ["llama", "gemma3_text", "qwen2_moe"])
def test_a_card_that_behaves_as_modelled_passes_every_check(make_device, family):
    """The simulated card against its own twin: every line, and none fails, whatever the layers keep."""
    checks = list(check_device(make_device(4096, multiprocessors=4), cache_plans, tiny(family), SMALL))
    assert len(checks) == 2 + 3 * 7
    assert [check for check in checks if check.holds is False] == []


@pytest.mark.parametrize("workspace", [EARLIER_WORKSPACE, HOPPER_WORKSPACE])
def test_the_twin_has_the_cards_own_workspace(make_device, config, workspace):
    """It decides what is left of a segment for the weights that follow: they could not agree to the byte without."""
    device = make_device(4096, blas_workspace=workspace)
    assert twin_of(device).card.blas_workspace == workspace
    checks = check_device(device, cache_plans, config, SMALL)
    assert all(check.holds for check in checks if "weights" in check.name)


def test_an_allocator_that_splits_otherwise_is_found_out(make_device):
    """The first step that differs is named."""
    device = make_device(4096)
    device.allocator._split = lambda block, size: None
    checks = list(check_allocator(device))
    assert [check.holds for check in checks] == [False, False]
    assert "instead of" in checks[0].detail


def test_a_start_that_fails_is_one_failed_check(make_device, config):
    """There is nothing to compare then."""
    huge = {**config, "vocab_size": 4_000_000}
    failed = [check for check in check_device(make_device(1100), cache_plans, huge, SMALL) if check.holds is False]
    assert [check.name for check in failed] == ["0.33.0 starts", "0.16.0 starts", "0.20.0 starts"]


def test_the_table_is_one_line_a_check():
    """Aligned, with the failures in capitals."""
    text = table([Check("a", True, "1 B"), Check("longer", False, "2 B"), Check("b", None, "3 B")])
    assert text.splitlines() == ["ok      a       1 B", "FAILED  longer  2 B", "figure  b       3 B"]


@pytest.fixture(scope="module")
def card():
    """The real card, and everything checked on it once, in order."""
    if allocator_settings():
        pytest.skip("the allocator is modelled with its default settings: unset PYTORCH_ALLOC_CONF")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a driver too old for torch is no error of ours
        if not torch.cuda.is_available():
            pytest.skip("torch sees no CUDA device")
    return list(check_device(CudaDevice(), cache_plans))


@pytest.mark.gpu
@pytest.mark.parametrize("subject", ["allocator", "weights", " H", "ledger", "KV", "replay needs", "free memory"])
def test_the_card_holds_against_its_model(card, subject):
    """Byte for byte where promised, H within 3 %."""
    about = [check for check in card if subject in check.name and check.holds is not None]
    assert about, table(card)
    assert all(check.holds for check in about), table(about)


@pytest.mark.gpu
def test_every_check_of_the_card_holds(card):
    """The starts themselves among them: one that dies has nothing to compare."""
    assert [check for check in card if check.holds is False] == [], table(card)
    assert len(card) == 2 + 7 * len(RELEASES)


@pytest.mark.gpu
def test_nothing_stays_on_the_card(card):
    """Only workspaces of cuBLAS, of the ordinary stream and of the one that graphs are captured on, and of cuBLASLt.

    32 MiB at most each of the first, 1 MiB the last where torch keeps it apart; torch before 2.12 keeps them all.
    """
    device = CudaDevice()
    device.empty_cache()
    assert card
    assert device.stats().allocated <= 2 * 32 * MIB + 4 * MIB
