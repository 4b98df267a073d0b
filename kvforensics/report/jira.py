"""The report as Jira wiki markup."""

from __future__ import annotations

import re
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
from kvforensics.report.page import pages
from kvforensics.report.wording import ascii_only

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kvforensics.explanation import Report
    from kvforensics.report.look import Look
    from kvforensics.report.page import EngineSection, Page
    from kvforensics.report.waterfall import Waterfall

ALWAYS = frozenset("\\{}[]|*^~!#")
"""Characters that start markup wherever they stand; `_`, `-` and `+` do at a word's edge only, `??` twice."""
EDGES = frozenset("_-+")
ICON = re.compile(r"\((?=(?:[xyi!/?+-]|on|off|\*[rgby]?|flag|flagoff)\))|[:;](?=[()DPp])")
"""Where one of Jira's icons begins."""
MACRO_LIKE = re.compile(r"\?(?=\?)")
COLOURS = {"error": "red", "warning": "orange", "note": "gray", "": "green"}


def render(report: Report, look: Look) -> str:
    """Give the report as wiki markup. Raises UsageFault where `look` asks for a start-up that is not there."""
    text = "\n\n----\n\n".join("\n\n".join(_blocks(page, look)) for page in pages(report, look)) + "\n"
    return ascii_only(text) if look.ascii_only else text


def escaped(text: str) -> str:
    """Give text in which nothing is markup, inside a table cell too."""
    padded = f" {text} "
    found = []
    for i, (before, mark, after) in enumerate(zip(padded, text, padded[2:], strict=False)):
        edge = mark in EDGES and not (before.isalnum() and after.isalnum())
        starts = ICON.match(text, i) or MACRO_LIKE.match(text, i)
        found.append(f"\\{mark}" if mark in ALWAYS or edge or starts else mark)
    return "".join(found)


def _blocks(page: Page, look: Look) -> list[str]:
    found = [f"h3. {escaped(page.headline)}"]
    found += [f"*{escaped(section.titled(section.key))}*" for section in page.engines]
    if page.verdict.answer:
        colour = COLOURS[page.verdict.severity]
        found.append(f"{{color:{colour}}}*Verdict: {escaped(page.verdict.answer)}*{{color}}")
    facts = [f"{fact.label}: {escaped(fact.text)}{where(fact.lines)}" for fact in page.facts]
    found.append(_list(facts))
    found += _titled_list("Conflicts: lines that cannot all be true", map(escaped, page.conflicts))
    for section in page.engines:
        found += _section(section, look)
    found += _ranks(page)
    found += _findings(page)
    found += _geometry(page)
    found += _titled_list("Missing", map(escaped, page.missing))
    quotes = [f"L{q.line} {{{{{escaped(q.text)}}}}}" for q in page.unread]
    found += _titled_list("Lines about memory that no rule took", [*quotes, *page.unquoted])
    return [*found, escaped("; ".join(page.legend))] if page.legend else found


def _section(section: EngineSection, look: Look) -> list[str]:
    found = []
    for fall in section.waterfalls:
        found += [f"*{escaped(section.titled(fall.rank))}: where the memory went*", _waterfall(fall, look)]
    found.append(escaped(" ".join(section.notes)))
    if section.capacity:
        found.append(_table(CAPACITY_HEADS, capacity_rows(section)))
    return [block for block in found if block]


def _waterfall(fall: Waterfall, look: Look) -> str:
    lines = [_row(map(escaped, waterfall_heads(fall)), "||")]
    for row in waterfall_rows(fall, look):
        cells = [escaped(cell) for cell in row]
        if fall.scale and row[BAR]:
            cells[BAR] = f"{{{{{cells[BAR]}}}}}"
        lines.append(_row(cells, "|"))
    return "\n".join(lines)


def _ranks(page: Page) -> list[str]:
    return [_table(RANK_HEADS, rank_rows(page))] if page.ranks else []


def _findings(page: Page) -> list[str]:
    lines = []
    for finding in page.verdict.findings:
        colour = COLOURS[finding.severity]
        title = f"{{color:{colour}}}*{finding.severity}: {escaped(finding.title)}*{{color}}"
        lines.append(f"* {title}{where(finding.lines)}")
        lines += [f"** {escaped(part)}" for part in finding.parts]
    return ["*Findings*", "\n".join(lines)] if lines else []


def _geometry(page: Page) -> list[str]:
    section = page.geometry
    if section is None:
        return []
    found = _titled_list(section.title, map(escaped, section.notes))
    return [*found, _table(HEADS, section.verdicts)] if section.verdicts else found


def _titled_list(title: str, items: Iterable[str]) -> list[str]:
    text = _list(items)
    return [f"*{escaped(title)}*", text] if text else []


def _list(items: Iterable[str]) -> str:
    return "\n".join(f"* {item}" for item in items)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join([_row(map(escaped, heads), "||"), *(_row(map(escaped, row), "|") for row in rows)])


def _row(cells: Iterable[str], mark: str) -> str:
    """Give a row; an empty cell holds a blank, else it would merge with the next."""
    return mark + mark.join(cell or " " for cell in cells) + mark
