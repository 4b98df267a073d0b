"""The report as tables for a terminal, laid out by rich; plain text where there is no colour."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvforensics.report.bars import draw
from kvforensics.report.geometry_section import HEADS
from kvforensics.report.page import pages
from kvforensics.report.sheet import Sheet
from kvforensics.report.sizes import UNKNOWN
from kvforensics.report.wording import line_numbers

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from kvforensics.explanation import Report
    from kvforensics.report.look import Look
    from kvforensics.report.page import EngineSection, Page
    from kvforensics.report.waterfall import Step, Waterfall

BARS_FROM, LABELS_FROM, SHARES_FROM = 72, 66, 52
"""The widths below which bars, labels and shares give way to the figures."""
EVIDENCE_ROOM = 30
"""Characters for the lines that a finding rests on."""
ROOMY = 100
"""The width from which bars grow and more line numbers fit."""
STYLES = {
    "total": "bold",
    "unused": "dim",
    "budget": "bold",
    "taken": "yellow",
    "part": "dim",
    "pool": "green",
    "beside": "dim",
}
SEVERITIES = {"error": "bold red", "warning": "bold yellow", "note": "bold", "": "bold green"}
OUTCOMES = {"ready": "bold green", "failed": "bold red", "unfinished": "bold yellow"}


def render(report: Report, look: Look, *, colour: bool) -> str:
    """Give the report as text of `look.width` columns, ANSI-coloured if `colour`.

    Raises UsageFault where `look` asks for a start-up that is not there.
    """
    sheet = Sheet(look, colour=colour)
    for i, page in enumerate(pages(report, look)):
        if i:
            sheet.print("", "")
        _page(sheet, page)
    return sheet.finished()


def _page(sheet: Sheet, page: Page) -> None:
    _head(sheet, page)
    sheet.listing("Conflicts: lines that cannot all be true", page.conflicts, "bold red")
    if not page.engines:
        _verdict(sheet, page)
    for i, section in enumerate(page.engines):
        sheet.print("", sheet.text(section.titled(section.key), "bold"))
        if i == 0:
            _verdict(sheet, page)
        _section(sheet, section)
    _ranks(sheet, page)
    _findings(sheet, page)
    _geometry(sheet, page)
    sheet.listing("Missing", page.missing)
    quotes = [f"L{quote.line} {quote.text}" for quote in page.unread]
    sheet.listing("Lines about memory that no rule took", [*quotes, *page.unquoted])
    if page.legend:
        sheet.print("", sheet.text("; ".join(page.legend), "dim"))


def _head(sheet: Sheet, page: Page) -> None:
    sheet.print(sheet.text(page.headline, OUTCOMES.get(page.outcome, "bold")))
    rows = []
    for fact in page.facts:
        text = sheet.text(fact.text, "red" if fact.alarm else "")
        if fact.lines:
            text.append(f"  {line_numbers(fact.lines, _room(sheet))}", "dim")
        rows.append((sheet.text(fact.label, "dim"), text))
    sheet.print(sheet.grid(rows, ("", ""), unbroken=(0,)))


def _verdict(sheet: Sheet, page: Page) -> None:
    """Print the one-line verdict, if the start-up was examined."""
    if page.verdict.answer:
        sheet.print(sheet.text(page.verdict.answer, SEVERITIES[page.verdict.severity]))


def _findings(sheet: Sheet, page: Page) -> None:
    """Print each finding: what, why, what it costs and what to do, the parts indented below its title."""
    if not page.verdict.findings:
        return
    sheet.print("", sheet.text("Findings", "bold"))
    for finding in page.verdict.findings:
        title = sheet.text(f"{finding.severity}: {finding.title}", SEVERITIES[finding.severity])
        if finding.lines:
            title.append(f"  {line_numbers(finding.lines, EVIDENCE_ROOM)}", "dim")
        sheet.print(title)
        rows = [("", finding.detail), (finding.toll, finding.cost), *(("do", one.sentence()) for one in finding.advice)]
        cells = [(sheet.text(f"  {label:5}", "dim"), sheet.text(text)) for label, text in rows if text]
        if cells:
            sheet.print(sheet.grid(cells, ("", ""), unbroken=(0,)))


def _section(sheet: Sheet, section: EngineSection) -> None:
    for fall in section.waterfalls:
        sheet.print("", sheet.text(f"{fall.rank}: where the memory went", "bold"), _waterfall(sheet, fall))
    notes = " ".join(section.notes)
    if notes:
        sheet.print(sheet.text(notes, "dim"))
    if section.capacity:
        sheet.print("", _capacity(sheet, section))


def waterfall_text(fall: Waterfall, look: Look) -> str:
    """Give one waterfall as plain text of `look.width` columns."""
    sheet = Sheet(look, colour=False)
    sheet.print(_waterfall(sheet, fall))
    return sheet.finished()


def capacity_text(section: EngineSection, look: Look) -> str:
    """Give one engine's capacity as plain text of `look.width` columns."""
    sheet = Sheet(look, colour=False)
    sheet.print(_capacity(sheet, section))
    return sheet.finished()


