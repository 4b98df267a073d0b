"""Documents as one HTML file, figures of both sides drawn beside each other."""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING

from kvforensics.report.document import Grid
from kvforensics.report.markup_html import bar, element, facts, main, table, titled_list, whole_page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvforensics.report.document import Bars, Document
    from kvforensics.report.look import Look

CROWDED = 6
"""Columns from which remarks have none of their own."""
FLAG = re.compile(r"--[a-z][a-z-]*(?: [\w.]+)?")


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
    return main([*parts, *(element("p", note, "legend") for note in document.notes)], "wide")


def _grid(grid: Grid) -> str:
    """Give a table; bars stand after the last column of figures, remarks below what they explain where room is short."""
    places = range(len(grid.heads))
    below = [i for i in places if len(places) >= CROWDED and grid.is_remark(i)]
    names = ["r" if grid.heads[i] in grid.right else "remark" if grid.is_remark(i) else "" for i in places]
    names[0] = names[0] or ("symbol" if grid.named else "")
    drawn_at = max((i for i in places if names[i] == "r"), default=places[-1])
    sides = " / ".join(grid.sides) if grid.bars else None
    rows = []
    for row, bars in zip(grid.rows, grid.bars or (None,) * len(grid.rows), strict=True):
        cells = [_cell(row[i], names[i], remark=row[i + 1] if i + 1 in below else "") for i in places]
        drawn = None if sides is None else _bars(bars, grid, row)
        rows.append((bars.kind if bars else "", _columns(cells, drawn, drawn_at, below)))
    heads, kinds = (
        _columns(grid.heads, sides, drawn_at, below),
        _columns(names, None if sides is None else "", drawn_at, below),
    )
    return table(heads, rows, kinds, "words")


def _columns(row: Sequence[str], drawn: str | None, drawn_at: int, below: Sequence[int]) -> list[str]:
    """Give a row as it is shown: with what belongs to the bars, without what moved below another column."""
    found: list[str] = []
    for i, one in enumerate(row):
        found += [] if i in below else [one]
        found += [drawn] if i == drawn_at and drawn is not None else []
    return found


def _cell(text: str, name: str, *, remark: str) -> str:
    below = element("div", remark, "remark") if remark else ""
    opened = f'<td class="{name}">' if name else "<td>"
    return f"{opened}{_whole_flags(text)}{below}</td>"


def _whole_flags(text: str) -> str:
    """Give a text as HTML whose options and their values stay on one line each."""
    return FLAG.sub(r'<span class="flag">\g<0></span>', escape(text))


def _bars(bars: Bars | None, grid: Grid, row: Sequence[str]) -> str:
    sides = zip(grid.sides, bars.sides, strict=True) if bars else ()
    tracks = [bar(drawn, f"{row[0]} {side}") for side, drawn in sides if drawn]
    return f'<td class="bar">{"".join(tracks)}</td>'
