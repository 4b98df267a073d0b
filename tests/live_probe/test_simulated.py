"""The simulated card: what torch code does to it, and that CPU and meta tensors agree to the byte."""

import gc

import pytest
import torch

from live_probe.allocator import MIB
from live_probe.cards import CARDS, EARLIER_WORKSPACE, Card, UnknownCardError, parse_card
from live_probe.device import DeviceMemoryError
from live_probe.measurement import DeviceProcess
from live_probe.scratch import sort_scratch
from live_probe.simulated import GRAPH_NODE, SimulatedDevice

GIB = 1 << 30
BARE = Card("bare", 2 * GIB, exact=True, context=0, libraries=0, blas_workspace=EARLIER_WORKSPACE)
BACKINGS = ("cpu", "meta")


def empty(device, nbytes):
    return torch.empty(nbytes, dtype=torch.int8, device=device.torch_device)


@pytest.mark.parametrize("backing", BACKINGS)
def test_a_tensor_takes_its_block_and_gives_it_back_when_dropped(backing):
    """Lifetimes are torch's own."""
    device = SimulatedDevice(BARE, backing=backing)
    with device.running():
        tensor = empty(device, 30 * MIB)
        assert device.stats().allocated == 30 * MIB
        del tensor
        gc.collect()
        assert device.stats().allocated == 0
    assert device.stats().allocated_peak == 30 * MIB


@pytest.mark.parametrize("backing", BACKINGS)
def test_views_and_in_place_results_take_nothing(backing):
    """They share a storage that is already counted."""
    device = SimulatedDevice(BARE, backing=backing)
    with device.running():
        tensor = torch.zeros(1024, 1024, device=device.torch_device)
        view = tensor.narrow(0, 0, 10).t()
        tensor.add_(1)
        torch.mul(tensor, tensor, out=tensor)
        assert device.stats().allocated == 4 * MIB
        assert view.shape == (1024, 10)


def test_a_view_keeps_its_storage_allocated():
    """Freed with the last tensor that shares it, not with the first."""
    device = SimulatedDevice(BARE)
    with device.running():
        tensor = empty(device, 30 * MIB)
        view = tensor.narrow(0, 0, 1)
        del tensor
        assert device.stats().allocated == 30 * MIB
        del view
        assert device.stats().allocated == 0


def test_a_meta_card_leaves_the_hosts_arithmetic_alone():
    """Only what has no data is not computed; shapes are those of the real operators."""
    outside = torch.ones(4, 4)
    with SimulatedDevice(BARE, backing="meta").running():
        outside.add_(1).mul_(outside)
        product = torch.mm(outside, outside)
        scores = torch.mm(torch.empty(3, 5, device="meta"), torch.empty(5, 7, device="meta"))
    assert outside.unique().tolist() == [4]
    assert product.unique().tolist() == [64]
    assert scores.shape == (3, 7)


def test_tensors_made_outside_are_not_followed():
    """Host memory of the caller is no memory of the card."""
    device = SimulatedDevice(BARE, backing="cpu")
    outside = torch.ones(1000)
    with device.running():
        total = outside.sum()
        assert device.stats().allocated == 512
    assert total == 1000


@pytest.mark.parametrize("backing", BACKINGS)
def test_the_first_matrix_product_takes_workspace_and_handles_for_good(backing):
    """ATen/cuda/CublasHandlePool.cpp."""
    device = SimulatedDevice(BARE._replace(libraries=3 * MIB), backing=backing)
    with device.running():
        for _ in range(2):
            ones = torch.ones(16, 16, device=device.torch_device)
            torch.mm(ones, ones)
            del ones
    device.empty_cache()
    assert device.stats().allocated == EARLIER_WORKSPACE
    assert device.memory().free == 2 * GIB - 4 * MIB - 20 * MIB


def test_sort_takes_the_scratch_of_its_cuda_kernel():
    """SortStable.cu: 12 B of results and 20 B of scratch for each float32 of a many-row sort."""
    device = SimulatedDevice(BARE)
    elements = 256 * 4096
    with device.running():
        logits = torch.empty(256, 4096, device=device.torch_device)
        logits.sort(dim=-1)
    assert device.stats().allocated_peak == elements * (4 + 12 + 20)


