"""Contractors: each relation between quantities narrows any of its terms from the others, and never too far.

A relation is a value. `contract(box)` looks its terms' intervals up in `box` and gives, for each term that the others
bound, the interval they leave it. Every result is an outer bound: true values that satisfy the relation stay inside.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

from parsers.tuples import NamedTuple
from reconstruct.interval import ANYTHING, Interval

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

Scope = int | None
"""A rank's number, or None for the engine."""


class Term(NamedTuple):
    """One unknown: a quantity of a rank or of the engine."""

    name: str
    rank: Scope = None


Narrowing = tuple[Term, Interval]


class Relation(Protocol):
    """What the solver needs of a relation."""

    @property
    def name(self) -> str:
        """The equation in words, as a report shows it."""
        ...

    @property
    def terms(self) -> tuple[Term, ...]:
        """The unknowns it ties together."""
        ...

    def contract(self, box: Mapping[Term, Interval]) -> Iterator[Narrowing]:
        """Give what the relation leaves each term, where it bounds it at all."""
        ...


class Sum(NamedTuple):
    """`0 <= total - sum(parts) <= slack`, parts signed: M = R - C - H - G is total M, parts +R -C -H -G."""

    name: str
    total: Term
    plus: tuple[Term, ...]
    minus: tuple[Term, ...] = ()
    slack: int = 0
    """How far the total may lie above: 1 where the engine truncates a float."""

    @property
    def terms(self) -> tuple[Term, ...]:
        """Total first."""
        return (self.total, *self.plus, *self.minus)

    def contract(self, box: Mapping[Term, Interval]) -> Iterator[Narrowing]:
        """Solve for each term in turn."""
        slack = Interval(0, self.slack)
        signed = [(t, 1) for t in self.plus] + [(t, -1) for t in self.minus]
        values = [box.get(t, ANYTHING) if sign > 0 else box.get(t, ANYTHING).negated() for t, sign in signed]
        yield self.total, _added(values).plus(slack)
        goal = box.get(self.total, ANYTHING).minus(slack)
        for i, (term, sign) in enumerate(signed):
            rest = goal.minus(_added(values[:i] + values[i + 1 :]))
            yield term, rest if sign > 0 else rest.negated()


def _added(values: list[Interval]) -> Interval:
    total = Interval.exactly(0)
    for value in values:
        total = total.plus(value)
    return total


WHOLE_DOUBLES = 1 << 53
"""Bytes up to which a double tells every whole number from the next: 8 PiB, more than any card has."""


class Budget(NamedTuple):
    """`budget = floor(T * u)` or `ceil(T * u)`, the product taken in double precision as the engine does.

    Source: 0.9.1-0.13 v1/worker/gpu_worker.py init_device (float); 0.14.0+ v1/worker/utils.py request_memory (ceil).
    """

    name: str
    budget: Term
    total: Term
    utilization: Term
    rounded_up: bool

    @property
    def terms(self) -> tuple[Term, ...]:
        """Budget, total, utilisation."""
        return (self.budget, self.total, self.utilization)

    def _product(self, total: float, utilization: float) -> int:
        product = total * utilization
        return math.ceil(product) if self.rounded_up else math.floor(product)

    def contract(self, box: Mapping[Term, Interval]) -> Iterator[Narrowing]:
        """Use that the product grows with both factors."""
        total, u, budget = (box.get(t, ANYTHING) for t in (self.total, self.utilization, self.budget))
        low = None if total.low is None or u.low is None else self._product(total.low, u.low)
        high = None if total.high is None or u.high is None else self._product(total.high, u.high)
        yield self.budget, Interval(low, high)
        low = None if budget.low is None or not u.high else _first_total(self._product, int(budget.low), u.high)
        above = None if budget.high is None or not u.low else _first_total(self._product, int(budget.high) + 1, u.low)
        yield self.total, Interval(low, None if above is None else above - 1)
        yield self.utilization, _quotient(budget, total)


def _first_total(product: Callable[[float, float], int], target: int, utilization: float) -> int | None:
    """Give the smallest total whose product reaches `target`; None where no card is that large."""
    if product(0, utilization) >= target:
        return 0
    if utilization <= 0 or (target - 1) / utilization >= WHOLE_DOUBLES:
        return None
    guess = max(0, int((target - 1) / utilization) - 2)
    step = 1 << 12
    while product(guess, utilization) >= target and guess > 0:  # a double's rounding may put the guess too high
        guess = max(0, guess - step)
    while product(guess + 1, utilization) < target:
        guess += 1 if product(guess + step, utilization) >= target else step
    return guess + 1


