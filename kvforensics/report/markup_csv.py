"""CSV as every report writes it: ends exact, and nothing that a spreadsheet would compute."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

FORMULA = tuple("=+-@|\t＝＋－＠")
"""What a spreadsheet would take for a formula, in the wide letters of East Asia too."""


def written(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Give rows below their heads."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(heads)
    writer.writerows(rows)
    return text.getvalue()


def end(value: float | None) -> str:
    """Give an interval's end; an open one is an empty cell."""
    return "" if value is None else str(value)


def cell(text: str) -> str:
    """Give a text as a cell that no spreadsheet computes."""
    return f"'{text}" if text.startswith(FORMULA) else text
