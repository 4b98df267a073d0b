"""A probe's figures on disk as they are taken, one JSON object a line, so that a killed start leaves its ledger.

One file holds one rank of one run. Each line is `{"kind": ..., "value": {...}}` with the fields of a type of
measurement.py; the first is the environment.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from live_probe.measurement import (
    KILLED,
    DeviceProcess,
    Environment,
    Failure,
    Measurement,
    NotMeasured,
    ProbeRecord,
    Snapshot,
    Unread,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class ProcessList(NamedTuple):
    """Who held memory on the card before the start, as the driver lists it."""

    listed: tuple[DeviceProcess, ...] | Unread


Entry = Environment | ProcessList | Snapshot | Measurement | NotMeasured | Failure
_KINDS: dict[str, type[Entry]] = {
    "environment": Environment,
    "processes": ProcessList,
    "snapshot": Snapshot,
    "measurement": Measurement,
    "missing": NotMeasured,
    "failure": Failure,
}


class JournalError(ValueError):
    """A journal that does not begin as one."""


class Journal:
    """Appends to one file; the system has every entry when `write` returns, whatever becomes of this process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    def write(self, entry: Entry) -> None:
        """Add an entry.

        Raises:
            OSError: the file cannot be written.

        """
        kind = next(name for name, made in _KINDS.items() if type(entry) is made)
        line = json.dumps({"kind": kind, "value": entry._asdict()}, ensure_ascii=False)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


class _Contents(NamedTuple):
    environments: list[Environment]
    processes: list[ProcessList]
    snapshots: list[Snapshot]
    measurements: dict[str, Measurement]
    missing: dict[str, NotMeasured]
    failures: list[Failure]


def read_journal(path: Path, run: int = 0) -> ProbeRecord:
    """Rebuild what a rank measured; of a figure written twice the later counts.

    A start with neither a failure nor an entry after its last step was killed from outside: that too becomes a
    failure, of the step whose end is missing.

    Raises:
        JournalError: the file does not begin with an environment.
        OSError: the file cannot be read.

    """
    read = _Contents([], [], [], {}, {}, [])
    for entry in _entries(path):
        if isinstance(entry, Snapshot):
            read.snapshots.append(entry)
        elif isinstance(entry, Measurement):
            read.measurements[entry.name] = entry
        elif isinstance(entry, NotMeasured):
            read.missing[entry.name] = entry
        elif isinstance(entry, Failure):
            read.failures.append(entry)
        elif isinstance(entry, ProcessList):
            read.processes.append(entry)
        else:
            read.environments.append(entry)
    if not read.environments:
        raise JournalError(f"{path} is no probe journal: its first line should be an environment")
    failure = read.failures[0] if read.failures else _cut_short(read.snapshots)
    missing = tuple(absent for absent in read.missing.values() if absent.name not in read.measurements)
    return ProbeRecord(
        rank=read.snapshots[0].rank if read.snapshots else _rank_of(path),
        run=run,
        environment=read.environments[-1],
        measurements=tuple(read.measurements.values()),
        missing=missing,
        snapshots=tuple(read.snapshots),
        processes=read.processes[-1].listed if read.processes else Unread("no list was journalled"),
        failure=failure,
    )


def _rank_of(path: Path) -> str:
    """Give the rank that a journal is named after: its words, and a process' number where there was one."""
    named = re.match(r"(dp-\d+-)?rank-\d+", path.name, re.ASCII)
    return named[0].replace("-", " ") if named else path.stem


def _entries(path: Path) -> Iterator[Entry]:
    """Give every whole line; the last one may have been cut by the death it records."""
    lines = path.read_text(encoding="utf-8").split("\n")
    for line in lines[:-1]:
        written = json.loads(line)
        value = written["value"]
        for field in ("steps", "notes"):
            if field in value:
                value[field] = tuple(value[field])
        if written["kind"] == "processes":
            yield ProcessList(listed(value["listed"]))
        else:
            yield _KINDS[written["kind"]](**value)


def listed(value: list[Any]) -> tuple[DeviceProcess, ...] | Unread:
    """Rebuild a list of processes from JSON, which makes arrays of named tuples."""
    if value and isinstance(value[0], str):
        return Unread(value[0])
    return tuple(DeviceProcess(pid, Unread(*used) if isinstance(used, list) else used) for pid, used in value)


def _cut_short(snapshots: list[Snapshot]) -> Failure | None:
    """Find the innermost step that was begun and never ended."""
    open_steps: list[Snapshot] = []
    for snapshot in snapshots:
        if snapshot.when == "before":
            open_steps.append(snapshot)
        elif open_steps and open_steps[-1].step == snapshot.step:
            open_steps.pop()
    if not open_steps:
        return None
    begun = open_steps[-1]
    return Failure(begun.step, KILLED, "the process ended inside this step", begun.free, begun.total)
