"""Documents as tables for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvforensics.report.document import Grid
from kvforensics.report.sheet import Sheet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from kvforensics.report.document import Document
    from kvforensics.report.look import Look

STYLES = {"good": "bold green", "bad": "bold red", "open": "bold yellow", "plain": "bold"}
WORDS_FROM = 110
"""The width from which columns of words stand beside the figures; below it remarks are dropped."""


def render(documents: Sequence[Document], look: Look, *, colour: bool) -> str:
    """Give documents as text of `look.width` columns, ANSI-coloured if `colour`."""
    sheet = Sheet(look, colour=colour)
    for i, document in enumerate(documents):
        if i:
            sheet.print("", "")
        _document(sheet, document)
    return sheet.finished()


def _document(sheet: Sheet, document: Document) -> None:
    sheet.print(sheet.text(document.headline, STYLES[document.mood]))
    rows = [(sheet.text(label, "dim"), sheet.text(text)) for label, text in document.facts]
    sheet.print(sheet.grid(rows, ("", ""), unbroken=(0,)))
    for block in document.blocks:
        if isinstance(block, Grid):
            _grid(sheet, block)
        else:
            sheet.listing(block.title, block.lines)
    for note in document.notes:
        sheet.print("", sheet.text(note, "dim"))


def grid_text(grid: Grid, look: Look) -> str:
    """Give one table as plain text of `look.width` columns, without its title."""
    sheet = Sheet(look, colour=False)
    sheet.print(_laid_out(sheet, grid))
    return sheet.finished()


def _grid(sheet: Sheet, grid: Grid) -> None:
    sheet.print("", sheet.text(grid.title, "bold"), _laid_out(sheet, grid))


def _a_flag_a_line(command: str) -> str:
    return command.replace(" --", "\n--")


def _stays_whole(grid: Grid, place: int, width: int) -> bool:
    """Whether a column never wraps: the names, and flags to paste where they leave the others half the width."""
    if place in grid.flags:
        lines = (line for row in grid.rows for line in _a_flag_a_line(row[place]).split("\n"))
        return max(map(len, lines), default=0) <= width // 2
    return place == 0 and grid.named


def _laid_out(sheet: Sheet, grid: Grid) -> Table:
    kept = [i for i in range(len(grid.heads)) if sheet.width >= WORDS_FROM or not grid.is_remark(i)]
    rows = [[sheet.text(_a_flag_a_line(row[i]) if i in grid.flags else row[i]) for i in kept] for row in grid.rows]
    heads = [grid.heads[i] for i in kept]
    unbroken = [place for place, i in enumerate(kept) if _stays_whole(grid, i, sheet.width)]
    return sheet.grid(rows, heads, right=grid.right, unbroken=unbroken)
