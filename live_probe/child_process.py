"""Runs a start-up in a process group of its own, leaves none of it behind and reads what it journalled."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from live_probe.journal import JournalError, read_journal
from live_probe.measurement import INTERRUPTED, KILLED, ONLY_RANK, Environment, Failure, ProbeRecord, Unread

if TYPE_CHECKING:
    from collections.abc import Mapping

    from live_probe.shape import JsonValue

LOG_NAME = "engine.log"
START_NAME = "start.json"
"""What a child is asked to do: a config may be too long for a command line."""
ENDING_NAME = "ending"
"""How a run ended, one line, empty for well; not there before the end, nor where the probe itself was killed."""
BY_USER = "interrupted by the user"
UNSEEN = "the probe itself was ended, or is still running"
"""The ending of a run that nobody noted."""
ENGINES = "KVFORENSICS_PROBE_ENGINES"
"""The environment variable that tells workers how many data-parallel engines there are, where there are several."""
PROBE_DIR = "KVFORENSICS_PROBE_DIR"
"""The environment variable that tells a child, and every worker of it, where its journals go."""
_SCRATCH = "kvforensics-scratch-"
"""How the folder of a run's temporary files is named."""
_LONGEST_TEMPORARY = 107 - len("/" + "0" * 36) - len("/" + _SCRATCH + "0" * 8)
"""Bytes of a folder in which the engine's sockets still have room: each is named by a UUID, and unix(7) allows 107."""
_GRACE_S = 10
_LAST_WORDS = 4096
"""Bytes of the engine's log that are searched for its last line."""


class EngineRun(NamedTuple):
    """How to start an engine: the interpreter that has it, where its journals go, and for how long at most."""

    folder: Path
    python: str = sys.executable
    timeout_s: float = 1800


def run_to_end(module: str, argument: Mapping[str, JsonValue], engine: EngineRun) -> str:
    """Run `python -m module FILE`, the file holding `argument`, to its end and say how it ended; empty is well.

    Whatever the end, no process of its group is left, nor what it made among the temporary files, and the ending stands
    in the folder; should this process die, the child ends itself.

    Raises:
        OSError: the folder cannot be written or the interpreter not started.
        KeyboardInterrupt: the user interrupted; every process of the group has ended.

    """
    engine.folder.mkdir(parents=True, exist_ok=True)
    (engine.folder / START_NAME).write_text(json.dumps(dict(argument)), encoding="utf-8")
    try:
        ending = _run_group(module, engine)
    except KeyboardInterrupt:
        _note_ending(engine.folder, BY_USER)
        raise
    _note_ending(engine.folder, ending)
    return ending


def _note_ending(folder: Path, ending: str) -> None:
    with suppress(OSError):  # what was measured is worth more than the note
        (folder / ENDING_NAME).write_text(ending + "\n", encoding="utf-8")


def ending_of(folder: Path) -> str:
    """Give how a run ended, as `run_to_end` gave it, from its folder; UNSEEN where that was not noted."""
    with suppress(OSError):
        noted = (folder / ENDING_NAME).read_text(encoding="utf-8", errors="replace")
        if noted.endswith("\n"):  # else the probe died while it noted
            return noted.removesuffix("\n")
    return UNSEEN


