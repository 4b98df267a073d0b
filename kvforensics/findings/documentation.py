"""Findings and line kinds described from the rules themselves, so that no page can differ from what runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvforensics.errors import UsageFault
from kvforensics.findings import BY_ID, RULES
from reconstruct.rounding import GIB, MIB

if TYPE_CHECKING:
    from kvforensics.findings.finding import FindingRule, Threshold


def listing() -> str:
    """Give one line for each finding: id, worst severity, what it says."""
    width = max(len(rule.id) for rule in RULES)
    return "\n".join(f"{rule.id:<{width}}  {rule.severities[0]:<7}  {rule.says}" for rule in RULES)


def page(identifier: str) -> str:
    """Describe one finding. Raises UsageFault, with the nearest ids, where there is none of that name."""
    rule = BY_ID.get(identifier)
    if rule is None:
        from difflib import get_close_matches

        near = get_close_matches(identifier, BY_ID, n=3) or sorted(BY_ID)[:3]
        raise UsageFault(
            f"findings {identifier}: no such finding; try {', '.join(near)} (kvforensics findings lists them)"
        )
    return "\n".join(_described(rule))


def _described(rule: FindingRule) -> list[str]:
    lines = [
        rule.id,
        f"  severity: {', '.join(rule.severities)}",
        f"  says:     {rule.says}",
        f"  holds:    {rule.holds}",
        f"  needs:    {', '.join(rule.needs)}",
    ]
    lines += [f"  {t.name} = {_shown(t)}: {t.source}" for t in rule.thresholds]
    if rule.after:
        lines.append(f"  follows:  {', '.join(rule.after)}, where they stand beside it")
    return lines


def _shown(threshold: Threshold) -> str:
    value = threshold.value
    return f"{value / GIB:.4g} GiB" if value >= MIB else f"{value:g}"


def line_kinds(version: str | None = None) -> str:
    """List the sentences that the parsers know, with the examined releases that print them; all, or one release's.

    Raises UsageFault where the version is none.
    """
    from parsers.rules import RULES as SENTENCES
    from reconstruct.releases import RELEASES, narrow, wording_span

    place = None
    if version is not None:
        span = narrow(version, ()).span
        if span.low != span.high:
            raise UsageFault(f"--engine-version {version}: write a release, such as {RELEASES[-1]}")
        place = span.low
    lines = []
    for sentence in sorted(SENTENCES, key=lambda s: s.kind):
        spans = wording_span(*sentence.releases)
        if place is None or spans.low <= place <= spans.high:
            lines.append(f"{sentence.kind}  {'-'.join(sentence.releases)}  {sentence.template.strip()}")
    return "\n".join(lines)
