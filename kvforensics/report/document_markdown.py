"""Documents as GitHub-flavoured Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvforensics.report.document import Grid
from kvforensics.report.markup_markdown import escaped
from kvforensics.report.wording import ascii_only

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvforensics.report.document import Document
    from kvforensics.report.look import Look


def render(documents: Sequence[Document], look: Look) -> str:
    """Give documents as Markdown in which nothing foreign is markup."""
    text = "\n\n---\n\n".join("\n\n".join(_blocks(d)) for d in documents) + "\n"
    return ascii_only(text) if look.ascii_only else text


def _blocks(document: Document) -> list[str]:
    found = [f"### {escaped(document.headline)}"]
    found.append("\n".join(f"- {escaped(label)}: {escaped(text)}" for label, text in document.facts))
    for block in document.blocks:
        if isinstance(block, Grid):
            found += [f"**{escaped(block.title)}**", _table(block)]
        else:
            found += [f"**{escaped(block.title)}**", "\n".join(f"- {escaped(line)}" for line in block.lines)]
    return found + [f"_{escaped(note)}_" for note in document.notes]


def _table(grid: Grid) -> str:
    rows = [[escaped(cell) for cell in row] for row in grid.rows]
    widths = [max(3, len(head), *(len(row[i]) for row in rows)) for i, head in enumerate(grid.heads)]
    flush = [head in grid.right for head in grid.heads]
    rule = [f"{'-' * (w - 1)}:" if r else "-" * w for w, r in zip(widths, flush, strict=True)]
    lines = [_row(grid.heads, widths, flush), f"| {' | '.join(rule)} |", *(_row(row, widths, flush) for row in rows)]
    return "\n".join(lines)


def _row(cells: Sequence[str], widths: Sequence[int], flush: Sequence[bool]) -> str:
    padded = [c.rjust(w) if r else c.ljust(w) for c, w, r in zip(cells, widths, flush, strict=True)]
    return f"| {' | '.join(padded)} |"
