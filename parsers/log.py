"""A whole log, read once: its start-ups, and the lines that look like memory but that no rule took."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from parsers.candidates import clusters
from parsers.matching import statements
from parsers.prefix import records
from parsers.rule import literals
from parsers.rules import RULES
from parsers.source import open_source
from parsers.startups import split

if TYPE_CHECKING:
    from parsers.record import Record
    from parsers.rule import Statement
    from parsers.source import Input
    from parsers.startups import StartUpLog

MEMORY_MARKS = ("GiB", " MiB", "KV cache ", "out of memory")
"""Words of lines worth listing where no rule took them, so that new wordings show."""

ERROR_MARKS = ("Error: ", "Exception: ", "Traceback (most")

FOREIGN = (
    ("SGLang", ("sglang", "max_total_num_tokens")),
    ("TensorRT-LLM", ("TensorRT-LLM", "[TRT-LLM]")),
    ("llama.cpp", ("llama_model_load", "llama_context:", "llama_kv_cache", "ggml_")),
    ("LMDeploy", ("lmdeploy", "[TM][INFO]")),
)
"""Words that only other engines' logs hold, to name the engine when refusing."""

GENERIC_KINDS = frozenset(
    (
        "constructing", "error", "out_of_memory", "out_of_memory_plain", "server_started", "serving", "shutdown", "traceback", "arguments",
    )
)  # fmt: skip
"""Sentences that other programs print too: alone they are no start-up of vLLM."""

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


def marks() -> list[bytes]:
    """Give every literal to search for."""
    words = [word for rule in RULES for word in literals(rule)]
    foreign = [word for _, theirs in FOREIGN for word in theirs]
    return [w.encode() for w in dict.fromkeys((*words, *MEMORY_MARKS, *ERROR_MARKS, *foreign))]


def _looks_like_memory(record: Record) -> bool:
    text = record.text
    return record.prefixed and any(w in text for w in MEMORY_MARKS) and any(c.isdigit() for c in text)


def _foreign(record: Record) -> str | None:
    return next((name for name, words in FOREIGN if any(w in record.text for w in words)), None)


def read_log(source: Input) -> ParsedLog:
    """Read a log of any size in bounded memory.

    Raises UnreadableInput where it cannot be opened, BinaryInput where it is no text.
    """
    opened = open_source(source)
    found: list[Statement] = []
    unread: list[Record] = []
    foreign: str | None = None
    passing = clusters(opened.chunks(), marks())
    for cluster in passing:
        read, left = statements(records(cluster.lines))
        found += read
        for record in left:
            foreign = foreign or _foreign(record)
            if len(unread) < MAX_UNREAD and _looks_like_memory(record):
                unread.append(record)
    startups = split(found, passing.lines) if any(s.kind not in GENERIC_KINDS for s in found) else ()
    return ParsedLog(opened.name, passing.lines, startups, tuple(unread), opened.damage, foreign)
