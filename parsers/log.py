"""A whole log, read once: its start-ups, and the lines that look like memory but that no rule took."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.candidates import clusters
from parsers.marks import FOREIGN, MEMORY, fading, fragments, words
from parsers.matching import statements
from parsers.prefix import records
from parsers.source import open_source
from parsers.splitting import split
from parsers.tuples import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parsers.record import Record
    from parsers.rule import Statement
    from parsers.source import Input
    from parsers.startups import StartUpLog

GENERIC_KINDS = frozenset(
    (
        "arguments", "constructing", "error", "out_of_memory", "out_of_memory_plain", "server_started", "serving",
        "shutdown", "traceback",
    )
)  # fmt: skip
"""Sentences that other programs print too: alone they are no start-up of vLLM."""

FIRST_CHUNKS = 4
"""Chunks at a log's start that are looked through for another engine's words."""

MAX_UNREAD = 20
"""Unread lines kept: enough to show a drift, too few to fill a report."""


class ParsedLog(NamedTuple):
    """What was read of one input."""

    name: str
    lines: int
    startups: tuple[StartUpLog, ...]
    unread: tuple[Record, ...]
    damage: str | None
    """Why the input could not be read to its end, None where it was."""
    foreign: str | None
    """Another engine whose words stand in the log."""


def _looks_like_memory(record: Record) -> bool:
    text = record.text
    return record.prefixed and any(w in text for w in MEMORY) and any(c.isdigit() for c in text)


def _foreign(start: bytes) -> str | None:
    return next((name for name, theirs in FOREIGN if any(word.encode() in start for word in theirs)), None)


class _Start:
    """Passes chunks on and remembers which other engine's words the first of them hold."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self.foreign: str | None = None

    def __iter__(self) -> Iterator[bytes]:
        for number, chunk in enumerate(self._chunks):
            if number < FIRST_CHUNKS and self.foreign is None:
                self.foreign = _foreign(chunk)
            yield chunk


def read_log(source: Input) -> ParsedLog:
    """Read a log of any size in bounded memory.

    Raises UnreadableInput where it cannot be opened, BinaryInput where it is no text.
    """
    opened = open_source(source)
    found: list[Statement] = []
    unread: list[Record] = []
    start = _Start(opened.chunks())
    passing = clusters(start, fragments(), fading=fading(), words=words())
    for cluster in passing:
        read, left = statements(records(cluster.lines))
        found += read
        unread += [r for r in left if _looks_like_memory(r)][: MAX_UNREAD - len(unread)]
    startups = split(found, passing.lines) if any(s.kind not in GENERIC_KINDS for s in found) else ()
    return ParsedLog(opened.name, passing.lines, startups, tuple(unread), opened.damage, start.foreign)
