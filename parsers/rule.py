"""A rule: one sentence that vLLM prints, with typed holes where the figures stand.

The sentence is data. `Available KV cache memory: {available_kv_cache_memory:gib} GiB` says which words are fixed, which
quantity each hole states and how its digits were printed. What the digits imply is decided elsewhere (reconstruct.rounding).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from parsers.record import Record

MOST_DIGITS = 20
"""Digits of the largest 64-bit count. No engine prints a longer run; hostile text must not become a number of megabytes."""

_WHOLE = rf"\d{{1,{MOST_DIGITS}}}"
_FRACTION = r"(?:\.\d{1,25})?"
_EXPONENT = r"(?:e-?[0-3]?\d)?"
_END = r"(?!\.?\d)"

FORMS = {
    "gib": f"-?{_WHOLE}{_FRACTION}{_EXPONENT}{_END}",  # GiB, rounded to two decimals unless more are printed
    "gib4": rf"-?{_WHOLE}\.\d{{4}}",  # GiB by %.4f, whatever the label says
    "mib": rf"-?{_WHOLE}\.\d{{2}}",  # MiB by %.2f
    "size": rf"-?{_WHOLE}{_FRACTION} ?(?:bytes|[KMGT]i?B)",  # torch's own "1.50 GiB", "512.00 MiB"
    "bytes": rf"-?{_WHOLE}(?!\d)",
    "count": rf"-?{_WHOLE}(?:,\d{{3}}){{0,6}}(?!\d)",
    "ratio": f"{_WHOLE}{_FRACTION}{_EXPONENT}{_END}",  # a float as Python prints it, all digits
    "ratio2": rf"{_WHOLE}\.\d{{2}}",  # by %.2f
    "ratio4": rf"-?{_WHOLE}\.\d{{4}}",  # by %.4f
    "ratio6": rf"{_WHOLE}\.\d{{6}}",  # by %f
    "times": rf"{_WHOLE}\.\d{{2}}",  # a multiple by %.2f
    "number": f"-?{_WHOLE}{_FRACTION}{_END}",  # a figure that stays text: seconds, percent
    "text": r".*?",
    "word": r"\S+?",
    "rest": r".*",
}
"""What each form of hole looks like in print. `rest` swallows the remainder of the message."""

NUMERIC = frozenset(FORMS) - {"text", "word", "rest"}

MARK_LENGTH = 13
"""A literal this long is rare enough in request lines to be searched for on its own."""

MATCH_SECONDS = 0.5
"""No single match may take longer; the templates are linear, so only hostile text comes near."""


def whole_number(text: str | None) -> int | None:
    """Read a printed count, with commas or without; None where there is none or no engine would print it."""
    digits = (text or "").replace(",", "").strip()
    if len(digits) > MOST_DIGITS or not digits.removeprefix("-").isdecimal():
        return None
    return int(digits)


class Printed(NamedTuple):
    """One figure or word as it stands on the line."""

    name: str
    text: str
    form: str


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


def holes(template: str) -> list[tuple[str, str, str]]:
    """Split a template into (literal, hole name, form) triples; the last may have no hole (`""`, `""`)."""
    parts = []
    rest = template
    while rest:
        literal, _, tail = rest.partition("{")
        if not tail:
            parts.append((literal, "", ""))
            break
        hole, _, rest = tail.partition("}")
        name, _, form = hole.partition(":")
        parts.append((literal, name, form or "text"))
    return parts


@functools.cache
def pattern(template: str) -> Any:  # noqa: ANN401 - package regex has no types
    """Compile a template; done on the first line that starts like it, since most logs need few."""
    import regex

    source = []
    for literal, name, form in holes(template):
        source.append(regex.escape(literal, literal_spaces=True))
        if name:
            source.append(f"(?P<{name}>{FORMS[form]})")
    return regex.compile("".join(source))


@functools.cache
def forms(template: str) -> dict[str, str]:
    """Map each hole of a template to its form."""
    return {name: form for _, name, form in holes(template) if name}


def literals(rule: Rule) -> tuple[str, ...]:
    """Give the fixed strings to search a log for, so that a line broken anywhere still shows one of them.

    Each long literal of the template is cut in two at a word's end: a line break can spoil only one of the halves.
    """
    found = list(rule.marks)
    for literal, _, _ in holes(rule.template):
        if len(literal) < MARK_LENGTH:
            continue
        middle = literal.find(" ", len(literal) // 2)
        halves = (literal[:middle], literal[middle:]) if 0 < middle < len(literal) - 1 else (literal,)
        found.extend(half for half in halves if len(half) >= MARK_LENGTH) if all(
            len(half) >= MARK_LENGTH for half in halves
        ) else found.append(literal)
    return tuple(dict.fromkeys(found))
