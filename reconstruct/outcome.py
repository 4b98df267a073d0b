"""How a start ended, by the lines it left."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from parsers.startups import StartUpLog

SERVING = frozenset(("server_started", "serving"))
FATAL = frozenset(
    (
        "auto_fit_failed", "engine_failed", "external_exceeds", "free_below_requested", "free_grew", "need", "no_kv_memory",
        "out_of_memory", "out_of_memory_plain", "out_of_memory_warm_up", "state_blocks", "too_long", "worker_failed",
    )
)  # fmt: skip
"""Sentences that no start survives; a traceback counts only where no warning carries it."""


def outcome(log: StartUpLog) -> str:
    """Give `ready`, `failed` or `unfinished`.

    A start that came up is ready whatever happened before (caught errors) or after (it died serving); but an engine whose
    constructor a traceback shows unfinished never came up.
    """
    kinds = [s.kind for s in log.statements]
    if any(kind in SERVING for kind in kinds):
        return "ready"
    if "engine_initialised" in kinds and "constructing" not in kinds[kinds.index("engine_initialised") :]:
        return "ready"
    for s in log.statements:
        if s.kind in FATAL or (s.kind in {"error", "traceback"} and s.record.level in {None, "ERROR", "CRITICAL"}):
            return "failed"
    return "unfinished"
