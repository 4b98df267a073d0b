"""Documents as one HTML file, figures of both sides drawn beside each other."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from kvforensics.report.document import Grid
from kvforensics.report.markup_html import bar, cell, element, facts, main, table, titled_list, whole_page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvforensics.report.document import Bars, Document
    from kvforensics.report.look import Look


def render(documents: Sequence[Document], look: Look) -> str:
    """Give one file of all documents."""
    return whole_page(documents[0].headline, map(_document, documents), ascii_only=look.ascii_only)


def _document(document: Document) -> str:
    parts = [element("h1", document.headline, document.mood)]
    parts.append(facts((label, escape(text), "") for label, text in document.facts))
    for block in document.blocks:
        if isinstance(block, Grid):
            parts += [element("h2", block.title), _grid(block)]
        else:
            parts += titled_list(block.title, map(escape, block.lines))
    return main([*parts, *(element("p", note, "legend") for note in document.notes)])


def _grid(grid: Grid) -> str:
    """Give a table; bars stand after the last column of figures."""
    right = {i for i, head in enumerate(grid.heads) if head in grid.right}
    place = max(right, default=len(grid.heads) - 1) + 1 if grid.bars else len(grid.heads)
    heads = [*grid.heads[:place], *([" / ".join(grid.sides)] if grid.bars else []), *grid.heads[place:]]
    rows = []
    for i, row in enumerate(grid.rows):
        cells = [cell(text, "r" if n in right else "symbol" if n == 0 else "") for n, text in enumerate(row)]
        drawn = grid.bars[i] if grid.bars else None
        if grid.bars:
            cells.insert(place, _bars(drawn, grid, row))
        rows.append((drawn.kind if drawn else "", cells))
    return table(heads, rows, right=right, name="words")


def _bars(bars: Bars | None, grid: Grid, row: Sequence[str]) -> str:
    sides = zip(grid.sides, bars.sides, strict=True) if bars else ()
    tracks = [bar(drawn, f"{row[0]} {side}") for side, drawn in sides if drawn]
    return f'<td class="bar">{"".join(tracks)}</td>'
