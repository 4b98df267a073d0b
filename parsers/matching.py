"""From records to statements: which rule reads which line, across breaks that a terminal's width made."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

from parsers.marks import ERRORS
from parsers.rule import Rule, Statement
from parsers.rules import RULES
from parsers.template import Printed, read, segments
from parsers.tuples import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parsers.record import Record

ERROR = Rule(
    "error",
    "{error_class:word}: {message:rest}",
    ("0.2.7", "0.33.0"),
    "ValueError: the tokenizer cannot be loaded",
)
"""The last line of any traceback; it stands apart from RULES because its first words are not fixed."""

_ERROR_LINE = (
    r"(?P<error_class>(?:[A-Za-z_]\w*\.)*(?:[A-Z]\w*(?:Error|Exception)|OutOfResources))(?:: (?P<message>.*))?$"
)

MAX_ERROR = 4096
"""Characters of an error's line that are read."""

MAX_JOINED = 40
"""Physical lines that one sentence may be broken into: the usage line has 500 characters, a terminal 20 columns."""


class _Match(NamedTuple):
    rule: Rule
    fields: tuple[Printed, ...]
    complete: bool
    end: int
    could_grow: bool = False
    """Whether a longer wording begins with the whole text."""


@functools.cache
def _by_first_letters() -> dict[str, tuple[Rule, ...]]:
    table: dict[str, list[Rule]] = {}
    for rule in RULES:
        table.setdefault(rule.head[:4], []).append(rule)
    return {letters: tuple(rules) for letters, rules in table.items()}


def _starts(text: str) -> list[int]:
    """Give the places where a sentence may begin: the start, and behind each exception's class."""
    places = [len(text) - len(text.lstrip())]
    for word in ERRORS:
        at = text.find(word)
        while at >= 0:
            places.append(at + len(word))
            at = text.find(word, at + 1)
    return places


@functools.lru_cache(maxsize=256)
def _begun(letters: str) -> list[Rule]:
    return [r for r in RULES if r.head.startswith(letters)] if letters.strip() else []


def _candidates(text: str, start: int) -> Sequence[Rule]:
    letters = text[start : start + 4]
    if len(letters) < 4:
        return _begun(letters)
    rules = _by_first_letters().get(letters, ())
    return [r for r in rules if text.startswith(r.head[: len(text) - start], start)]


def _best(text: str) -> _Match | None:
    """Give the rule that takes most of `text`, else one that could go on if the text did."""
    partial: _Match | None = None
    best: _Match | None = None
    for start in _starts(text):
        for rule in _candidates(text, start):
            reading = read(rule.template, text, start)
            if reading is None:
                continue
            if not reading.complete:
                partial = partial or _Match(rule, (), complete=False, end=len(text))
            elif best is None or reading.end > best.end:
                best = _Match(rule, reading.fields, complete=True, end=reading.end)
    if best is None or partial is None:
        return best or partial
    return best._replace(could_grow=True)


@functools.cache
def _error_pattern() -> re.Pattern[str]:
    return re.compile(_ERROR_LINE)


def _error(record: Record) -> Statement | None:
    """Read the line that names an exception, where no rule knows its message."""
    if not any(word in record.text for word in ("Error", "Exception", "OutOfResources")):
        return None
    match = _error_pattern().match(record.text[:MAX_ERROR].strip())
    if not match:
        return None
    fields = tuple(Printed(n, match[n] or "", "text") for n in ("error_class", "message"))
    return Statement("error", ERROR, record, fields, tuple(record.lines))


def _swallows_rest(rule: Rule) -> bool:
    return segments(rule.template)[-1].form == "rest"


def _continues(record: Record, previous: Record) -> bool:
    """Whether a record may be the rest of the one above: no engine's prefix, and nobody else's name."""
    teller, before = record.speaker, previous.speaker
    if teller != before and (
        teller.name is not None or teller.pid is not None or teller.host not in {None, before.host}
    ):
        return False
    return not record.prefixed and record.line <= previous.lines[-1] + 1 and bool(record.text)


def _read(records: Sequence[Record], i: int) -> tuple[Statement | None, int]:
    """Read the sentence that begins at record `i`; give it and the number of records it took."""
    text = records[i].text
    match = _best(text)
    taken = 1
    best: tuple[_Match, int] | None = None
    while match is not None:
        if match.complete:
            best = match, taken
        at = i + taken
        if at >= len(records) or taken >= MAX_JOINED or not _continues(records[at], records[at - 1]):
            break
        if match.complete and not _may_go_on(match, text, records[at].text):
            break
        grown = _longer(text, records[at].text, match)
        if grown is None:
            break
        text, match = grown
        taken += 1
    if best is None:
        return _error(records[i]), 1
    match, taken = best
    lines = tuple(dict.fromkeys(number for r in records[i : i + taken] for number in r.lines))
    return Statement(match.rule.kind, match.rule, records[i], match.fields, lines), taken


def _may_go_on(match: _Match, text: str, following: str) -> bool:
    """Whether a complete sentence may still lack its tail: a list that runs on, or the last digits of a number."""
    if _swallows_rest(match.rule):
        return _is_open(text) and _best(following) is None
    told = text.rstrip(".,")
    in_number = match.end >= len(told) and told[-1:].isdigit() and following.lstrip(".,")[:1].isdigit()
    return match.could_grow or (in_number and _is_number(following))


def _is_number(text: str) -> bool:
    """Whether digits stand alone on their line: what begins with digits and goes on is something else's."""
    return text.strip(".,) \t").replace(".", "").replace(",", "").isdigit()


def _is_open(text: str) -> bool:
    """Whether a bracket or a list is still open: the sentence was broken, not finished."""
    return text.rstrip()[-1:] == "," or any(text.count(a) > text.count(b) for a, b in ("()", "{}", "[]"))


def _longer(text: str, following: str, match: _Match) -> tuple[str, _Match] | None:
    """Join the next line on, broken inside a word or at a space; None where neither reads as the sentence."""
    whole = match.complete and not _swallows_rest(match.rule)
    partial = None
    for glue in ("", " "):
        joined = text + glue + (following.lstrip() if glue else following)
        grown = _best(joined)
        if grown is None or (whole and grown.complete and (grown.end <= match.end or (glue and not match.could_grow))):
            continue
        if whole and grown.complete and grown.rule is match.rule and not _is_number(following):
            continue  # only another wording has more to say than this one, which is complete
        if grown.complete and not (whole and grown.could_grow):
            return joined, grown
        partial = partial or (joined, grown)
    return partial


def statements(records: Sequence[Record]) -> tuple[list[Statement], list[Record]]:
    """Read every sentence the rules know off consecutive records.

    Gives the statements in order and the records that no rule took.
    """
    found: list[Statement] = []
    unread: list[Record] = []
    i = 0
    while i < len(records):
        statement, taken = _read(records, i)
        if statement is None:
            unread.append(records[i])
        else:
            found.append(statement)
        i += taken
    return found, unread
