"""What a finding is, and what a rule that makes one must say of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.interval import ANYTHING, Interval

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvforensics.findings.case import Case

ERROR, WARNING, NOTE = "error", "warning", "note"
SEVERITIES = (ERROR, WARNING, NOTE)
"""From worst: the start failed of it or will; it costs capacity or risks running out; it is so, by design or small."""

NOTHING = Interval.exactly(0)


class Cost(NamedTuple):
    """What a finding costs one rank's pool; an end is None where nothing bounds it."""

    bytes: Interval = ANYTHING
    tokens: Interval = ANYTHING


NO_COST = Cost(NOTHING, NOTHING)


class Effect(NamedTuple):
    """A quantity of the ledger, named as the contract names it, and what it would be."""

    quantity: str
    interval: Interval


class Action(NamedTuple):
    """One thing to do."""

    do: str
    expect: tuple[Effect, ...] = ()
    """Exact where the arithmetic is; empty where nothing sound can be said."""
    risk: str = ""


class Finding(NamedTuple):
    """One thing the tool has to say about a start-up."""

    id: str
    severity: str
    title: str
    detail: str
    evidence: tuple[int, ...]
    """Lines that it rests on, in order."""
    cost: Cost = NO_COST
    actions: tuple[Action, ...] = ()


class Unsaid(NamedTuple):
    """A rule that could not decide: which fact it lacked, and where to get it."""

    id: str
    fact: str


class Threshold(NamedTuple):
    """A number that decides whether a rule holds, and where it comes from."""

    name: str
    value: float
    source: str


class FindingRule(NamedTuple):
    """One kind of finding."""

    id: str
    severities: tuple[str, ...]
    """What it may be, worst first."""
    says: str
    """What it tells the reader."""
    holds: str
    """When it holds, and when it must not."""
    needs: tuple[str, ...]
    """Facts it reads: quantities of the ledger and kinds of lines."""
    check: Callable[[Case], Finding | Unsaid | None]
    thresholds: tuple[Threshold, ...] = ()
    after: tuple[str, ...] = ()
    """Findings that are its cause where they stand beside it: they come first."""
