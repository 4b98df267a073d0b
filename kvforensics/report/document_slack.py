"""Documents as Slack mrkdwn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvforensics.report.document import Grid
from kvforensics.report.document_table import grid_text
from kvforensics.report.markup_slack import MOODS, WIDTH, block, bold, escaped, titled_list, whole_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvforensics.report.document import Document
    from kvforensics.report.look import Look


def render(documents: Sequence[Document], look: Look) -> str:
    """Give documents as mrkdwn."""
    shown = look._replace(width=look.width or WIDTH)
    return whole_text((_lines(d, shown) for d in documents), look)


def _lines(document: Document, look: Look) -> list[str]:
    found = [f"{MOODS[document.mood]}{bold(document.headline)}"]
    found += [f"• {escaped(label)}: {escaped(text)}" for label, text in document.facts]
    for part in document.blocks:
        if isinstance(part, Grid):
            found += [bold(part.title), *block(grid_text(part, look))]
        else:
            found += titled_list(part.title, part.lines)
    return found + [escaped(note) for note in document.notes]
