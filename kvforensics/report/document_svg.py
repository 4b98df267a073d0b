"""Documents as pictures: the table that a terminal would show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvforensics.report import document_table
from kvforensics.report.markup_svg import WIDTH, drawn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvforensics.report.document import Document
    from kvforensics.report.look import Look


def render(documents: Sequence[Document], look: Look) -> str:
    """Give one picture of all documents."""
    shown = look._replace(width=look.width or WIDTH)
    return drawn(document_table.render(documents, shown, colour=True), shown)