def _run_group(module: str, engine: EngineRun) -> str:
    folder = engine.folder.absolute()  # a worker may run in another folder than its engine
    command = [engine.python, "-m", module, str(folder / START_NAME)]
    with (
        tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=_temporary(), ignore_cleanup_errors=True) as scratch,
        (engine.folder / LOG_NAME).open("wb") as log,
    ):
        environment = {**child_environment(folder), PROBE_DIR: str(folder), "TMPDIR": scratch}
        child = subprocess.Popen(  # noqa: S603  the interpreter is the caller's own choice
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = child.wait(timeout=engine.timeout_s)
        except subprocess.TimeoutExpired:
            return f"the engine did not start within {engine.timeout_s:.0f} s"
        finally:
            _end_group(child)
    if code < 0:
        return f"the engine was killed by signal {-code}"
    return f"the engine ended with exit code {code}" if code else ""


def _temporary() -> str:
    """Give where temporary files go, or /tmp where that lies too deep for the engine's sockets."""
    usual = tempfile.gettempdir()
    return usual if len(os.fsencode(usual)) <= _LONGEST_TEMPORARY or not os.access("/tmp", os.W_OK) else "/tmp"  # noqa: S108


def asked_of_child(arguments: list[str]) -> dict[str, Any]:
    """Read what `run_to_end` wrote for this process."""
    asked: dict[str, Any] = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    return asked


def end_with_parent() -> None:
    """In a child: end its whole group as soon as the parent, which holds the other end of stdin, is gone."""
    if os.getpgrp() == os.getpid():
        threading.Thread(target=_await_parents_end, daemon=True).start()


def _await_parents_end() -> None:
    while os.read(0, 1):
        pass
    scratch = Path(os.environ.get("TMPDIR", ""))
    if scratch.name.startswith(_SCRATCH):  # the parent, which made it, can no longer remove it
        shutil.rmtree(scratch, ignore_errors=True)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def child_environment(folder: Path) -> dict[str, str]:
    """Give this process' environment with this package, and no other of its neighbours, importable.

    The interpreter may be another environment's, whose own packages must not be overlaid by this one's: a link to the
    package is made below `folder`. Nor may what lies in the working folder be imported instead of a library.

    Raises:
        OSError: the link cannot be made.

    """
    package = Path(__file__).resolve().parent
    root = folder / "import"
    root.mkdir(parents=True, exist_ok=True)
    link = root / package.name
    if not link.exists():
        link.symlink_to(package, target_is_directory=True)
    paths = os.pathsep.join(path for path in (str(root), os.environ.get("PYTHONPATH", "")) if path)
    return {**os.environ, "PYTHONPATH": paths, "PYTHONSAFEPATH": "1"}


def _end_group(child: subprocess.Popen[bytes]) -> None:
    """End every process of the child's group, whether the child is still there or not; at once if interrupted again."""
    try:
        _tell_group(child, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            child.wait(timeout=_GRACE_S)
    finally:
        _tell_group(child, signal.SIGKILL)
        child.wait()
        if child.stdin is not None:
            child.stdin.close()


def _tell_group(child: subprocess.Popen[bytes], sent: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(child.pid, sent)


def records_of(folder: Path, engine: str, run: int, ending: str) -> tuple[ProbeRecord, ...]:
    """Give one record for each rank that journalled into the folder; where none did, one that says so.

    `ending` is how the child ended, empty for well. A rank that went well answers for an engine that did not.

    Raises:
        OSError: a journal cannot be read.

    """
    read = []
    for path in sorted(folder.glob("*.jsonl"), key=_by_numbers):
        with suppress(JournalError):  # cut before its first line was whole
            read.append(_with_ending(read_journal(path, run), ending))
    return tuple(read) or (_unborn(folder, engine, run, ending),)


def _by_numbers(path: Path) -> list[tuple[int, str]]:
    """Order names as their numbers are: rank-2 before rank-10."""
    return [(int(part) if part.isdecimal() else -1, part) for part in re.split(r"(\d+)", path.name, flags=re.ASCII)]


def interrupted(record: ProbeRecord) -> ProbeRecord:
    """Say of a record whose process was ended for the user's sake that the user ended it."""
    failure = record.failure
    if failure is None or failure.kind not in (*TOLD_TO_END, ENGINE_DIED):
        return record
    return record._replace(failure=failure._replace(kind=INTERRUPTED, message=BY_USER))


TOLD_TO_END = (KILLED, SystemExit.__name__, KeyboardInterrupt.__name__)
"""The kinds of a failure that came from outside: vLLM's workers turn SIGTERM into SystemExit."""
ENGINE_DIED = "EngineDied"
"""The kind of a failure of the engine's that no step of this rank's names."""


def _with_ending(record: ProbeRecord, ending: str) -> ProbeRecord:
    failure = record.failure
    if not ending:
        return record
    if failure is not None:
        told = ": ".join(text for text in (failure.message, ending) if text)
        return record._replace(failure=failure._replace(message=told)) if failure.kind in TOLD_TO_END else record
    last = record.snapshots[-1] if record.snapshots else None
    step, free, total = (last.step, last.free, last.total) if last is not None else ("start", 0, 0)
    return record._replace(failure=Failure(step, ENGINE_DIED, ending, free, total))


def _unborn(folder: Path, engine: str, run: int, ending: str) -> ProbeRecord:
    said = f" ({_last_line(folder / LOG_NAME)})"
    message = f"{ending or 'the engine left'} before any worker was made: see {folder / LOG_NAME}{said}"
    return ProbeRecord(
        rank=ONLY_RANK,
        run=run,
        environment=Environment("unknown", False, engine, "unknown", "unknown", "not read"),
        measurements=(),
        missing=(),
        snapshots=(),
        processes=Unread("no worker came so far"),
        failure=Failure("start", ENGINE_DIED, message, 0, 0),
    )


def _last_line(log: Path) -> str:
    """Give the last words of the engine's own log, most often the error it died of."""
    with suppress(OSError):
        with log.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _LAST_WORDS))
            lines = file.read().decode("utf-8", errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "it is empty")
    return "it is not there"
