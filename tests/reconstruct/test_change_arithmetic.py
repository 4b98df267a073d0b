"""The arithmetic of a change: budgets, blocks and shares hold every true value."""

from __future__ import annotations

import math
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from reconstruct.change import Change, budget_change
from reconstruct.interval import ANYTHING, Interval
from reconstruct.whatif_geometry import Share, blocks_after, of_pool, scaled

totals = st.integers(1 << 30, 1 << 38)
parts = st.floats(0.01, 1.0)
widths = st.integers(0, 1 << 24)


@given(totals, widths, widths, parts, parts, st.booleans())
def test_a_budget_moves_by_total_times_the_step(total, below, above, before, after, rounded_up):
    """Whatever T is in its interval, and however the release rounds, dR lies in what is given."""
    whole = math.ceil if rounded_up else math.floor
    told = budget_change(Interval(total - below, total + above), Interval.exactly(before), Interval.exactly(after))
    assert told.contains(whole(total * after) - whole(total * before))


def test_a_budget_of_an_unknown_total_is_bounded_on_one_side_only():
    told = budget_change(Interval(1 << 30, None), Interval.exactly(0.8), Interval.exactly(0.9))
    assert told.low >= 0.09 * (1 << 30)
    assert told.high is None


@given(
    st.integers(1, 1 << 24), st.integers(1, 100_000), st.integers(0, 10**6), st.integers(-(1 << 36), 1 << 36),
    st.sampled_from((Fraction(1), Fraction(1, 2), Fraction(2), Fraction(1, 4))), widths,
)  # fmt: skip
def test_blocks_after_a_gain_hold_the_planners_count(per_block, blocks, rest, gained, share, slack):
    """num_blocks = M' // bytes_per_block of the new pool and the new block, from the old count alone."""
    pool = blocks * per_block + rest % per_block
    size = per_block * share
    if size.denominator != 1 or size == 0:
        return
    true = max(0, (pool + gained) // int(size))
    told = blocks_after(
        Interval.exactly(blocks),
        Interval.exactly(per_block),
        Interval(gained - slack, gained + slack),
        Share(share, share),
    )
    assert told.contains(true)


@given(st.integers(0, 1 << 36), widths, st.integers(1, 1 << 22), st.integers(0, 1000))
def test_blocks_of_a_pool_hold_the_division(pool, slack, per_block, more):
    told = of_pool(Interval(pool - slack, pool + slack), Interval(per_block, per_block + more))
    assert told.contains(pool // (per_block + more // 2))


def test_a_share_that_is_not_known_leaves_the_block_open():
    assert scaled(Interval(1024, 2048), Share(None, None)) == ANYTHING
    assert scaled(Interval(1024, 2048), Share(Fraction(1, 2), Fraction(1, 2))) == (512, 1024)


def test_only_what_is_changed_is_named():
    assert Change(max_model_len=4096).named == {"max_model_len": 4096}
    assert Change().flags == ()
