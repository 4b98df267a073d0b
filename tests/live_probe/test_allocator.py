"""Facts of torch's CUDA caching allocator, one test each.

Source of every fact: c10/cuda/CUDACachingAllocator.cpp, torch 2.3 to 2.13 (constants since 2.9 in
c10/core/AllocatorConfig.h); the function is named in each test.
"""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from live_probe.allocator import MIB, CachingAllocator, CardMemory, round_size, segment_size
from live_probe.device import DeviceMemoryError

GIB = 1 << 30


def allocator(total=8 * GIB, others=0, max_split_size=None):
    made = CachingAllocator(CardMemory(total, others))
    made.max_split_size = max_split_size
    return made


def held(made):
    return made.stats().allocated, made.stats().reserved


@pytest.mark.parametrize(("nbytes", "size"), [(0, 512), (1, 512), (512, 512), (513, 1024), (MIB + 1, MIB + 512)])
def test_sizes_are_multiples_of_512_bytes(nbytes, size):
    """round_size."""
    assert round_size(nbytes) == size


@pytest.mark.parametrize(
    ("size", "segment"),
    [
        (512, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 512, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (10 * MIB + 512, 12 * MIB),
        (4 * GIB, 4 * GIB),
    ],
)
def test_segments_are_2_mib_then_20_mib_then_the_request_in_steps_of_2_mib(size, segment):
    """get_allocation_size."""
    assert segment_size(size) == segment


def test_small_requests_share_a_2_mib_segment():
    """get_pool, get_free_block: requests up to 1 MiB come from the small pool."""
    made = allocator()
    made.malloc(1)
    made.malloc(MIB)
    assert held(made) == (MIB + 512, 2 * MIB)


def test_a_rest_of_at_most_1_mib_is_not_split_off_a_large_block():
    """should_split: the whole 20 MiB block is charged."""
    made = allocator()
    made.malloc(19 * MIB)
    assert held(made) == (20 * MIB, 20 * MIB)


def test_a_rest_of_more_than_1_mib_serves_the_next_request():
    """should_split, alloc_found_block."""
    made = allocator()
    made.malloc(9 * MIB)
    made.malloc(9 * MIB)
    assert held(made) == (18 * MIB, 20 * MIB)


def test_a_small_block_is_split_down_to_512_bytes():
    """should_split: the small pool keeps every rest."""
    made = allocator()
    for _ in range(4096):
        made.malloc(512)
    assert held(made) == (2 * MIB, 2 * MIB)


def test_the_smallest_fitting_free_block_is_taken():
    """get_free_block: lower_bound in a set ordered by size."""
    made = allocator()
    large, fitting = made.malloc(64 * MIB), made.malloc(32 * MIB)
    made.free(large)
    made.free(fitting)
    again = made.malloc(30 * MIB)
    assert again.address == fitting.address


def test_free_neighbours_merge_into_one_block():
    """free_block, try_merge_blocks."""
    made = allocator()
    whole = made.malloc(100 * MIB)
    made.free(whole)
    parts = [made.malloc(30 * MIB), made.malloc(30 * MIB)]
    for part in parts:
        made.free(part)
    made.malloc(100 * MIB)
    assert held(made) == (100 * MIB, 100 * MIB)


def test_freed_memory_stays_reserved_until_the_cache_is_emptied():
    """emptyCache: only then does the driver see it again."""
    made = allocator()
    made.free(made.malloc(100 * MIB))
    assert made.card.info().free == 8 * GIB - 100 * MIB
    made.empty_cache()
    assert made.card.info().free == 8 * GIB


@pytest.mark.parametrize(("limit", "reserved"), [(None, 4 * GIB), (20 * MIB, 20 * MIB)])
def test_a_small_tenant_pins_a_large_segment_unless_a_split_limit_keeps_it_out(limit, reserved):
    """release_blocks skips split blocks; get_free_block with max_split_size neither splits nor lends them."""
    made = allocator(max_split_size=limit)
    made.free(made.malloc(4 * GIB))
    made.malloc(3 * MIB)
    made.empty_cache()
    assert held(made) == (3 * MIB, reserved)


def test_under_the_split_limit_a_large_request_is_charged_its_whole_segment():
    """should_split: no block of at least max_split_size is split, so the 2 MiB rounding counts as allocated."""
    made = allocator(max_split_size=20 * MIB)
    made.malloc(52 * MIB + 1)
    assert held(made) == (54 * MIB, 54 * MIB)


@pytest.mark.parametrize(("cached", "reserved"), [(110 * MIB - 2 * MIB, 108 * MIB), (110 * MIB, 200 * MIB)])
def test_an_oversize_request_takes_a_cached_block_less_than_20_mib_larger(cached, reserved):
    """get_free_block: max_non_split_rounding_size."""
    made = allocator(max_split_size=20 * MIB)
    made.free(made.malloc(cached))
    made.malloc(90 * MIB)
    assert made.stats().reserved == reserved


def test_a_refused_request_is_retried_after_the_cache_was_given_back():
    """malloc: alloc_block, release_cached_blocks, alloc_block; counted as num_alloc_retries."""
    made = allocator(total=100 * MIB)
    made.free(made.malloc(60 * MIB))
    made.malloc(80 * MIB)
    assert made.retries == 1
    assert held(made) == (80 * MIB, 80 * MIB)


def test_under_the_split_limit_just_enough_oversize_blocks_are_given_back_first():
    """release_available_cached_blocks: the one that fits goes, the other stays, and no retry is counted."""
    made = allocator(total=200 * MIB, max_split_size=20 * MIB)
    keep, fits = made.malloc(40 * MIB), made.malloc(120 * MIB)
    made.free(keep)
    made.free(fits)
    made.malloc(96 * MIB)
    assert made.retries == 0
    assert made.stats().reserved == 40 * MIB + 96 * MIB


def test_a_request_beyond_the_card_fails_and_says_what_was_free():
    """malloc: OutOfMemoryError once the retry failed too."""
    made = allocator(total=100 * MIB)
    made.malloc(60 * MIB)
    with pytest.raises(DeviceMemoryError, match=str(40 * MIB)):
        made.malloc(60 * MIB)
    assert held(made) == (60 * MIB, 60 * MIB)


def test_a_capture_allocates_from_its_private_pool_only():
    """get_pool while captures_underway: neither takes from the cache nor leaves anything in it."""
    made = allocator()
    made.free(made.malloc(30 * MIB))
    pool = made.new_pool()
    made.begin_capture(pool)
    made.free(made.malloc(30 * MIB))
    made.end_capture()
    assert made.stats().reserved == 60 * MIB


def test_captures_into_one_pool_reuse_each_others_memory():
    """beginAllocateToPool on an existing pool."""
    made = allocator()
    pool = made.new_pool()
    for size in (60 * MIB, 30 * MIB, 12 * MIB):
        made.begin_capture(pool)
        made.free(made.malloc(size))
        made.end_capture()
    assert made.stats().reserved == 60 * MIB


def test_a_private_pool_survives_emptying_the_cache_until_its_graphs_are_destroyed():
    """release_cached_blocks: graph_pools_freeable only, after releasePool."""
    made = allocator()
    pool = made.new_pool()
    made.begin_capture(pool)
    made.free(made.malloc(30 * MIB))
    made.end_capture()
    made.empty_cache()
    assert made.stats().reserved == 30 * MIB
    made.destroy_graphs(pool)
    made.empty_cache()
    assert made.stats().reserved == 0


def test_a_capture_may_not_give_back_the_cache():
    """malloc: release_cached_blocks needs captures_underway to be empty."""
    made = allocator(total=100 * MIB)
    made.free(made.malloc(60 * MIB))
    made.begin_capture(made.new_pool())
    with pytest.raises(DeviceMemoryError):
        made.malloc(60 * MIB)


def test_peaks_start_again_from_the_present_value():
    """resetPeakStats."""
    made = allocator()
    kept = made.malloc(30 * MIB)
    made.free(made.malloc(60 * MIB))
    assert made.stats().allocated_peak == 90 * MIB
    made.reset_peak()
    assert made.stats().allocated_peak == kept.size


def test_other_processes_take_from_the_same_card():
    """cudaMemGetInfo is the card's, whoever holds the memory."""
    made = allocator(total=GIB, others=100 * MIB)
    made.card.others = 900 * MIB
    assert made.card.info() == (GIB - 900 * MIB, GIB)
    with pytest.raises(DeviceMemoryError):
        made.malloc(200 * MIB)
    made.card.others = 0
    made.malloc(200 * MIB)


SIZES = st.integers(0, 64 * MIB)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("malloc"), SIZES),
        st.tuples(st.just("free"), st.integers(0, 99)),
        st.tuples(st.just("limit"), st.sampled_from([None, 20 * MIB])),
        st.tuples(st.just("empty"), st.just(0)),
        st.tuples(st.just("others"), st.integers(0, 200 * MIB)),
    ),
    max_size=60,
)


