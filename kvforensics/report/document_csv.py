"""The figures of documents as CSV."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvforensics.report.markup_csv import cell, end, written
from kvforensics.report.wording import ascii_only

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kvforensics.report.document import Document, Figure
    from kvforensics.report.look import Look

COLUMNS = ("source", "side", "rank", "part", "quantity", "low", "high", "unit", "origin")
"""As of a document's figure; an open end is an empty cell."""


def render(documents: Sequence[Document], look: Look) -> str:
    """Give one row for each figure below their heads."""
    text = written(COLUMNS, _rows(f for d in documents for f in d.figures))
    return ascii_only(text) if look.ascii_only else text


def _rows(figures: Iterator[Figure]) -> Iterator[tuple[str, ...]]:
    for f in figures:
        words = (cell(text) for text in (f.source, f.side, f.rank, f.part, f.name))
        yield *words, end(f.interval.low), end(f.interval.high), f.unit, f.origin
