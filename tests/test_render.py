"""The renderer's figures against what vLLM's own sources compute."""

from __future__ import annotations

import pytest

from tests import make_samples
from tests.render.lines import render
from tests.render.numbers_as_printed import GIB, MIB, fixed, rounded, torch_size
from tests.render.parts import Captures, Failure, Group
from tests.render.planned_start import POOL, planned, rank
from tests.render.strategies import stage_layers
from tests.render.truth import Truth

HYBRID = (Group("full", 16), Group("sliding", 16, 128))
GEMMA = (Group("full", 16), *[Group("sliding", 16, 1024)] * 6)


@pytest.mark.parametrize(
    ("version", "options", "blocks", "tokens", "times"),
    [
        ("0.8.0", {}, 17701, 283216, 34.572),
        ("0.9.1", {}, 17701, 283216, 34.572),
        ("0.33.0", {}, 17701, 283216, 34.572),
        ("0.19.1", {"full_model_len": 5003}, 17701, 283216, 56.553),
        ("0.20.2", {"full_model_len": 5003}, 17701, 282933, 56.553),
        ("0.9.1", {"num_blocks_override": 777}, 17701, 283216, 34.572),  # printed and ignored, mended in 0.9.2
        ("0.9.2", {"num_blocks_override": 777}, 777, 12432, 1.518),
        ("0.9.2", {"groups": HYBRID, "block": 12 * 32768}, 94409, 755264, 92.106),
        ("0.20.2", {"groups": HYBRID, "block": 12 * 32768}, 94409, 754535, 92.106),
    ],
)
def test_planner_gives_what_the_release_itself_planned(version, options, blocks, tokens, times):
    """Answers of vLLM's own planner on the same pool: Llama-3.1-8B (32 x 65536 B), gpt-oss-20b (12 + 12 layers)."""
    found = planned(version, **options).capacity(0)
    assert (found.num_blocks, found.tokens) == (blocks, tokens)
    assert found.concurrency == pytest.approx(times, abs=0.0006)


def test_v0_block_counts_follow_a_known_start():
    """0.6.6.post1 on an L40S printed 83208 blocks, 9362 in swap and 325.03x for 35.55 GiB (worker/worker.py)."""
    sample = next(s for s in make_samples.samples() if s.name == "vllm-0.6.6.post1-single")
    assert "# GPU blocks: 83208, # CPU blocks: 9362\n" in sample.log
    assert "Maximum concurrency for 4096 tokens per request: 325.03x\n" in sample.log
    assert "for KV Cache is 35.55GiB.\n" in sample.log


def test_budget_is_a_float_up_to_0_13_and_rounded_up_from_0_14():
    """85028896768 x 0.95 = 80777451929.6 (0.13.0 gpu_worker.py init_device, 0.14.1 worker/utils.py request_memory)."""
    card = rank(total_memory=85028896768, initial_free_memory=84 * 10**9)
    old, new = (Truth(version, (card,), 0.95) for version in ("0.13.0", "0.14.1"))
    assert old.requested_float(card) == pytest.approx(80777451929.6)
    assert (old.requested(card), new.requested(card)) == (80777451929, 80777451930)
    assert new.available(card) - old.available(card) == 1


def test_context_parallel_ranks_hold_a_share_of_the_tokens():
    """With dcp 2 a block spans 32 tokens: 17701 blocks are 566432 tokens, and 256 blocks serve 8192 of them."""
    four = Truth("0.13.0", (rank(),) * 4, 0.5, tp=4, dcp=2, enforce_eager=True, log_level="DEBUG")
    assert four.capacity(0).tokens == 17701 * 16 * 2
    assert four.capacity(0).concurrency == 17701 / 256
    assert "by the cp_world_size 2 (pcp_world_size 1 * dcp_world_size 2)." in render(four)
    assert "(Worker_TP3_DCP1 pid=" in render(four)


def test_external_weights_leave_the_budget_from_0_32():
    """E is subtracted from R in 0.32.0 and ignored before (0.33.0 worker/utils.py request_memory)."""
    card = rank(external_weight_memory=GIB)
    before, after = (Truth(version, (card,), 0.5, enforce_eager=True) for version in ("0.31.0", "0.32.0"))
    assert before.requested(card) - after.requested(card) == GIB


def test_estimate_counts_first_captures_once_and_further_ones_each():
    """Llama-3.1-8B on two stages, 0.19.0: 114/4 and 256/2 MiB, 51 graphs each, printed as 0.54 GiB total."""
    card = rank(captures=Captures(114 * MIB, 4 * MIB, 256 * MIB, 2 * MIB))
    assert Truth("0.19.1", (card,), 0.5).graph_estimate(card) == (256 + 50 * 4 + 50 * 2) * MIB
    assert Truth("0.17.1", (card,), 0.5).graph_estimate(card) == 0


