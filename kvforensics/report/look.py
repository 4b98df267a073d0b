"""How a report for people is to look."""

from __future__ import annotations

import shutil

from parsers.tuples import NamedTuple

WIDEST = 120
"""Columns filled unasked; beyond, the eye loses the line."""


class Look(NamedTuple):
    """Choices that change a report's looks, never its figures."""

    width: int | None = None
    """Columns; None for the terminal's, 80 where there is none."""
    ascii_only: bool = False
    all_ranks: bool = False
    """A waterfall for each rank instead of the binding one."""
    startup: str | int = "last"
    """`last`, `all`, or a start-up's number from 1."""
    redact: bool = True
    """Mask people, machines and keys in what is quoted."""

    @property
    def columns(self) -> int:
        """Columns to fill: as asked, else the terminal's up to WIDEST."""
        return self.width or min(shutil.get_terminal_size((80, 24)).columns, WIDEST)
