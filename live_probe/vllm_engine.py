"""Starts the real engine in a process group of its own, collects what its workers journalled and leaves none behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from live_probe.child_process import LOG_NAME, EngineRun, records_of, run_to_end

if TYPE_CHECKING:
    from collections.abc import Mapping

    from live_probe.measurement import ProbeRecord
    from live_probe.shape import JsonValue

__all__ = ["LOG_NAME", "EngineRun", "probe_engine"]

CHILD = "live_probe.vllm_child"


def probe_engine(llm_arguments: Mapping[str, JsonValue], engine: EngineRun, run: int = 0) -> tuple[ProbeRecord, ...]:
    """Start vLLM's LLM with these arguments and give one record for each rank.

    A start that dies, hangs beyond the timeout or is interrupted gives the records of what was journalled; where no
    worker came so far, one record says so. The engine's own log lies in the folder as engine.log.

    Raises:
        OSError: the folder cannot be written or the interpreter not started.
        KeyboardInterrupt: the user interrupted; every process of the engine has ended.

    """
    ending = run_to_end(CHILD, llm_arguments, engine)
    return records_of(engine.folder, "vllm", run, ending)
