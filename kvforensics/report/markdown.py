"""The report as GitHub-flavoured Markdown for a ticket; readable as plain text too. No HTML."""

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
from kvforensics.report.page import pages
from kvforensics.report.wording import ascii_only

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kvforensics.explanation import Report
    from kvforensics.report.look import Look
    from kvforensics.report.page import EngineSection, Page
    from kvforensics.report.waterfall import Waterfall

SPECIAL = frozenset("\\`*[]<|~&$")
"""Characters that start markup; an underscore does at a word's edge only."""


def render(report: Report, look: Look) -> str:
    """Give the report as Markdown. Raises UsageFault where `look` asks for a start-up that is not there."""
    text = "\n\n---\n\n".join("\n\n".join(_blocks(page, look)) for page in pages(report, look)) + "\n"
    return ascii_only(text) if look.ascii_only else text


def _blocks(page: Page, look: Look) -> list[str]:
    found = [f"### {escaped(page.headline)}"]
    found += [f"**{escaped(section.titled(section.key))}**" for section in page.engines]
    if page.verdict.answer:
        found.append(f"**Verdict: {escaped(page.verdict.answer)}**")
    found.append(_list(f"{f.label}: {_value(f.label, f.text)}{where(f.lines)}" for f in page.facts))
    if page.conflicts:
        found += ["**Conflicts: lines that cannot all be true**", _list(map(escaped, page.conflicts))]
    for section in page.engines:
        found += _section(section, look)
    found += _ranks(page, look)
    found += _findings(page)
    found += _geometry(page, look)
    if untold := page.missing:
        found += ["**Missing**", _list(map(escaped, untold))]
    if page.unread:
        quotes = [f"L{q.line} {code(q.text)}" for q in page.unread]
        found += ["**Lines about memory that no rule took**", _list([*quotes, *page.unquoted])]
    if page.legend:
        found.append(f"_{escaped('; '.join(page.legend))}_")
    return found


def _value(label: str, text: str) -> str:
    """Give a fact; what is quoted from the log stands as code, so that nothing in it is markup."""
    return escaped(text) if label in {"GPU", "parallel", "start-ups", "version"} else code(text)


def _section(section: EngineSection, look: Look) -> list[str]:
    found = []
    for fall in section.waterfalls:
        title = f"{section.title}, {fall.rank}" if section.title else fall.rank
        found += [f"**{escaped(title)}: where the memory went**", _waterfall(fall, look)]
    found.append(escaped(" ".join(section.notes)))
    if section.capacity:
        rows = [[escaped(cell) for cell in row] for row in capacity_rows(section)]
        found.append(_table(CAPACITY_HEADS, rows, look=look))
    return [block for block in found if block]


def _waterfall(fall: Waterfall, look: Look) -> str:
    rows = [
        [code(cell) if place == BAR and fall.scale and cell else escaped(cell) for place, cell in enumerate(row)]
        for row in waterfall_rows(fall, look)
    ]
    return _table(waterfall_heads(fall), rows, right=("GiB", f"of {fall.scale}"), look=look)


def _ranks(page: Page, look: Look) -> list[str]:
    rows = [[escaped(cell) for cell in row] for row in rank_rows(page)]
    return [_table(RANK_HEADS, rows, right=("W, GiB", "M, GiB", "blocks"), look=look)] if rows else []


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
    found = [f"**{escaped(section.title)}**", _list(map(escaped, section.notes))]
    if section.verdicts:
        rows = [[escaped(cell) for cell in verdict] for verdict in section.verdicts]
        found.append(_table(HEADS, rows, right=HEADS[1:3], look=look))
    return [block for block in found if block]


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = (), look: Look) -> str:
    """Give a table whose columns also line up as plain text."""
    if look.ascii_only:
        rows = [[ascii_only(cell) for cell in row] for row in rows]
    widths = [max(3, len(head), *(len(row[i]) for row in rows)) for i, head in enumerate(heads)]
    flush = [head in right for head in heads]
    rule = [f"{'-' * (w - 1)}:" if r else "-" * w for w, r in zip(widths, flush, strict=True)]
    lines = [_row(heads, widths, flush), f"| {' | '.join(rule)} |", *(_row(row, widths, flush) for row in rows)]
    return "\n".join(lines)


def _row(cells: Sequence[str], widths: Sequence[int], flush: Sequence[bool]) -> str:
    padded = [c.rjust(w) if r else c.ljust(w) for c, w, r in zip(cells, widths, flush, strict=True)]
    return f"| {' | '.join(padded)} |"


def _list(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def escaped(text: str) -> str:
    """Give text in which nothing is markup, inside a table cell too."""
    padded = f" {text} "
    found = []
    for before, mark, after in zip(padded, text, padded[2:], strict=False):
        inside_word = before.isalnum() and after.isalnum()
        found.append(f"\\{mark}" if mark in SPECIAL or (mark == "_" and not inside_word) else mark)
    return "".join(found)


def code(text: str) -> str:
    """Give text as inline code, whatever backticks it holds; not for table cells, where a pipe would end it."""
    ticks = "`"
    while ticks in text:
        ticks += "`"
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{pad}{text}{pad}{ticks}"
