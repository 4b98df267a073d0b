"""Closed intervals: the only form in which a figure travels through reconstruct."""

from __future__ import annotations

from parsers.tuples import NamedTuple

Number = int | float


class Interval(NamedTuple):
    """Every value from `low` to `high`, both ends included; `None` is an end that nothing bounds.

    Bytes, tokens and blocks have int ends, ratios float ends. `low > high` is never built: an empty
    intersection is `None`, not an interval.
    """

    low: Number | None = None
    high: Number | None = None

    @classmethod
    def exactly(cls, value: Number) -> Interval:
        """Give the interval of one point."""
        return cls(value, value)

    @property
    def is_point(self) -> bool:
        """Whether exactly one value is left."""
        return self.low is not None and self.low == self.high

    @property
    def width(self) -> Number | None:
        """`high - low`, or None while an end is open."""
        return None if self.low is None or self.high is None else self.high - self.low

    def contains(self, value: Number) -> bool:
        """Whether `value` is among the values left."""
        return (self.low is None or self.low <= value) and (self.high is None or value <= self.high)

    def within(self, other: Interval) -> bool:
        """Whether every value of this one is a value of `other`."""
        low_ok = other.low is None or (self.low is not None and self.low >= other.low)
        high_ok = other.high is None or (self.high is not None and self.high <= other.high)
        return low_ok and high_ok

    def meet(self, other: Interval) -> Interval | None:
        """Give the values common to both, or None where there are none."""
        low = other.low if self.low is None else self.low if other.low is None else max(self.low, other.low)
        high = other.high if self.high is None else self.high if other.high is None else min(self.high, other.high)
        return None if low is not None and high is not None and low > high else Interval(low, high)

    def hull(self, other: Interval) -> Interval:
        """Give the smallest interval that holds both."""
        low = None if self.low is None or other.low is None else min(self.low, other.low)
        high = None if self.high is None or other.high is None else max(self.high, other.high)
        return Interval(low, high)

    def plus(self, other: Interval) -> Interval:
        """Give every sum of a value of each."""
        low = None if self.low is None or other.low is None else self.low + other.low
        high = None if self.high is None or other.high is None else self.high + other.high
        return Interval(low, high)

    def negated(self) -> Interval:
        """Give the interval of the opposite values."""
        return Interval(None if self.high is None else -self.high, None if self.low is None else -self.low)

    def minus(self, other: Interval) -> Interval:
        """Give every difference of a value of each."""
        return self.plus(other.negated())

    def __str__(self) -> str:
        return f"[{'-inf' if self.low is None else self.low}, {'inf' if self.high is None else self.high}]"


ANYTHING = Interval()
AT_LEAST_ZERO = Interval(0, None)
