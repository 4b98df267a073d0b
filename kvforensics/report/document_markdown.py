"""Documents as GitHub-flavoured Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvforensics.report.document import Grid
from kvforensics.report.markup_markdown import bullets, escaped, text_table, titled_list, whole_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvforensics.report.document import Document
    from kvforensics.report.look import Look


def render(documents: Sequence[Document], look: Look) -> str:
    """Give documents as Markdown."""
    return whole_text((_blocks(d, look) for d in documents), look)


def _blocks(document: Document, look: Look) -> list[str]:
    found = [f"### {escaped(document.headline)}"]
    found.append(bullets(f"{escaped(label)}: {escaped(text)}" for label, text in document.facts))
    for block in document.blocks:
        if isinstance(block, Grid):
            found += [f"**{escaped(block.title)}**", text_table(block.heads, block.rows, look, right=block.right)]
        else:
            found += titled_list(block.title, map(escaped, block.lines))
    return found + [f"_{escaped(note)}_" for note in document.notes]
