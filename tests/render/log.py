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


class Log:
    """Collects what the processes of one start-up write."""

    def __init__(self, truth: Truth) -> None:
        self.truth = truth
        self.cast: Cast = cast(truth)
        self.entries: list[Entry] = []
        self._now = EPOCH + timedelta(seconds=truth.start)

    @property
    def lines(self) -> list[str]:
        """The physical lines; with a seed, neighbouring entries of workers are shuffled, each worker's in order."""
        entries = self.entries if self.truth.interleave is None else interleaved(self.entries, self.truth.interleave)
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
        self.entries.append(Entry(process.pid, worker and process not in self.cast.engines, lines))

    def _place(self, file: str, message: str) -> str:
        """File and line; the opening bracket came with 0.8.0, relative paths with DEBUG from 0.10.2."""
        number = 20 + zlib.crc32(f"{file}{message[:12]}".encode()) % 1900
        shown = file if self.truth.log_level == "DEBUG" and self.truth.since("0.10.2") else file.rsplit("/", 1)[-1]
        return f"{'[' if self.truth.since('0.8.0') else ''}{shown}:{number}]"


def interleaved(entries: list[Entry], seed: int) -> list[Entry]:
    """Shuffle each run of worker entries, keeping every worker's own order."""
    chance = Random(seed)
    result: list[Entry] = []
    for by_workers, run in groupby(entries, key=lambda entry: entry.worker):
        held = list(run)
        if by_workers:
            turns = [entry.pid for entry in held]
            chance.shuffle(turns)
            own = {pid: iter([entry for entry in held if entry.pid == pid]) for pid in set(turns)}
            held = [next(own[pid]) for pid in turns]
        result += held
    return result
