"""How a start ended, by the lines it left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.startups import identity

if TYPE_CHECKING:
    from parsers.rule import Statement
    from parsers.startups import StartUpLog

SERVING = frozenset(("server_started", "serving"))
FATAL = frozenset(
    (
        "auto_fit_failed", "engine_failed", "external_exceeds", "free_below_requested", "free_grew", "need", "no_kv_memory",
        "out_of_memory", "out_of_memory_plain", "out_of_memory_warm_up", "state_blocks", "too_long", "worker_failed",
    )
)  # fmt: skip
"""Sentences that no start survives; a traceback counts only where no warning carries it."""

LAST_STEPS = frozenset(("graph_captured", "graph_pool", "usage", "usage_consumed"))
"""What is said when little is left of a start."""


def _is_grave(statement: Statement, *, nearly_up: bool) -> bool:
    """Whether an error ends the start: no warning carries it, nor, once that is nearly up, a trainer or a client."""
    name = statement.record.speaker.name
    if nearly_up and name is not None and not identity(name).role:
        return False
    return statement.kind in {"error", "traceback"} and statement.record.level in {None, "ERROR", "CRITICAL"}


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
    nearly_up = False
    for s in log.statements:
        nearly_up = nearly_up or s.kind in LAST_STEPS
        if s.kind in FATAL or _is_grave(s, nearly_up=nearly_up):
            return "failed"
    return "unfinished"
