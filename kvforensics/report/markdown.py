"""The report as GitHub-flavoured Markdown for a ticket."""

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
from kvforensics.report.markup_markdown import bullets, code, escaped, table, text_table, titled_list, whole_text
from kvforensics.report.page import pages

if TYPE_CHECKING:
    from kvforensics.explanation import Report
    from kvforensics.report.look import Look
    from kvforensics.report.page import EngineSection, Page
    from kvforensics.report.waterfall import Waterfall


def render(report: Report, look: Look) -> str:
    """Give the report as Markdown. Raises UsageFault where `look` asks for a start-up that is not there."""
    return whole_text((_blocks(page, look) for page in pages(report, look)), look)


def _blocks(page: Page, look: Look) -> list[str]:
    found = [f"### {escaped(page.headline)}"]
    found += [f"**{escaped(section.titled(section.key))}**" for section in page.engines]
    if page.verdict.answer:
        found.append(f"**Verdict: {escaped(page.verdict.answer)}**")
    found.append(bullets(f"{f.label}: {_value(f.label, f.text)}{where(f.lines)}" for f in page.facts))
    found += titled_list("Conflicts: lines that cannot all be true", map(escaped, page.conflicts))
    for section in page.engines:
        found += _section(section, look)
    found.append(_ranks(page, look))
    found += _findings(page)
    found += _geometry(page, look)
    found += titled_list("Missing", map(escaped, page.missing))
    quotes = [f"L{q.line} {code(q.text)}" for q in page.unread]
    found += titled_list("Lines about memory that no rule took", [*quotes, *page.unquoted])
    return [*found, f"_{escaped('; '.join(page.legend))}_"] if page.legend else found


def _value(label: str, text: str) -> str:
    """Give a fact; what is quoted from the log stands as code, so that nothing in it is markup."""
    return escaped(text) if label in {"GPU", "parallel", "start-ups", "version"} else code(text)


def _section(section: EngineSection, look: Look) -> list[str]:
    found = []
    for fall in section.waterfalls:
        title = f"{section.title}, {fall.rank}" if section.title else fall.rank
        found += [f"**{escaped(title)}: where the memory went**", _waterfall(fall, look)]
    found.append(escaped(" ".join(section.notes)))
    return [*found, text_table(CAPACITY_HEADS, capacity_rows(section), look)] if section.capacity else found


def _waterfall(fall: Waterfall, look: Look) -> str:
    rows = [
        [code(cell) if place == BAR and fall.scale and cell else escaped(cell) for place, cell in enumerate(row)]
        for row in waterfall_rows(fall, look)
    ]
    return table(waterfall_heads(fall), rows, look, right=("GiB", f"of {fall.scale}"))


def _ranks(page: Page, look: Look) -> str:
    return text_table(RANK_HEADS, rank_rows(page), look, right=("W, GiB", "M, GiB", "blocks")) if page.ranks else ""


def _findings(page: Page) -> list[str]:
    """Give each finding as a list item, its parts nested below."""
    lines = []
    for finding in page.verdict.findings:
        lines.append(f"- **{finding.severity}: {escaped(finding.title)}**{where(finding.lines)}")
        lines += [f"  - {escaped(part)}" for part in finding.parts]
    return ["**Findings**", "\n".join(lines)] if lines else []


def _geometry(page: Page, look: Look) -> list[str]:
    section = page.geometry
    if section is None:
        return []
    found = [f"**{escaped(section.title)}**", bullets(map(escaped, section.notes))]
    return [*found, text_table(HEADS, section.verdicts, look, right=HEADS[1:3])] if section.verdicts else found
