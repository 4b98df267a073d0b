"""What is wrong and what to do, as text: one entry for each finding, in the order of the verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvforensics.findings import weight
from kvforensics.findings.finding import ERROR
from kvforensics.report.gaps import amount
from kvforensics.report.redaction import quoted
from kvforensics.report.sizes import gib, whole
from kvforensics.report.wording import symbol
from parsers.tuples import NamedTuple

if TYPE_CHECKING:
    from kvforensics.findings import Verdict
    from kvforensics.findings.finding import Action, Cost, Finding
    from reconstruct.interval import Interval

HEALTHY = "healthy"
"""The id of the finding that says that nothing is wrong."""
DETAIL_LENGTH = 1000


class Advice(NamedTuple):
    """One thing to do."""

    do: str
    expect: str
    """What would then be, `M 40 ±0.1 GiB`; empty where nothing sound can be said."""
    risk: str

    def sentence(self) -> str:
        """Give the advice in one line."""
        expect = f"; expect {self.expect}" if self.expect else ""
        return self.do + expect + (f"; risk: {self.risk}" if self.risk else "")


class FindingText(NamedTuple):
    """One finding."""

    severity: str
    id: str
    title: str
    detail: str
    lines: tuple[int, ...]
    cost: str
    """Empty where it costs nothing that can be told."""
    advice: tuple[Advice, ...]

    @property
    def toll(self) -> str:
        """Say what the cost is: a start that failed is short by it."""
        return "short by" if self.severity == ERROR else "costs"

    @property
    def parts(self) -> list[str]:
        """What stands below the title, in order."""
        cost = f"{self.toll} {self.cost}" if self.cost else ""
        return [part for part in (self.detail, cost, *(f"do: {one.sentence()}" for one in self.advice)) if part]


class FindingsSection(NamedTuple):
    """The findings of one start-up."""

    answer: str
    """The verdict in one line: `healthy`, or the worst finding with its severity."""
    severity: str
    """Of the worst finding; empty where there is none or all is well."""
    first: FindingText | None
    """The heaviest finding: the one that the answer names."""
    findings: tuple[FindingText, ...]
    unsaid: tuple[str, ...]
    """What could not be judged, and which fact it takes."""


NO_FINDINGS = FindingsSection("", "", None, (), ())


def findings_section(verdict: Verdict, *, mask: bool) -> FindingsSection:
    """Put a verdict in words; private details in what findings quote are masked if asked."""
    found = tuple(_finding(f, mask=mask) for f in verdict.findings)
    well = any(f.id == HEALTHY for f in found)
    heaviest = min(verdict.findings, key=weight, default=None)
    first = found[verdict.findings.index(heaviest)] if heaviest else None
    unsaid: dict[str, list[str]] = {}
    for one in verdict.unsaid:
        unsaid.setdefault(one.fact, []).append(one.id)
    return FindingsSection(
        answer=HEALTHY if well else f"{first.severity}: {first.title}" if first else "",
        severity="" if well or not first else first.severity,
        first=first,
        findings=found,
        unsaid=tuple(f"to judge {', '.join(ids)}: {quoted(fact, mask=mask, most=240)}" for fact, ids in unsaid.items()),
    )


def _finding(finding: Finding, *, mask: bool) -> FindingText:
    def shown(text: str) -> str:
        return quoted(text, mask=mask, most=DETAIL_LENGTH)

    return FindingText(
        severity=finding.severity,
        id=finding.id,
        title=shown(finding.title),
        detail=shown(finding.detail),
        lines=finding.evidence,
        cost=_cost(finding.cost),
        advice=tuple(Advice(shown(a.do), _expected(a), shown(a.risk)) for a in finding.actions),
    )


def _cost(cost: Cost) -> str:
    """Give what is lost, where anything bounds it: `24.5 ±0.4 GiB, 1,024 – 2,048 tokens`."""
    parts = [f"{gib(cost.bytes)} GiB"] if _tells(cost.bytes) else []
    parts += [f"{whole(cost.tokens)} tokens"] if _tells(cost.tokens) else []
    return ", ".join(parts)


def _tells(interval: Interval) -> bool:
    return (interval.low is not None and interval.low > 0) or (interval.high is not None and interval.high > 0)


def _expected(action: Action) -> str:
    values = [(symbol(e.quantity), amount(e.quantity, e.interval)) for e in action.expect]
    return ", ".join(value if value.endswith(name) else f"{name} {value}" for name, value in values)
