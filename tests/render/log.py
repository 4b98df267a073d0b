"""A log under construction: one clock, one prefix grammar, physical lines."""

from __future__ import annotations

import zlib
from datetime import datetime, timedelta
from itertools import groupby
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from tests.render.speakers import Cast, Process, cast, prefix

if TYPE_CHECKING:
    from tests.render.truth import Truth

EPOCH = datetime(2026, 1, 5, 8, 0, 0)  # the engine prints local time without a zone or a year


class Entry(NamedTuple):
    """What one process wrote in one go."""

    pid: int
    worker: bool
    lines: list[str]
    engine: int | None = None
    """Of several engines the one that the process belongs to."""


class Log:
    """Collects what the processes of one start-up write."""

    def __init__(self, truth: Truth) -> None:
        self.truth = truth
        self.cast: Cast = cast(truth)
        self.entries: list[Entry] = []
        self._now = EPOCH + timedelta(seconds=truth.start)

    @property
    def lines(self) -> list[str]:
        """The physical lines; with a seed, workers speak between each other's entries, and so do engines."""
        entries = self.entries
        if self.truth.interleave is not None:
            entries = engines_interleaved(interleaved(entries, self.truth.interleave), self.truth.interleave)
        return [line for entry in entries for line in entry.lines]

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self._now += timedelta(seconds=seconds)

    def info(self, process: Process, file: str, message: str) -> None:
        self.say(process, "INFO", file, message)

    def debug(self, process: Process, file: str, message: str) -> None:
        if self.truth.log_level == "DEBUG":
            self.say(process, "DEBUG", file, message)

    def say(self, process: Process, level: str, file: str, message: str) -> None:
        """One record. Each line of a message repeats the whole prefix and all but the last end in a carriage return."""
        who = prefix(self.truth, process, record=True)
        head = f"{who}{level} {self._now:%m-%d %H:%M:%S} {self._place(file, message)} "
        parts = message.split("\n")
        endings = ["\r"] * (len(parts) - 1) + [""]
        self._write(process, [f"{head}{part}{ending}" for part, ending in zip(parts, endings, strict=True)])

    def plain(self, process: Process, text: str) -> None:
        """Text that no logger formats: a traceback, a progress bar, another library."""
        head = prefix(self.truth, process, record=False)
        self._write(process, [head + part for part in text.split("\n")])

    def glue(self, text: str) -> None:
        """Put a progress bar, which ends in no newline, before the record that came last."""
        last = self.entries[-1].lines
        last[0] = text + last[0]

    def _write(self, process: Process, lines: list[str]) -> None:
        worker = process in self.cast.workers or process in self.cast.newcomers
        own = worker and process not in self.cast.engines
        self.entries.append(Entry(process.pid, own, lines, self._engine(process)))

    def _engine(self, process: Process) -> int | None:
        cast = self.cast
        if self.truth.dp == 1 or process is cast.api:
            return None
        if process in cast.engines:
            return cast.engines.index(process)
        whose = cast.workers if process in cast.workers else cast.newcomers
        return self.truth.scope(whose.index(process)).dp if process in whose else None

    def _place(self, file: str, message: str) -> str:
        """File and line; the opening bracket came with 0.8.0, relative paths with DEBUG from 0.10.2."""
        number = 20 + zlib.crc32(f"{file}{message[:12]}".encode()) % 1900
        shown = file if self.truth.log_level == "DEBUG" and self.truth.since("0.10.2") else file.rsplit("/", 1)[-1]
        return f"{'[' if self.truth.since('0.8.0') else ''}{shown}:{number}]"


def engines_interleaved(entries: list[Entry], seed: int) -> list[Entry]:
    """Let several engines speak at once: each one's entries keep their order, and none passes the server's."""
    result: list[Entry] = []
    for of_engines, run in groupby(entries, key=lambda entry: entry.engine is not None):
        held = list(run)
        result += _mixed(held, [entry.engine for entry in held], Random(seed)) if of_engines else held
    return result


def _mixed(held: list[Entry], keys: list[int | None], chance: Random) -> list[Entry]:
    """Shuffle entries, those of one key staying in order."""
    own = {key: iter([entry for entry, its in zip(held, keys, strict=True) if its == key]) for key in set(keys)}
    turns = list(keys)
    chance.shuffle(turns)
    return [next(own[key]) for key in turns]


def interleaved(entries: list[Entry], seed: int) -> list[Entry]:
    """Shuffle each run of worker entries, keeping every worker's own order."""
    chance = Random(seed)
    result: list[Entry] = []
    for by_workers, run in groupby(entries, key=lambda entry: entry.worker):
        held = list(run)
        result += _mixed(held, [entry.pid for entry in held], chance) if by_workers else held
    return result
