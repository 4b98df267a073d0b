"""Lines that the width of a terminal cut, put together again before anything reads them."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from parsers.candidates import PhysicalLine
    from parsers.record import Record

NARROWEST, WIDEST = 20, 500
"""Columns of terminals thought of."""

SIGNS = 3
"""Lines as long as the longest, each going on in the next, before a width is believed in."""

MAX_CUTS = 400
"""Physical lines that one line may be cut into."""


class Line(NamedTuple):
    """One line as it was printed, `cuts` being where its second and further physical lines begin in `text`."""

    number: int
    text: str
    cuts: tuple[int, ...] = ()

    def placed(self, record: Record, at: int) -> tuple[Record, int]:
        """Give a record of this line its own physical lines; searched for from `at` on, since records do not overlap.

        What was undone on the way (colours, quoting) may hide it: then it stands on all of them.
        """
        found = self.text.find(record.text[:NARROWEST], at)
        if found < 0:
            return record._replace(last_line=self.number + len(self.cuts)), at
        end = found + max(0, len(record.text) - 1)
        first, last = (self.number + bisect_right(self.cuts, place) for place in (found, end))
        return record._replace(line=first, last_line=last), end


def may_be_cut(lengths: Sequence[int]) -> bool:
    """Whether lines of these lengths may have been cut by a terminal: several are as long as the longest."""
    width = max(lengths, default=0)
    return NARROWEST <= width <= WIDEST and lengths.count(width) >= SIGNS


def width_of(texts: Sequence[str], begins_anew: Callable[[str], bool]) -> int:
    """Give the columns that a terminal cut these lines at, 0 where nothing says that one did.

    A cut line is as long as the longest, and goes on in a line that does not begin as a line of its own.
    """
    lengths = [len(text) for text in texts]
    if not may_be_cut(lengths):
        return 0
    width = max(lengths)
    full = [i for i in range(len(texts) - 1) if lengths[i] == width]
    going_on = sum(_rest(texts[i], texts[i + 1], begins_anew) is not None for i in full)
    return width if going_on >= max(SIGNS, (len(full) + 1) // 2) else 0


def unbroken(lines: Sequence[PhysicalLine], begins_anew: Callable[[str], bool]) -> Iterator[Line]:
    """Give the lines as they were before a terminal cut them."""
    texts = [line.text.rstrip("\r") for line in lines]
    width = width_of(texts, begins_anew)
    i = 0
    while i < len(lines):
        number, text = lines[i].number, texts[i]
        cuts: list[int] = []
        while width - 1 <= len(texts[i]) <= width and i + 1 < len(lines) and len(cuts) < MAX_CUTS:
            rest = _rest(text, texts[i + 1], begins_anew)
            if rest is None:
                break
            text += " " * (width - len(texts[i]))  # a blank at the edge is lost in a copy
            cuts.append(len(text))
            text += rest
            i += 1
        yield Line(number, text, tuple(cuts))
        i += 1


def _rest(text: str, following: str, begins_anew: Callable[[str], bool]) -> str | None:
    """Give what a line adds to the one above, less the marks of a quotation or an indentation that both carry."""
    lead = text[: len(text) - len(text.lstrip("> \t"))]
    if len(lead) == 1 and lead != ">":
        lead = ""  # one blank may be where the terminal cut
    rest = following.removeprefix(lead)
    return None if len(rest) + len(lead) > len(following) or begins_anew(rest) else rest
