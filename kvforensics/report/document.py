"""A report as titled tables and lists, before any renderer; what all commands but `explain` and `plan` answer with."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvforensics.report.look import Look

FORMATS = ("table", "markdown")
"""Forms for people; what is for machines has a renderer of its own for each command."""


class Grid(NamedTuple):
    """One table: its title, heads, rows of text, and the heads of columns that are flush right."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[str, ...] = ()


class Listing(NamedTuple):
    """A titled list."""

    title: str
    lines: tuple[str, ...]


class Document(NamedTuple):
    """A whole report. mood: `good`, `bad` or `open`, for the headline's colour."""

    headline: str
    mood: str
    facts: tuple[tuple[str, str], ...]
    blocks: tuple[Grid | Listing, ...]
    notes: tuple[str, ...] = ()


def rendered(documents: Sequence[Document], form: str, look: Look, *, colour: bool) -> str:
    """Give documents in one of FORMATS, the table ANSI-coloured if `colour`."""
    if form == "markdown":
        from kvforensics.report import document_markdown

        return document_markdown.render(documents, look)
    from kvforensics.report import document_table

    return document_table.render(documents, look, colour=colour)
