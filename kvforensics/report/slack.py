"""The report as Slack mrkdwn: short."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvforensics.report.cells import where
from kvforensics.report.markup_slack import SIGNS, WIDTH, block, bold, escaped, titled_list, whole_text
from kvforensics.report.page import pages
from kvforensics.report.table import capacity_text, waterfall_text

if TYPE_CHECKING:
    from kvforensics.explanation import Report
    from kvforensics.report.look import Look
    from kvforensics.report.page import EngineSection, Page


def render(report: Report, look: Look) -> str:
    """Give the report as mrkdwn. Raises UsageFault where `look` asks for a start-up that is not there."""
    shown = look._replace(width=look.width or WIDTH)
    return whole_text((_lines(page, shown) for page in pages(report, look)), look)


def _lines(page: Page, look: Look) -> list[str]:
    found = [f"*{escaped(page.headline)}*"]
    found += [escaped(section.titled(section.key)) for section in page.engines]
    if page.verdict.answer:
        found.append(f"{SIGNS[page.verdict.severity]} {escaped(page.verdict.answer)}")
    found += [f"• {fact.label}: {escaped(fact.text)}{where(fact.lines)}" for fact in page.facts]
    found += titled_list("Conflicts: lines that cannot all be true", page.conflicts)
    for section in page.engines:
        found += _section(section, look)
    found += _findings(page)
    return [*found, *titled_list("Missing", page.missing)]


def _section(section: EngineSection, look: Look) -> list[str]:
    found = []
    for fall in section.waterfalls:
        found += [
            bold(f"{section.titled(fall.rank)}: where the memory went"),
            *block(waterfall_text(fall, look)),
        ]
    notes = " ".join(section.notes)
    found += [escaped(notes)] if notes else []
    return [*found, *block(capacity_text(section, look))] if section.capacity else found


def _findings(page: Page) -> list[str]:
    found = ["*Findings*"] if page.verdict.findings else []
    for finding in page.verdict.findings:
        found.append(
            f"{SIGNS[finding.severity]} {escaped(f'{finding.severity}: {finding.title}')}{where(finding.lines)}"
        )
        found += [f"    • {escaped(part)}" for part in finding.parts]
    return found
