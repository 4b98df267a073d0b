"""Soundness of every contractor: a truth that satisfies the relation is never cut off, whatever surrounds it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconstruct.divisions import CeilDivision, FloorDivision, Multiple, Product, Quotient, TruncatedProduct
from reconstruct.interval import ANYTHING, Interval
from reconstruct.relations import AtMost, Budget, Either, Minimum, OneOf, Same, Share, Sum, Term

A, B, C, D = (Term(name) for name in "abcd")
BYTES = st.integers(-(1 << 38), 1 << 42)
SIZES = st.integers(1, 1 << 42)
COUNTS = st.integers(1, 1 << 24)
RATIOS = st.floats(0.01, 1.0)


@st.composite
def around(draw, truth):
    """Draw an interval that holds `truth`, open or tight."""
    if draw(st.integers(0, 3)) == 0:
        return ANYTHING
    if isinstance(truth, float):
        return Interval(truth - draw(st.floats(0, 0.01)), truth + draw(st.floats(0, 0.01)))
    below, above = draw(st.integers(0, 1 << 30)), draw(st.integers(0, 1 << 30))
    return draw(
        st.sampled_from([Interval(truth - below, truth + above), Interval.exactly(truth), Interval(truth - below)])
    )


def assert_sound(relation, truth, data):
    box = {term: data.draw(around(value)) for term, value in truth.items()}
    for term, allowed in relation.contract(box):
        assert allowed.contains(truth[term]), (term, truth[term], allowed, box)


@given(BYTES, BYTES, BYTES, st.integers(0, 1), st.data())
def test_a_sum(b, c, d, slack, data):
    truth = {A: b + c - d + slack, B: b, C: c, D: d}
    assert_sound(Sum("a = b + c - d", A, (B, C), (D,), slack=1), truth, data)


@given(st.integers(1 << 30, 1 << 39), RATIOS, st.booleans(), st.data())
def test_a_budget(total, utilization, up, data):
    product = total * utilization
    truth = {A: math.ceil(product) if up else math.floor(product), B: total, C: utilization}
    assert_sound(Budget("R", A, B, C, up), truth, data)


@given(st.integers(1 << 30, 1 << 39), RATIOS, st.booleans())
def test_a_budget_gives_back_the_total_to_the_byte(total, utilization, up):
    """u above 1/2: a byte more of total then always moves the budget or leaves one neighbour."""
    relation = Budget("R", A, B, C, up)
    product = total * utilization
    budget = math.ceil(product) if up else math.floor(product)
    box = {A: Interval.exactly(budget), C: Interval.exactly(utilization)}
    allowed = dict(relation.contract(box))[B]
    assert allowed.contains(total)
    assert allowed.width <= math.ceil(1 / utilization) + 1


@given(BYTES.filter(bool), st.integers(1 << 30, 1 << 39), st.data())
def test_a_share(part, whole, data):
    truth = {A: part, B: whole, C: part / whole}
    box = {
        A: data.draw(around(part)),
        B: data.draw(around(whole)),
        C: Interval(part / whole - 5e-5, part / whole + 5e-5),
    }
    for term, allowed in Share("s", A, B, C).contract(box):
        assert allowed.contains(truth[term])


@given(st.integers(0, 1 << 42), SIZES, st.booleans(), st.data())
def test_a_floor_division(pool, divisor, whole, data):
    quotient = pool // divisor - (0 if whole else data.draw(st.integers(0, pool // divisor)))
    truth = {A: quotient, B: pool, C: divisor}
    assert_sound(FloorDivision("n", A, B, C, whole_pool=whole), truth, data)


@given(COUNTS, COUNTS, st.data())
def test_a_product(left, right, data):
    assert_sound(Product("p", A, B, C), {A: left * right, B: left, C: right}, data)


@given(BYTES, BYTES, BYTES, st.booleans(), st.data())
def test_a_minimum(b, c, hidden, open_ended, data):
    least = min(b, c, hidden) if open_ended else min(b, c)
    assert_sound(Minimum("m", A, (B, C), open_ended), {A: least, B: b, C: c}, data)


@given(BYTES, BYTES, st.data())
def test_one_of_and_same_and_order(b, c, data):
    assert_sound(OneOf("o", A, (B, C)), {A: data.draw(st.sampled_from([b, c])), B: b, C: c}, data)
    assert_sound(Same("s", A, B), {A: b, B: b}, data)
    assert_sound(AtMost("l", A, B), {A: min(b, c), B: max(b, c)}, data)


@given(BYTES, st.booleans(), st.data())
def test_a_charge_that_may_be_off(estimate, charged, data):
    assert_sound(Either("g", A, B), {A: estimate if charged else 0, B: estimate}, data)


@given(COUNTS, st.integers(1, 1 << 14), st.data())
def test_a_quotient(blocks, per_request, data):
    assert_sound(Quotient("c", A, B, C), {A: blocks / per_request, B: blocks, C: per_request}, data)


@given(COUNTS, st.integers(1, 1 << 14), st.integers(1, 1 << 20), st.data())
def test_truncated_tokens(blocks, per_request, length, data):
    ratio = blocks / per_request
    assert_sound(TruncatedProduct("t", A, B, C), {A: int(ratio * length), B: ratio, C: length}, data)


@given(st.integers(1, 1 << 20), st.integers(1, 4096), st.data())
def test_a_ceiling(length, size, data):
    assert_sound(CeilDivision("b", A, B, C), {A: -(-length // size), B: length, C: size}, data)


@given(COUNTS, st.integers(1, 4096), st.integers(1, 12), st.integers(1, 8), st.data())
def test_tokens_of_groups(blocks, size, groups, context, data):
    truth = {A: blocks // groups * size * context, B: blocks, C: size}
    assert_sound(Multiple("t", A, B, C, groups, context), truth, data)


@pytest.mark.parametrize(("tokens", "groups", "blocks"), [(1075312, 1, (67207, 67207)), (130304, 6, (48864, 48869))])
def test_tokens_pin_blocks_up_to_a_group(tokens, groups, blocks):
    box = {A: Interval.exactly(tokens), C: Interval.exactly(16)}
    assert dict(Multiple("t", A, B, C, groups).contract(box))[B] == Interval(*blocks)
