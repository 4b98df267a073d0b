"""What drivers report as a card's total memory: a table of facts read off public start-up logs, one interval a card.

A total moves by up to 0.2 GiB with the driver, by more with ECC or under Windows; the interval spans what was seen.
"""

from __future__ import annotations

import functools

from parsers.tuples import NamedTuple
from reconstruct.interval import Interval


class UnknownCard(ValueError):
    """No card of this name is in the table; the message names the nearest."""


class Card(NamedTuple):
    """One card."""

    name: str
    aliases: tuple[str, ...]
    total_memory: Interval
    """Bytes, as torch.cuda.mem_get_info's second value."""
    integrated: bool
    """Whether its memory is the host's."""


@functools.cache
def cards() -> tuple[Card, ...]:
    """Give every card of the table."""
    import json
    from pathlib import Path

    rows = json.loads(Path(__file__).with_name("cards.json").read_text(encoding="utf-8"))
    return tuple(Card(r["name"], tuple(r["aliases"]), Interval(r["low"], r["high"]), r["integrated"]) for r in rows)


def _key(name: str) -> str:
    return "".join(c for c in name.casefold() if c.isalnum()).removeprefix("nvidia").removeprefix("amd")


def find(name: str) -> Card:
    """Give the card of this name or alias, letter case and punctuation aside; never a merely similar one.

    Raises UnknownCard.
    """
    key = _key(name)
    for card in cards():
        if key in {_key(alias) for alias in (card.name, *card.aliases)}:
            return card
    from difflib import get_close_matches

    names = {_key(alias): alias for card in cards() for alias in card.aliases}
    near = [names[k] for k in get_close_matches(key, names, n=3)] or [c.aliases[0] for c in cards()[:6]]
    raise UnknownCard(f"no such card in the table; try {', '.join(near)}, or --total-memory")
