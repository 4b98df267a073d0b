"""The words that both reports share: what a figure is called for people, and where it comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.quantities import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reconstruct.ledger import Quantity

LEGEND = {
    "printed": "L7: printed on line 7",
    "derived": "from L7: follows from it",
    "given": "given: you said so",
    "catalogue": "catalogue: by the name of card or model, from a table",
    "default": "default: the release's own",
    "config": "config: by the settings",
    "modelled": "modelled: estimated, with the model's stated error",
    "measured": "measured: by the live probe",
}
"""What each mark of origin means, in the order in which a legend lists them."""

_ASCII = str.maketrans({"±": "+-", "–": "-", "≥": ">=", "≤": "<=", "…": "...", "×": "x"})


class Source(NamedTuple):
    """Where a figure comes from."""

    origin: str
    """An origin of the ledger, or the difference that a report forms itself, `T - R`; empty for what is unknown."""
    lines: tuple[int, ...] = ()

    def text(self, room: int) -> str:
        """Give the mark of the source, with as many line numbers as `room` holds: `L29`, `from L7, 21 +3`, `default`."""
        if not self.lines:
            return self.origin
        before = "" if self.origin == "printed" else "from " if self.origin == "derived" else f"{self.origin} "
        return before + line_numbers(self.lines, room - len(before))


NOWHERE = Source("")


def source_of(quantity: Quantity | None) -> Source:
    """Give the source of a quantity; of none, nowhere."""
    return Source(quantity.origin, quantity.lines) if quantity else NOWHERE


def line_numbers(lines: tuple[int, ...], room: int) -> str:
    """Give line numbers, as many as `room` characters hold, but one at least: `L7, 21 +3`."""
    for count in range(min(len(lines), room // 3 + 1), 0, -1):
        more = f" +{len(lines) - count}" if len(lines) > count else ""
        text = "L" + ", ".join(str(line) for line in lines[:count]) + more
        if len(text) <= room or count == 1:
            return text
    return ""


def symbol(name: str) -> str:
    """Give a quantity's symbol; its name where it has none."""
    kind = BY_NAME.get(name)
    return (kind.symbol if kind else "") or name


def legend(sources: Iterable[Source]) -> tuple[str, ...]:
    """Give the meaning of every mark that occurs."""
    used = {s.origin for s in sources}
    return tuple(text for origin, text in LEGEND.items() if origin in used)


def ascii_only(text: str) -> str:
    """Spell a text with ASCII alone; what has no spelling is shown by its number."""
    return text if text.isascii() else text.translate(_ASCII).encode("ascii", "backslashreplace").decode()
