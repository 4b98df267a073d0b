"""Every number that is measured rather than derived, with where it holds and how far it spreads."""

from __future__ import annotations

import functools
import json
from pathlib import Path

from parsers.tuples import NamedTuple
from reconstruct.releases import index

_HERE = Path(__file__).with_name("constants.json")


class Constant(NamedTuple):
    """One measured number.

    `low` and `high` span what was seen, or what is allowed for where `source` says so. `first` and `last` are releases,
    `hardware` the card classes it was measured on ("any" where the card does not matter). `logs` counts the start-ups
    behind it; 0 means that it was read off source code.
    """

    name: str
    value: float
    low: float
    high: float
    unit: str
    first: str
    last: str
    hardware: tuple[str, ...]
    source: str
    spread: str
    logs: int

    def holds(self, place: int, card: str) -> bool:
        """Whether it was measured on this release and this class of card."""
        return index(self.first) <= place <= index(self.last) and ("any" in self.hardware or card in self.hardware)


class UnknownConstant(LookupError):
    """No measurement covers this release and card."""


@functools.cache
def constants() -> tuple[Constant, ...]:
    """Give every constant of the data file."""
    rows = json.loads(_HERE.read_text(encoding="utf-8"))
    return tuple(
        Constant(
            row["name"], row["value"], row["low"], row["high"], row["unit"], row["first"], row["last"],
            tuple(row["hardware"]), row["source"], row["spread"], row["logs"],
        )
        for row in rows
    )  # fmt: skip


def constant(name: str, place: int | None = None, card: str = "any") -> Constant:
    """Give the first constant of this name that was measured on the release at `place` and on `card`.

    Without a release the first row of the name. Raises UnknownConstant.
    """
    for row in constants():
        if row.name == name and (place is None or row.holds(place, card)):
            return row
    raise UnknownConstant(f"no {name} is known for card class {card} at this release")
