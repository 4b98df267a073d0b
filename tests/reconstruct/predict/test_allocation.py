"""The allocator's rounding in closed form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconstruct.predict.allocation import SPLIT_LIMIT, charged, charged_in_all

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
def test_charged(asked, limit, taken):
    """Cases of round_size, get_allocation_size and should_split."""
    assert charged(asked, limit) == taken


@given(st.integers(1, 1 << 32), st.sampled_from([None, SPLIT_LIMIT]))
def test_never_less_and_at_most_a_segment_more(size, limit):
    """A charge holds what was asked for, and wastes less than a segment's grain."""
    assert size <= charged(size, limit) < size + 2 * MIB


@given(st.lists(st.integers(1, 1 << 28), max_size=20))
def test_sum_does_not_depend_on_the_order(sizes):
    """Charges are charges of each."""
    assert charged_in_all(sizes) == sum(charged(size) for size in sizes) == charged_in_all(reversed(sizes))
