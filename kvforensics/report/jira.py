"""The report as Jira wiki markup."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvforensics.report.cells import (
    BAR,
    CAPACITY_HEADS,
    RANK_HEADS,
    capacity_rows,
    rank_rows,
    waterfall_heads,
    waterfall_rows,
    where,
)
from kvforensics.report.geometry_section import HEADS
from kvforensics.report.markup_jira import (
    bold,
    bullets,
    code,
    coloured,
    escaped,
    row_of,
    text_table,
    titled_list,
    whole_text,
)
from kvforensics.report.page import pages

if TYPE_CHECKING:
    from kvforensics.explanation import Report
    from kvforensics.report.look import Look
    from kvforensics.report.page import EngineSection, Page
    from kvforensics.report.waterfall import Waterfall


def render(report: Report, look: Look) -> str:
    """Give the report as wiki markup. Raises UsageFault where `look` asks for a start-up that is not there."""
    return whole_text((_blocks(page, look) for page in pages(report, look)), look)


def _blocks(page: Page, look: Look) -> list[str]:
    found = [f"h3. {escaped(page.headline)}"]
    found += [bold(section.titled(section.key)) for section in page.engines]
    if page.verdict.answer:
        found.append(coloured(f"Verdict: {page.verdict.answer}", page.verdict.severity))
    facts = [f"{fact.label}: {escaped(fact.text)}{where(fact.lines)}" for fact in page.facts]
    found.append(bullets(facts))
    found += titled_list("Conflicts: lines that cannot all be true", map(escaped, page.conflicts))
    for section in page.engines:
        found += _section(section, look)
    found += _ranks(page)
    found += _findings(page)
    found += _geometry(page)
    found += titled_list("Missing", map(escaped, page.missing))
    quotes = [f"L{q.line} {code(q.text)}" for q in page.unread]
    found += titled_list("Lines about memory that no rule took", [*quotes, *page.unquoted])
    return [*found, escaped("; ".join(page.legend))] if page.legend else found


def _section(section: EngineSection, look: Look) -> list[str]:
    found = []
    for fall in section.waterfalls:
        found += [bold(f"{section.titled(fall.rank)}: where the memory went"), _waterfall(fall, look)]
    found.append(escaped(" ".join(section.notes)))
    if section.capacity:
        found.append(text_table(CAPACITY_HEADS, capacity_rows(section)))
    return found


def _waterfall(fall: Waterfall, look: Look) -> str:
    lines = [row_of(map(escaped, waterfall_heads(fall)), "||")]
    for row in waterfall_rows(fall, look):
        drawn = bool(fall.scale and row[BAR])
        lines.append(row_of((code(c) if drawn and i == BAR else escaped(c) for i, c in enumerate(row)), "|"))
    return "\n".join(lines)


def _ranks(page: Page) -> list[str]:
    return [text_table(RANK_HEADS, rank_rows(page))] if page.ranks else []


def _findings(page: Page) -> list[str]:
    lines = []
    for finding in page.verdict.findings:
        title = coloured(f"{finding.severity}: {finding.title}", finding.severity)
        lines.append(f"* {title}{where(finding.lines)}")
        lines += [f"** {escaped(part)}" for part in finding.parts]
    return ["*Findings*", "\n".join(lines)] if lines else []


def _geometry(page: Page) -> list[str]:
    section = page.geometry
    if section is None:
        return []
    found = titled_list(section.title, map(escaped, section.notes))
    return [*found, text_table(HEADS, section.verdicts)] if section.verdicts else found
