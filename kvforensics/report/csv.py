"""The figures as CSV: one row for each quantity, ends exact, for a spreadsheet or a script."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from kvforensics.report.page import chosen
from kvforensics.report.redaction import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kvforensics.explanation import Report
    from kvforensics.report.look import Look
    from reconstruct.ledger import Quantity

COLUMNS = ("log", "startup", "dp", "rank", "quantity", "low", "high", "unit", "origin", "lines")
"""An open end is an empty cell, and so is the rank of an engine's own figure; lines stand apart by blanks."""
FORMULA = ("=", "+", "-", "@", "\t")
"""What a spreadsheet would take for a formula."""


def render(report: Report, look: Look) -> str:
    """Give the rows below their heads. Raises UsageFault where `look` asks for a start-up that is not there."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    name = _cell(report.name, look)
    for place in chosen(report, look):
        for engine in report.startups[place].engines:
            for rank in engine.ranks:
                head = (name, place + 1, engine.dp, _cell(rank.name, look))
                writer.writerows((*head, *row) for row in _rows(rank.account.quantities.values()))
            writer.writerows(
                (name, place + 1, engine.dp, "", *row) for row in _rows(engine.capacity.quantities.values())
            )
    return text.getvalue()


def _rows(quantities: Iterable[Quantity]) -> Iterator[tuple[object, ...]]:
    for q in quantities:
        lines = " ".join(str(line) for line in q.lines)
        yield q.name, _end(q.interval.low), _end(q.interval.high), q.unit, q.origin, lines


def _end(end: float | None) -> str:
    return "" if end is None else str(end)


def _cell(text: str, look: Look) -> str:
    """Give foreign text as a cell that no spreadsheet computes."""
    shown = quoted(text, mask=look.redact)
    return f"'{shown}" if shown.startswith(FORMULA) else shown
