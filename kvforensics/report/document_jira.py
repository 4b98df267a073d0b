"""Documents as Jira wiki markup."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvforensics.report.document import Grid
from kvforensics.report.markup_jira import bold, bullets, escaped, text_table, titled_list, whole_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvforensics.report.document import Document
    from kvforensics.report.look import Look


def render(documents: Sequence[Document], look: Look) -> str:
    """Give documents as wiki markup."""
    return whole_text(map(_blocks, documents), look)


def _blocks(document: Document) -> list[str]:
    found = [f"h3. {escaped(document.headline)}"]
    found.append(bullets(f"{escaped(label)}: {escaped(text)}" for label, text in document.facts))
    for block in document.blocks:
        if isinstance(block, Grid):
            found += [bold(block.title), text_table(block.heads, block.rows)]
        else:
            found += titled_list(block.title, map(escaped, block.lines))
    return found + [escaped(note) for note in document.notes]