def _capacity(sheet: Sheet, section: EngineSection) -> Table:
    rows = []
    for figure in section.capacity:
        source = sheet.text(figure.source.text(_room(sheet)), "dim")
        meaning = [sheet.text(figure.meaning)] if sheet.width >= LABELS_FROM else []
        rows.append((sheet.text(figure.symbol), *meaning, sheet.text(figure.value), source))
    heads = ("capacity", "", "", "source") if sheet.width >= LABELS_FROM else ("capacity", "", "source")
    return sheet.grid(rows, heads, unbroken=(0, 2) if sheet.width >= BARS_FROM else (0,))


def _room(sheet: Sheet) -> int:
    """Give the characters that a source may take."""
    return 14 if sheet.width < ROOMY else 24


def _waterfall(sheet: Sheet, fall: Waterfall) -> Table:
    labels = sheet.width >= LABELS_FROM
    shares = bool(fall.scale) and sheet.width >= SHARES_FROM
    bars = shares and sheet.width >= BARS_FROM and any(step.bar for step in fall.steps)
    cells = 10 if sheet.width < ROOMY else 20 + (sheet.width - ROOMY) // 2
    share = f"of {fall.scale}"
    heads = ["", *([""] if labels else []), "GiB", *([share] if shares else []), *([""] if bars else []), "source"]
    rows = []
    for step in fall.steps:
        style = STYLES[step.kind]
        row = _named(sheet, step)[: 1 + labels]
        row.append(sheet.text(step.size, "dim" if step.size == UNKNOWN else style))
        if shares:
            row.append(sheet.text(step.share, style))
        if bars:
            row.append(sheet.text(draw(step.bar, cells, ascii_only=sheet.ascii) if step.bar else "", style))
        rows.append([*row, sheet.text(step.source.text(_room(sheet)), "dim")])
    beside = next((i for i, step in enumerate(fall.steps) if step.kind == "beside"), None)
    unbroken = [i for i in range(len(heads) - 1) if not labels or i != 1]
    return sheet.grid(rows, heads, right=("GiB", share), unbroken=unbroken, section=beside)


def _named(sheet: Sheet, step: Step) -> list[Text]:
    sign = "-" if step.kind == "taken" else " "
    indent = "  " if step.kind == "part" else ""
    style = STYLES[step.kind]
    return [sheet.text(indent + sign + step.symbol, style), sheet.text(indent + step.label, style)]


def _ranks(sheet: Sheet, page: Page) -> None:
    if not page.ranks:
        return
    nodes = any(rank.node for rank in page.ranks)
    heads = ["rank", *(["node"] if nodes else []), "W, GiB", "M, GiB", "blocks", "", "source"]
    rows = []
    for rank in page.ranks:
        middle = [rank.weights, rank.available, rank.blocks, "binds" if rank.binds else ""]
        cells = [rank.name, *([rank.node] if nodes else []), *middle, rank.source.text(_room(sheet))]
        rows.append([sheet.text(cell) for cell in cells])
    sheet.print("", sheet.grid(rows, heads, right=("W, GiB", "M, GiB", "blocks")))


def _geometry(sheet: Sheet, page: Page) -> None:
    section = page.geometry
    if section is None:
        return
    sheet.listing(section.title, section.notes, "bold red" if section.alarm else "bold")
    if section.verdicts:
        rows = [[sheet.text(cell, "dim" if v.verdict == "excluded" else "") for cell in v] for v in section.verdicts]
        sheet.print("", sheet.grid(rows, HEADS, right=HEADS[1:3]))