@pytest.mark.parametrize(
    ("rows", "columns", "per_element"),
    [(256, 1024, 0), (0, 5000, 0), (1, 5000, 20), (127, 5000, 32), (128, 5000, 20)],
)
def test_sort_scratch_follows_the_kernel_that_is_chosen(rows, columns, per_element):
    """SortStable.cu: launch_stable_sort_kernel."""
    assert sum(sort_scratch(rows, columns, 4)) == rows * columns * per_element


def test_more_than_a_million_columns_are_sorted_row_by_row():
    """SortStable.cu: scratch for one row only."""
    assert sum(sort_scratch(500, 1_000_000, 4)) == 1_000_000 * 20


def test_other_users_growing_make_an_allocation_fail():
    """The card is shared; nothing is freed behind our back."""
    device = SimulatedDevice(BARE, others=100 * MIB)
    assert device.processes() == (DeviceProcess(0, 100 * MIB),)
    with device.running():
        kept = empty(device, GIB)
        device.others = GIB
        with pytest.raises(DeviceMemoryError, match="out of memory"):
            empty(device, 200 * MIB)
        device.others = 0
        empty(device, 200 * MIB)
        assert kept.numel() == GIB


def test_graphs_keep_their_memory_until_released():
    """Private pool for tensors, driver memory for nodes."""
    device = SimulatedDevice(BARE)
    with device.running():
        pool = device.graph_pool()
        for size in (30 * MIB, 20 * MIB):
            pool.capture(lambda size=size: empty(device, size))
    device.empty_cache()
    nodes = -(-2 * GRAPH_NODE // (2 * MIB)) * 2 * MIB
    assert device.memory().free == 2 * GIB - 30 * MIB - nodes
    pool.release()
    device.empty_cache()
    assert device.memory().free == 2 * GIB


def test_a_capture_gives_the_cache_back_first():
    """torch/cuda/graphs.py: what a run before it left reserved is no part of the graph."""
    device = SimulatedDevice(BARE)
    with device.running():
        pool = device.graph_pool()
        empty(device, 60 * MIB)
        pool.capture(lambda: empty(device, 30 * MIB))
    assert device.stats().reserved == 30 * MIB


def test_the_split_limit_holds_only_inside():
    """Restored even when the step fails."""
    device = SimulatedDevice(BARE)
    with pytest.raises(KeyError), device.split_limit(20):
        assert device.allocator.max_split_size == 20 * MIB
        raise KeyError
    assert device.allocator.max_split_size is None


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.name)
def test_every_card_is_found_by_its_own_name(card):
    """And holds more than its context."""
    assert parse_card(f"sim:{card.name}").card == card
    assert card.total > 10 * card.context > 0


@pytest.mark.parametrize(
    ("text", "name", "total"),
    [
        ("sim:H100-80GB", "H100-80GB", 85028896768),
        ("sim:h100", "H100-80GB", 85028896768),
        ("sim:A100 80GB", "A100-80GB", round(79.15 * GIB / 65536) * 65536),
        ("sim:24GiB", "24GiB", 24 * GIB),
        ("sim:512mib", "512mib", 512 * MIB),
    ],
)
def test_card_specifications(text, name, total):
    """Names and bare sizes."""
    asked = parse_card(text)
    assert (asked.card.name, asked.card.total, asked.others, asked.backing) == (name, total, 0, "meta")


def test_card_options():
    """Others' use and the backing."""
    asked = parse_card("sim:24GiB,used=1.5GiB,backing=cpu")
    assert (asked.others, asked.backing) == (3 * GIB // 2, "cpu")
    device = SimulatedDevice.from_card(asked)
    assert device.torch_device.type == "cpu"
    assert device.memory() == (24 * GIB - 3 * GIB // 2, 24 * GIB)


@pytest.mark.parametrize(
    "text", ["sim:", "sim:V99", "sim:A100", "sim:24GB", "sim:8GiB,used=much", "sim:8GiB,backing=cuda", "sim:9999999GiB"]
)
def test_unknown_cards_are_refused_with_a_way_out(text):
    """The message lists what there is."""
    with pytest.raises(UnknownCardError, match=r"use|write|at most"):
        parse_card(text)
