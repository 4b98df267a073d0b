"""Sentences with typed holes, matched against text: in one pass, in linear time, and told apart from a mere beginning.

`Available KV cache memory: {available_kv_cache_memory:gib} GiB` is three segments: fixed words, a hole, fixed words. A matcher of
our own because it must tell a text that ends in the middle of a sentence (a terminal broke the line) from one that says
something else, and because compiling a hundred regular expressions would take longer than reading the log.
"""

from __future__ import annotations

import functools
import re

from parsers.tuples import NamedTuple

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
}
"""What each form of figure looks like in print."""

FREE = ("text", "word", "rest")
"""Forms without a shape: up to the next fixed words, the same without spaces, or all that is left."""

MAX_TRIES = 16
"""Places where the fixed words behind a free hole are looked for; hostile text must not cost more."""

LONGEST_FIGURE = 64

_BEGINNING = r"-?[\d,]*\.?\d*(?:e-?\d*)?(?: ?[KMGTbi]?[a-zA-Z]*)?$"
"""What a figure may look like where the text ends inside it."""


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


class Segment(NamedTuple):
    """Fixed words and the hole behind them; the last segment of a sentence may have no hole."""

    literal: str
    name: str
    form: str


class Reading(NamedTuple):
    """What a sentence says, and where it ends; incomplete where the text ends before the sentence does."""

    fields: tuple[Printed, ...]
    end: int
    complete: bool


BEGUN = Reading((), 0, complete=False)
"""The text is the beginning of the sentence, and no more."""


@functools.cache
def segments(template: str) -> tuple[Segment, ...]:
    """Split a template at its holes."""
    parts = []
    rest = template
    while rest:
        literal, _, tail = rest.partition("{")
        if not tail:
            parts.append(Segment(literal, "", ""))
            break
        hole, _, rest = tail.partition("}")
        name, _, form = hole.partition(":")
        parts.append(Segment(literal, name, form))
    return tuple(parts)


@functools.cache
def _figure(form: str) -> re.Pattern[str]:
    return re.compile(FORMS[form])


@functools.cache
def _beginning() -> re.Pattern[str]:
    return re.compile(_BEGINNING)


def read(template: str, text: str, start: int = 0) -> Reading | None:
    """Match a template from `start` on; what stands behind its end does not matter.

    Gives None where the text says something else, BEGUN where it ends inside the sentence.
    """
    return _read(segments(template), 0, text, start)


def _read(parts: tuple[Segment, ...], i: int, text: str, at: int) -> Reading | None:
    literal, name, form = parts[i]
    if not text.startswith(literal, at):
        return BEGUN if len(text) - at < len(literal) and literal.startswith(text[at:]) else None
    at += len(literal)
    if not name:
        return Reading((), at, complete=True)
    if form in FREE:
        return _free(parts, i, text, at)
    match = _figure(form).match(text, at)
    reading = _then(parts, i, text, at, match.end()) if match else None
    if reading is None and len(text) - at < LONGEST_FIGURE and _beginning().match(text, at):
        return BEGUN  # the text ends inside the figure: "41." may yet become "41.73"
    return reading


def _then(parts: tuple[Segment, ...], i: int, text: str, at: int, end: int) -> Reading | None:
    """Take a hole's text for said, and read on behind it."""
    printed = Printed(parts[i].name, text[at:end], parts[i].form)
    if i + 1 == len(parts):
        return Reading((printed,), end, complete=True)
    rest = _read(parts, i + 1, text, end)
    return rest._replace(fields=(printed, *rest.fields)) if rest and rest.complete else rest


def _free(parts: tuple[Segment, ...], i: int, text: str, at: int) -> Reading | None:
    form = parts[i].form
    limit = len(text) if form != "word" else next((k for k in range(at, len(text)) if text[k].isspace()), len(text))
    if form == "rest" or i + 1 == len(parts):
        return _then(parts, i, text, at, max(at, len(text[:limit].rstrip())))
    words = parts[i + 1].literal
    place = text.find(words, at + (form == "word"))
    for _ in range(MAX_TRIES):
        if not 0 <= place <= limit:
            break
        reading = _then(parts, i, text, at, place)
        if reading:
            return reading
        place = text.find(words, place + 1)
    ends_inside = any(words.startswith(text[k:]) for k in range(max(at + 1, len(text) - len(words)), limit + 1))
    return BEGUN if limit == len(text) or ends_inside else None
