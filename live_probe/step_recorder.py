"""Puts a live worker's start-up steps between snapshots, each on disk before the step goes on."""

from __future__ import annotations

import time
from contextlib import suppress
from functools import wraps
from typing import TYPE_CHECKING, Any

from live_probe.device import snapshot_of
from live_probe.measurement import Failure, Measurement

if TYPE_CHECKING:
    from collections.abc import Callable

    from live_probe.device import MemoryReader
    from live_probe.journal import Entry, Journal
    from live_probe.measurement import When

RETURNED = {
    "profile_cudagraph_memory": "cudagraph_memory_estimate",
    "capture_model": "cudagraph_memory_actual",
    "determine_available_memory": "kv_pool_memory",
}
"""Steps whose result is a quantity in bytes that no attribute keeps."""


class StepRecorder:
    """Journals one worker's start-up. `find_reader` gives None as long as the worker has not chosen its device."""

    def __init__(self, journal: Journal, rank: str, find_reader: Callable[[], MemoryReader | None]) -> None:
        self._journal = journal
        self._rank = rank
        self._find_reader = find_reader
        self._started = time.monotonic()

    def write(self, entry: Entry) -> None:
        """Journal anything else."""
        self._journal.write(entry)

    def framed(self, step: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """Give `method` with a snapshot before and after it, and its failure if it fails.

        A card that has failed answers no more: then its failure stands without the snapshot and the free memory.
        """

        @wraps(method)
        def run(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  the engine's own signature passes through
            self._snapshot(step, "before")
            try:
                result = method(*args, **kwargs)
                self._note_result(step, result)
            except BaseException as error:
                with suppress(RuntimeError):
                    self._snapshot(step, "after")
                self._note_failure(step, error)
                raise
            self._snapshot(step, "after")
            return result

        return run

    def _snapshot(self, step: str, when: When) -> None:
        reader = self._find_reader()
        if reader is not None:
            self._journal.write(snapshot_of(reader, step, when, self._rank, time.monotonic() - self._started))

    def _note_result(self, step: str, result: object) -> None:
        name = RETURNED.get(step)
        if name is not None and isinstance(result, int | float) and not isinstance(result, bool):
            self._journal.write(Measurement(name, int(result), "B", f"returned by {step}", (step,)))

    def _note_failure(self, step: str, error: BaseException) -> None:
        if getattr(error, "_kvf_noted", False):
            return
        reader, free, total = self._find_reader(), 0, 0
        if reader is not None:
            with suppress(RuntimeError):
                free, total = reader.memory()
        lines = str(error).splitlines()
        self._journal.write(Failure(step, type(error).__name__, lines[0] if lines else "", free, total))
        error._kvf_noted = True  # type: ignore[attr-defined]  # noqa: SLF001  an outer step must not claim it again
