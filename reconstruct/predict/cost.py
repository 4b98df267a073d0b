"""Bytes that a part of a start takes, with the ends of what it may take."""

from __future__ import annotations

from parsers.tuples import NamedTuple


class Cost(NamedTuple):
    """Bytes of something at least, at most, and likely."""

    low: int
    high: int
    likely: int

    @classmethod
    def exactly(cls, bytes_: int) -> Cost:
        """Give the cost of what takes so much in any case."""
        return cls(bytes_, bytes_, bytes_)

    def plus(self, other: Cost) -> Cost:
        """Give the cost of both."""
        return Cost(*(mine + its for mine, its in zip(self, other, strict=True)))

    def times(self, factor: int, plus: int) -> Cost:
        """Give the cost of `factor` pieces and something besides."""
        return Cost(*(end * factor + plus for end in self))

    def larger(self, other: Cost) -> Cost:
        """Give the cost of whichever takes more."""
        return Cost(*map(max, self, other))