def replay(made, operations):
    blocks, history = [], []
    for name, argument in operations:
        try:
            if name == "malloc":
                blocks.append(made.malloc(argument))
            elif name == "free" and blocks:
                made.free(blocks.pop(argument % len(blocks)))
            elif name == "limit":
                made.max_split_size = argument
            elif name == "empty":
                made.empty_cache()
            elif name == "others":
                made.card.others = argument
        except DeviceMemoryError:
            history.append("refused")
        history.append((made.stats(), made.card.info()))
    return blocks, history


@settings(max_examples=60, deadline=None)
@given(OPERATIONS)
def test_the_books_balance_after_any_history(operations):
    """Allocated is the sum of the blocks out, reserved is what the card gave, and freeing all gives all back."""
    made = allocator(total=GIB)
    blocks, _ = replay(made, operations)
    stats = made.stats()
    assert stats.allocated == sum(block.size for block in blocks)
    assert stats.allocated <= stats.reserved == made.card.own
    assert stats.allocated <= stats.allocated_peak
    spans = sorted((block.address, block.address + block.size) for block in blocks)
    assert all(one[1] <= other[0] for one, other in pairwise(spans))
    for block in blocks:
        made.free(block)
    made.empty_cache()
    assert held(made) == (0, 0)


@settings(max_examples=20, deadline=None)
@given(OPERATIONS)
def test_the_same_history_gives_the_same_bytes(operations):
    """The model is deterministic."""
    assert replay(allocator(total=GIB), operations)[1] == replay(allocator(total=GIB), operations)[1]
