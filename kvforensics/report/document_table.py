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


def _laid_out(sheet: Sheet, grid: Grid) -> Table:
    kept = [i for i in range(len(grid.heads)) if sheet.width >= WORDS_FROM or not grid.is_remark(i)]
    rows = [[sheet.text(row[i]) for i in kept] for row in grid.rows]
    heads = [grid.heads[i] for i in kept]
    unbroken = [place for place, i in enumerate(kept) if i == 0 and grid.named]
    return sheet.grid(rows, heads, right=grid.right, unbroken=unbroken)
