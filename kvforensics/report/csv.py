"""The figures as CSV: one row for each quantity, for a spreadsheet or a script."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvforensics.report.markup_csv import cell, end, written
from kvforensics.report.page import chosen
from kvforensics.report.redaction import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvforensics.explanation import Report
    from kvforensics.report.look import Look
    from reconstruct.ledger import Account

COLUMNS = ("log", "startup", "dp", "rank", "quantity", "low", "high", "unit", "origin", "lines")
"""An open end is an empty cell, and so is the rank of an engine's own figure; lines stand apart by blanks."""


def render(report: Report, look: Look) -> str:
    """Give the rows below their heads. Raises UsageFault where `look` asks for a start-up that is not there."""
    return written(COLUMNS, _rows(report, look))


def _rows(report: Report, look: Look) -> Iterator[tuple[object, ...]]:
    name = cell(quoted(report.name, mask=look.redact))
    for place in chosen(report, look):
        for engine in report.startups[place].engines:
            for rank in engine.ranks:
                head = (name, place + 1, engine.dp, cell(quoted(rank.name, mask=look.redact)))
                yield from ((*head, *row) for row in _figures(rank.account))
            yield from ((name, place + 1, engine.dp, "", *row) for row in _figures(engine.capacity))


def _figures(account: Account) -> Iterator[tuple[str, ...]]:
    for q in account.quantities.values():
        lines = " ".join(str(line) for line in q.lines)
        yield q.name, end(q.interval.low), end(q.interval.high), q.unit, q.origin, lines
