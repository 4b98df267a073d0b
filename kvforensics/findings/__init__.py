"""What is wrong with a start-up and what to do: small rules over its ledger and its parsed statements.

A rule reads no text. It says something only where its facts make it sure; where one is missing it names it or is silent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvforensics.findings import course, graphs, host, layout, limits, neighbours, out_of_memory, peaks, readings
from kvforensics.findings.case import Case
from kvforensics.findings.finding import ERROR, NOTE, SEVERITIES, Finding, FindingRule, Unsaid
from parsers.tuples import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconstruct.ledger import StartUpLedger

RULES: tuple[FindingRule, ...] = (
    *out_of_memory.RULES,
    *limits.RULES,
    *neighbours.RULES,
    *graphs.RULES,
    *peaks.RULES,
    *readings.RULES,
    *layout.RULES,
    *host.RULES,
    *course.RULES,
)
BY_ID = {rule.id: rule for rule in RULES}
REASONS = frozenset(("cause-cut-off", "not-a-memory-failure"))
"""What a failed start ended by, where that is no error of memory: no warning stands before it."""


class Verdict(NamedTuple):
    """What the rules say of one start-up."""

    findings: tuple[Finding, ...]
    """Errors, what else a failed start ended by, the rest by severity, then by cost; causes before what follows from them."""
    unsaid: tuple[Unsaid, ...]
    """Rules that lacked a fact."""


def examine(startups: Sequence[StartUpLedger]) -> tuple[Verdict, ...]:
    """Judge every start-up of one log."""
    every = tuple(startups)
    return tuple(_verdict(Case(every, place)) for place in range(len(every)))


def _verdict(case: Case) -> Verdict:
    said = [rule.check(case) for rule in RULES]
    found = [x for x in said if isinstance(x, Finding)]
    if any(f.severity != NOTE for f in found):
        found = [f for f in found if f.id != "healthy"]
    if any(f.id in REASONS or (f.severity == ERROR and f.id != "unexplained-failure") for f in found):
        found = [f for f in found if f.id != "unexplained-failure"]
    return Verdict(ordered(found), tuple(x for x in said if isinstance(x, Unsaid)))


def ordered(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Sort by weight, then by cost, the dearest first; then put each cause before what it caused."""
    places = {rule.id: i for i, rule in enumerate(RULES)}
    sorted_ones = sorted(findings, key=lambda f: (weight(f), -_bytes(f), places[f.id]))
    found: list[Finding] = []
    for one in sorted_ones:
        _place(one, sorted_ones, found)
    return tuple(found)


def weight(finding: Finding) -> tuple[bool, bool, int]:
    """Give what sorts a finding before others: an error, then what the start ended by, then its severity."""
    return finding.severity != ERROR, finding.id not in REASONS, SEVERITIES.index(finding.severity)


def _place(one: Finding, every: Sequence[Finding], found: list[Finding]) -> None:
    if one in found:
        return
    for cause in every:
        if cause.id in BY_ID[one.id].after and cause not in found:
            _place(cause, every, found)
    found.append(one)


def _bytes(finding: Finding) -> float:
    """Give what a finding costs at least; where only a ceiling is known it counts little."""
    low, high = finding.cost.bytes.low, finding.cost.bytes.high
    return max(low or 0, 0) + min(max((high or 0), 0) / (1 << 40), 1)
