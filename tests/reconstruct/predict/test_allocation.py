"""What the allocator charges for tensors made one after the other; tests/live_probe/test_agreement.py holds it to its twin."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconstruct.predict.allocation import SPLIT_LIMIT, Tensor, charged_in_all

MIB = 1 << 20


@pytest.mark.parametrize(
    ("asked", "limit", "taken"),
    [
        (1, None, 512),
        (513, None, 1024),
        (9 * MIB + 1, None, 9 * MIB + 512),
        (10 * MIB, None, 10 * MIB),
        (11 * MIB, None, 12 * MIB),  # the last MiB of the segment is not worth splitting off
        (10 * MIB + 512, None, 10 * MIB + 512),  # nearly 2 MiB are left: split
        (20 * MIB + 512, None, 20 * MIB + 512),
        (20 * MIB + 512, SPLIT_LIMIT, 22 * MIB),  # from 20 MiB on never split
        (19 * MIB - 512, SPLIT_LIMIT, 19 * MIB - 512),
    ],
)
def test_charge_of_one(asked, limit, taken):
    """Cases of round_size, get_allocation_size and should_split."""
    assert charged_in_all([Tensor(asked)], limit) == taken


@pytest.mark.parametrize(
    ("later", "limit", "taken"),
    [
        (24, None, 24),  # the 32 MiB left behind are split
        (31, None, 32),  # a rest of 1 MiB is not worth it
        (24, SPLIT_LIMIT, 32),  # may not be split: the later tensor takes all
        (11, SPLIT_LIMIT, 12),  # too small to waste such a block on: a segment of its own
        (12, SPLIT_LIMIT, 12),
    ],
)
def test_what_a_making_leaves_behind_serves_a_later_tensor(later, limit, taken):
    """A 64 MiB tensor made from one of 32 MiB, as rope caches are; the smaller one stays in the cache."""
    made = Tensor(64 * MIB, (Tensor(32 * MIB),))
    assert charged_in_all([made], limit) == 64 * MIB
    assert charged_in_all([made, Tensor(later * MIB)], limit) == (64 + taken) * MIB


def test_a_block_too_large_to_waste_is_left_alone():
    """From 20 MiB more than asked for on."""
    made = Tensor(100 * MIB, (Tensor(44 * MIB),))
    assert charged_in_all([made, Tensor(24 * MIB)], SPLIT_LIMIT) == 124 * MIB
    assert charged_in_all([made, Tensor(26 * MIB)], SPLIT_LIMIT) == 144 * MIB


def test_neighbours_that_fall_free_are_one_block():
    """Two of 8 MiB fill a shared segment of 20; a tensor of 18 MiB then fits where both were."""
    made = Tensor(1, (Tensor(8 * MIB), Tensor(8 * MIB)))
    assert charged_in_all([made, Tensor(19 * MIB)]) == 20 * MIB + 512  # its last MiB is charged


@given(st.integers(1, 1 << 32), st.sampled_from([None, SPLIT_LIMIT]))
def test_never_less_and_at_most_a_segment_more(size, limit):
    """A charge holds what was asked for, and wastes less than a segment's grain."""
    assert size <= charged_in_all([Tensor(size)], limit) < size + 2 * MIB


@given(st.lists(st.integers(1, 1 << 28), max_size=20), st.sampled_from([None, SPLIT_LIMIT]))
def test_each_costs_what_it_asks_for_and_little_more(sizes, limit):
    """Without a limit at most a rest of 1 MiB or a grain; with one at most the slack."""
    taken = charged_in_all(map(Tensor, sizes), limit)
    assert sum(sizes) <= taken <= sum(sizes) + len(sizes) * (2 * MIB if limit is None else 20 * MIB)