@pytest.mark.parametrize(
    ("version", "switch", "charged", "in_peak"),
    [
        ("0.18.1", True, True, True),
        ("0.19.1", None, False, False),
        ("0.19.1", True, True, False),
        ("0.20.2", None, True, False),
        ("0.26.0", False, False, False),
        ("0.27.1", None, True, True),
    ],
)
def test_who_charges_graphs_and_counts_them_as_peak(version, switch, charged, in_peak):
    """Off by default in 0.18-0.19, on from 0.20; the usage line's peak holds the charge in 0.18 and from 0.27."""
    card = rank(captures=Captures(100 * MIB, 0, 0, 0))
    truth = Truth(version, (card,), 0.5, graph_sizes=(1, 0), estimate_switch=switch)
    assert (truth.graphs_applied(card) == 100 * MIB) is charged
    assert (truth.printed_peak(card) - GIB == 100 * MIB) is in_peak


def test_suggestions_differ_by_free_less_requested_and_hold_back_150_mib():
    """0.10.2 gpu_worker.py compile_or_warm_up_model: F - R exactly, nothing else lies between the two."""
    card = rank(cudagraph_actual=GIB)
    truth = Truth("0.10.2", (card,), 0.5)
    into_budget, into_free = truth.suggested(card)
    assert into_free - into_budget == card.initial_free_memory - truth.requested(card)
    assert into_budget == truth.available(card) - GIB - 150 * MIB


@pytest.mark.parametrize(("version", "charged"), [("0.8.5", True), ("0.9.0.1", True), ("0.9.1", False)])
def test_early_v1_charges_its_neighbours(version, charged):
    """0.8.5 takes all that is used on the card off the budget; 0.9.1 knows its own baseline."""
    card = rank(initial_free_memory=2 * (POOL + 3 * GIB) - 5 * GIB)
    assert Truth(version, (card,), 0.5).available(card) == POOL - 5 * GIB * charged


def test_the_null_block_is_held_back_from_0_29():
    """A request that needs every block fits in 0.28, not in 0.29 (kv_cache_utils.py check_enough_kv_cache_memory)."""
    card = rank(pool=512 * 2 * MIB)
    kinds = [Truth(v, (card,), 0.5, full_model_len=8192, enforce_eager=True).failure for v in ("0.28.0", "0.29.0")]
    assert kinds == [Failure.NONE, Failure.REQUEST_TOO_LONG]


def test_auto_fit_takes_the_longest_length_that_fits():
    """1023 blocks of 16 tokens are left once the null block is off."""
    truth = Truth("0.30.0", (rank(pool=1024 * 2 * MIB),), 0.5, auto_fit=True, full_model_len=131072, enforce_eager=True)
    assert truth.max_model_len == 1023 * 16
    assert "reduced from 131072 to 16368 to fit in available GPU memory (2.0 GiB available" in render(truth)


def test_the_poorest_rank_binds_even_with_more_memory():
    """Uneven stages: the stage with 22 layers has more memory and fewer blocks."""
    small, large = rank(block=10 * 65536), rank(pool=POOL + GIB, block=22 * 65536)
    truth = Truth("0.33.0", (small, large), 0.5, pp=2, enforce_eager=True)
    assert truth.capacity(0).binding == 1
    assert truth.capacity(0).num_blocks == (POOL + GIB) // (22 * 65536)


def test_early_v1_shares_the_poorest_pool():
    """0.8.0 gives every worker the smallest pool, 0.8.4 each its own (v1/core/kv_cache_utils.py)."""
    pair = (rank(), rank(pool=POOL - GIB))
    counts = {v: [Truth(v, pair, 0.5, tp=2).own_blocks(i) for i in range(2)] for v in ("0.8.0", "0.8.4")}
    assert counts["0.8.0"][0] == counts["0.8.0"][1] == counts["0.8.4"][1] < counts["0.8.4"][0]


def test_remainder_of_a_pipeline_split():
    """61 layers on 4 stages (distributed/utils.py get_pp_indices)."""
    assert stage_layers("0.8.0", 61, 4) == [15, 15, 16, 15]
    assert stage_layers("0.7.3", 61, 4) == [15, 15, 15, 16]


def test_numbers_are_printed_as_python_and_torch_print_them():
    """%.2f keeps zeros, round drops them, torch changes unit by size."""
    assert (fixed(21 * GIB), rounded(21 * GIB), rounded(GIB // 2)) == ("21.00", "21.0", "0.5")
    assert (torch_size(298 * MIB), torch_size(79 * GIB), torch_size(1024)) == ("298.00 MiB", "79.00 GiB", "1024 bytes")
