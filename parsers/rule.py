"""A rule: one sentence that vLLM prints, with typed holes where the figures stand.

The sentence is data. `Available KV cache memory: {available_kv_cache_memory:gib} GiB` says which words are fixed, which
quantity each hole states and how its digits were printed. What the digits imply is decided elsewhere (reconstruct.rounding).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.template import segments
from parsers.tuples import NamedTuple

if TYPE_CHECKING:
    from parsers.record import Record
    from parsers.template import Printed

MARK_LENGTH = 13
"""A literal this long is rare enough in request lines to be searched for on its own."""


class Rule(NamedTuple):
    """One wording of one kind of line."""

    kind: str
    """What the line is about; several wordings share a kind."""
    template: str
    releases: tuple[str, str]
    """First and last of the examined releases that print this wording."""
    sample: str
    """A message that this rule, and no other, takes whole."""
    marks: tuple[str, ...] = ()
    """Further literals to search for, where the template's own do not stand out."""

    @property
    def head(self) -> str:
        """The fixed words before the first hole; a message can only match where they stand."""
        return self.template.partition("{")[0]


class Statement(NamedTuple):
    """What one rule read off one record."""

    kind: str
    rule: Rule
    record: Record
    fields: tuple[Printed, ...]
    lines: tuple[int, ...]
    """Every physical line the sentence stands on."""

    @property
    def line(self) -> int:
        """The first physical line."""
        return self.lines[0]

    def text(self, name: str) -> str | None:
        """Give the text of a hole, None where this wording has no such hole or left it empty."""
        return next((p.text for p in self.fields if p.name == name), None)


def literals(rule: Rule) -> tuple[str, ...]:
    """Give the fixed strings to search a log for, so that a line broken anywhere still shows one of them.

    Each long literal of the template is cut in two at a word's end: a line break can spoil only one of the halves.
    """
    found = list(rule.marks)
    for segment in segments(rule.template):
        literal = segment.literal
        middle = literal.find(" ", len(literal) // 2)
        halves = (literal[:middle], literal[middle:])
        if middle > 0 and all(len(half) >= MARK_LENGTH for half in halves):
            found += halves
        elif len(literal) >= MARK_LENGTH:
            found.append(literal)
    return tuple(dict.fromkeys(found))