def _quotient(budget: Interval, total: Interval) -> Interval:
    """Give the utilisations that can turn `total` into `budget`: one byte either way is the rounding."""
    low = None if budget.low is None or not total.high else max(0.0, (budget.low - 1) / total.high * (1 - 1e-15))
    high = None if budget.high is None or not total.low else (budget.high + 1) / total.low * (1 + 1e-15)
    return Interval(low, high)


class Share(NamedTuple):
    """`part = whole * ratio`, any signs of part and ratio, whole positive: G_est against T by the utilisation line."""

    name: str
    part: Term
    whole: Term
    ratio: Term

    @property
    def terms(self) -> tuple[Term, ...]:
        """Part, whole, ratio."""
        return (self.part, self.whole, self.ratio)

    def contract(self, box: Mapping[Term, Interval]) -> Iterator[Narrowing]:
        """Use the product's corners, and for the whole only a ratio of one sign."""
        part, whole, ratio = (box.get(t, ANYTHING) for t in self.terms)
        if None not in (whole.low, whole.high, ratio.low, ratio.high):
            corners = [w * r for w in whole for r in ratio]  # type: ignore[operator]  # None was excluded
            yield self.part, Interval(math.floor(min(corners)), math.ceil(max(corners)))
        if ratio.low is not None and ratio.low > 0 and part.low is not None and part.low > 0:
            low = None if ratio.high is None else math.floor(part.low / ratio.high)
            yield self.whole, Interval(low, None if part.high is None else math.ceil(part.high / ratio.low))


class Minimum(NamedTuple):
    """`least = min(of)`; with `open_ended`, members are missing and the minimum may lie below all that are known."""

    name: str
    least: Term
    of: tuple[Term, ...]
    open_ended: bool

    @property
    def terms(self) -> tuple[Term, ...]:
        """The minimum first."""
        return (self.least, *self.of)

    def contract(self, box: Mapping[Term, Interval]) -> Iterator[Narrowing]:
        """Use that the minimum is below every member, and one of them."""
        least = box.get(self.least, ANYTHING)
        members = [box.get(t, ANYTHING) for t in self.of]
        highs = [m.high for m in members if m.high is not None]
        lows = [m.low for m in members]
        low = None if self.open_ended or any(v is None for v in lows) else min(v for v in lows if v is not None)
        yield self.least, Interval(low, min(highs) if highs else None)
        for term in self.of:
            yield term, Interval(least.low, None)
        if not self.open_ended and len(self.of) == 1:
            yield self.of[0], least


class OneOf(NamedTuple):
    """`value` equals one of the members; which one is not known."""

    name: str
    value: Term
    members: tuple[Term, ...]

    @property
    def terms(self) -> tuple[Term, ...]:
        """The value first."""
        return (self.value, *self.members)

    def contract(self, box: Mapping[Term, Interval]) -> Iterator[Narrowing]:
        """Give the hull of the members."""
        hull = box.get(self.members[0], ANYTHING)
        for member in self.members[1:]:
            hull = hull.hull(box.get(member, ANYTHING))
        yield self.value, hull


class Same(NamedTuple):
    """Two names for one figure in this era."""

    name: str
    one: Term
    other: Term

    @property
    def terms(self) -> tuple[Term, ...]:
        """Both."""
        return (self.one, self.other)

    def contract(self, box: Mapping[Term, Interval]) -> Iterator[Narrowing]:
        """Give each the other's interval."""
        yield self.one, box.get(self.other, ANYTHING)
        yield self.other, box.get(self.one, ANYTHING)


class Either(NamedTuple):
    """`value` is 0 or equals `other`: a charge that may have been switched off."""

    name: str
    value: Term
    other: Term

    @property
    def terms(self) -> tuple[Term, ...]:
        """The charge, then what it may be."""
        return (self.value, self.other)

    def contract(self, box: Mapping[Term, Interval]) -> Iterator[Narrowing]:
        """Give the hull of both cases, or the one case that is left."""
        value, other = box.get(self.value, ANYTHING), box.get(self.other, ANYTHING)
        if not value.contains(0):
            yield self.value, other
            yield self.other, value
        elif value.meet(other) is not None:
            yield self.value, other.hull(Interval.exactly(0))
        else:
            yield self.value, Interval.exactly(0)


class AtMost(NamedTuple):
    """`small <= large`."""

    name: str
    small: Term
    large: Term

    @property
    def terms(self) -> tuple[Term, ...]:
        """Small, large."""
        return (self.small, self.large)

    def contract(self, box: Mapping[Term, Interval]) -> Iterator[Narrowing]:
        """Pass the ends on."""
        yield self.small, Interval(None, box.get(self.large, ANYTHING).high)
        yield self.large, Interval(box.get(self.small, ANYTHING).low, None)
