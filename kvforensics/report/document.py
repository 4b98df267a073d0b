"""A report as titled tables and lists, before any renderer; what all commands but `explain` answer with."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kvforensics.report.bars import Bar
    from kvforensics.report.brief_lines import BriefLine
    from kvforensics.report.look import Look
    from reconstruct.interval import Interval
    from reconstruct.ledger import Account


LONGEST_NAME = 24


class Bars(NamedTuple):
    """What is drawn beside a row where a form can draw: the same figure on each side, on one scale.

    kind: as of a waterfall's step, which gives the colour.
    """

    kind: str
    sides: tuple[Bar | None, ...]


class Grid(NamedTuple):
    """One table: its title, heads, rows of text, and the heads of columns that are flush right.

    bars: one for each row, or none at all; sides: what each bar of a row is, in words.
    """

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[str, ...] = ()
    bars: tuple[Bars | None, ...] = ()
    sides: tuple[str, ...] = ()

    @property
    def named(self) -> bool:
        """Whether the first column holds names, short enough for one line each, and not sentences."""
        return all(len(row[0]) <= LONGEST_NAME for row in self.rows)

    @property
    def flags(self) -> tuple[int, ...]:
        """The columns that hold options of a command line."""
        return tuple(i for i, head in enumerate(self.heads) if head == "to paste")

    def is_remark(self, place: int) -> bool:
        """Whether a column only explains the one before it: a second one without a head, and the reasons."""
        return (place == 1 and not self.heads[1]) or self.heads[place] == "why"


class Listing(NamedTuple):
    """A titled list."""

    title: str
    lines: tuple[str, ...]


class Figure(NamedTuple):
    """One figure with its ends exact, for a spreadsheet.

    source: the log or model. side: which of several states of it, such as `today` or `log 2`. part: the term that a
    share of a change is owed to. Each is empty where it tells nothing.
    """

    source: str
    side: str
    rank: str
    part: str
    name: str
    interval: Interval
    unit: str
    origin: str


class Document(NamedTuple):
    """A whole report.

    mood: `good`, `bad`, `open` or `plain`, for the headline's colour. brief: its lines for a ticket's first comment;
    empty for what has no short form.
    """

    headline: str
    mood: str
    facts: tuple[tuple[str, str], ...]
    blocks: tuple[Grid | Listing, ...]
    notes: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    brief: tuple[BriefLine, ...] = ()


def filled(blocks: Sequence[Grid | Listing]) -> tuple[Grid | Listing, ...]:
    """Give the blocks that hold anything."""
    return tuple(b for b in blocks if (b.lines if isinstance(b, Listing) else b.rows))


def figures_of(account: Account, source: str, side: str = "", rank: str = "") -> Iterator[Figure]:
    """Give every figure of an account."""
    for q in account.quantities.values():
        yield Figure(source, side, rank, "", q.name, q.interval, q.unit, q.origin)


def rendered(documents: Sequence[Document], form: str, look: Look, *, colour: bool) -> str:
    """Give documents in a form for people or as CSV, the table ANSI-coloured if `colour`."""
    if form == "table":
        from kvforensics.report import document_table

        return document_table.render(documents, look, colour=colour)
    module = import_module(f"kvforensics.report.document_{form}")  # only what the form needs: the command is quick
    return str(module.render(documents, look))
