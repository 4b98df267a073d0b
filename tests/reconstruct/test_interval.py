"""The laws of interval algebra."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reconstruct.interval import ANYTHING, Interval

ENDS = st.none() | st.integers(-(1 << 50), 1 << 50)


@st.composite
def intervals(draw):
    low, high = draw(ENDS), draw(ENDS)
    if low is not None and high is not None and low > high:
        low, high = high, low
    return Interval(low, high)


@st.composite
def points(draw, interval):
    low = -(1 << 60) if interval.low is None else interval.low
    high = 1 << 60 if interval.high is None else interval.high
    return draw(st.integers(low, high))


@given(intervals(), intervals(), st.data())
def test_sums_and_differences_of_members_are_members(a, b, data):
    x, y = data.draw(points(a)), data.draw(points(b))
    assert a.plus(b).contains(x + y)
    assert a.minus(b).contains(x - y)
    assert a.negated().contains(-x)


@given(intervals(), intervals(), intervals())
def test_meet_commutes_associates_and_is_idempotent(a, b, c):
    def meet(x, y):
        return None if x is None or y is None else x.meet(y)

    assert a.meet(b) == b.meet(a)
    assert meet(meet(a, b), c) == meet(a, meet(b, c))
    assert a.meet(a) == a
    assert a.meet(ANYTHING) == a


@given(intervals(), intervals(), st.data())
def test_meet_holds_what_both_hold_and_hull_what_either_holds(a, b, data):
    x = data.draw(points(a))
    met = a.meet(b)
    assert (met is not None and met.contains(x)) == b.contains(x)
    assert a.hull(b).contains(x)
    assert a.within(a.hull(b))
    assert met is None or (met.within(a) and met.within(b))


@given(intervals())
def test_width_is_none_while_an_end_is_open(a):
    assert (a.width is None) == (a.low is None or a.high is None)
    assert a.is_point == (a.width == 0)


def test_an_open_end_is_shown_as_infinite():
    assert str(Interval(None, 3)) == "[-inf, 3]"
