"""Starts the real engine in a process group of its own, collects what its workers journalled and leaves none behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from live_probe.journal import read_journal
from live_probe.measurement import Environment, Failure, ProbeRecord, Unread
from live_probe.vllm_worker import PROBE_DIR

if TYPE_CHECKING:
    from collections.abc import Mapping

    from live_probe.shape import JsonValue

LOG_NAME = "engine.log"
_GRACE_S = 10


class EngineRun(NamedTuple):
    """How to start an engine: the interpreter that has vLLM, where its journals go, and for how long at most."""

    folder: Path
    python: str = sys.executable
    timeout_s: float = 1800


def probe_engine(llm_arguments: Mapping[str, JsonValue], engine: EngineRun, run: int = 0) -> tuple[ProbeRecord, ...]:
    """Start vLLM's LLM with these arguments and give one record for each rank.

    A start that dies, hangs beyond the timeout or is interrupted gives the records of what was journalled; where no
    worker came so far, one record says so. The engine's own log lies in the folder as engine.log.

    Raises:
        OSError: the folder cannot be written or the interpreter not started.
        KeyboardInterrupt: the user interrupted; every process of the engine has ended.

    """
    engine.folder.mkdir(parents=True, exist_ok=True)
    ending = _start_and_wait(llm_arguments, engine)
    records = tuple(read_journal(path, run) for path in sorted(engine.folder.glob("*.jsonl")))
    return tuple(_with_ending(record, ending) for record in records) or (_unborn(engine, run, ending),)


def _start_and_wait(llm_arguments: Mapping[str, JsonValue], engine: EngineRun) -> str:
    """Run the child to its end and say how it ended; empty is well."""
    root = str(Path(__file__).resolve().parent.parent)
    inherited = os.environ.get("PYTHONPATH", "")
    paths = os.pathsep.join(path for path in (root, inherited) if path)
    environment = {**os.environ, PROBE_DIR: str(engine.folder), "PYTHONPATH": paths}
    command = [engine.python, "-m", "live_probe.vllm_child", json.dumps(dict(llm_arguments))]
    with (engine.folder / LOG_NAME).open("wb") as log:
        child = subprocess.Popen(  # noqa: S603  the interpreter is the caller's own choice
            command, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            code = child.wait(timeout=engine.timeout_s)
        except subprocess.TimeoutExpired:
            return f"the engine did not start within {engine.timeout_s:.0f} s"
        finally:
            _end_group(child)
    return f"the engine ended with exit code {code}" if code else ""


def _end_group(child: subprocess.Popen[bytes]) -> None:
    """End every process of the child's group, whether the child is still there or not."""
    for sent in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(child.pid, sent)
            with suppress(subprocess.TimeoutExpired):
                child.wait(timeout=_GRACE_S)
    child.wait()


def _with_ending(record: ProbeRecord, ending: str) -> ProbeRecord:
    """Let a rank that went well answer for an engine that did not."""
    if record.failure is not None or not ending:
        return record
    last = record.snapshots[-1] if record.snapshots else None
    step, free, total = (last.step, last.free, last.total) if last is not None else ("start", 0, 0)
    return record._replace(failure=Failure(step, "EngineDied", ending, free, total))


def _unborn(engine: EngineRun, run: int, ending: str) -> ProbeRecord:
    message = f"{ending or 'the engine left'} before any worker was made: see {engine.folder / LOG_NAME}"
    return ProbeRecord(
        rank="rank 0",
        run=run,
        environment=Environment("unknown", False, "vllm", "unknown", "unknown", "not read"),
        measurements=(),
        missing=(),
        snapshots=(),
        processes=Unread("no worker came so far"),
        failure=Failure("start", "EngineDied", message, 0, 0),
    )
