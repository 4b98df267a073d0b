"""What a log comes apart into: start-ups, engines, ranks, and the process names that tell them apart."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

from parsers.template import whole_number
from parsers.tuples import NamedTuple

if TYPE_CHECKING:
    from parsers.rule import Statement

RANK_KINDS = frozenset(
    (
        "available", "cpu_auto", "cpu_explicit", "encoder_graph_captured", "explicit_kv_memory", "external_exceeds",
        "external_weights", "free_after", "free_below_requested", "free_grew", "graph_captured", "graph_charged",
        "graph_estimate", "graph_not_charged", "graph_pool", "initial_free", "load_peak", "mm_reservation",
        "out_of_memory", "profile", "requested", "snapshot", "startup_plan", "usage", "usage_consumed", "v0_budget",
        "v0_profile_064", "v0_terms", "weights", "xpu_before",
    )
)  # fmt: skip
"""What a worker says of its own device."""

WORKER_TOKENS_KINDS = frozenset(("blocks", "concurrency", "tokens"))
"""What the engine says; up to 0.11.0 once for each worker, in rank order."""

ONCE_PER_RANK = frozenset(
    ("available", "initial_free", "requested", "snapshot", "usage", "usage_consumed", "v0_budget")
)
"""What one worker says once in a launch."""

SIZED = frozenset(("available", "blocks", "tokens", "v0_terms"))
"""What is said once the weights are in and the cache is sized."""


class RankLog(NamedTuple):
    """What one worker printed."""

    name: str
    dp: int | None
    """None where several engines ran and nothing tells whose worker this is (dense models name none since 0.14)."""
    pp: int | None
    tp: int | None
    node: str | None
    pid: int | None
    statements: tuple[Statement, ...]


class EngineLog(NamedTuple):
    """One scheduler and its workers; `statements` are those that no single worker made."""

    dp: int
    ranks: tuple[RankLog, ...]
    statements: tuple[Statement, ...]


class StartUpLog(NamedTuple):
    """One launch."""

    first_line: int
    last_line: int
    statements: tuple[Statement, ...]
    engines: tuple[EngineLog, ...]

    def of(self, *kinds: str) -> list[Statement]:
        """Give the statements of these kinds, in order."""
        return [s for s in self.statements if s.kind in kinds]


@functools.cache
def _name_pattern() -> re.Pattern[str]:
    return re.compile(
        r"(?P<role>VllmWorkerProcess|VllmWorker|RayWorker\w*|WorkerDict|Worker|DPEngineCore\w*|EngineCore|ApiServer|APIServer"
        r"|MainProcess|DPSupervisor)(?:[_ ](?P<parts>.*)|-(?P<number>\d+))?"
    )


class Identity(NamedTuple):
    """What a process name gives away."""

    role: str = ""
    """`engine`, `worker`, `server` or empty."""
    dp: int | None = None
    pp: int | None = None
    tp: int | None = None
    rank: int | None = None


@functools.cache
def identity(name: str | None) -> Identity:
    """Read role and ranks off a process name: `Worker_DP1_PP0_TP3_EP3`, `EngineCore_DP1`, `VllmWorker rank=2`."""
    match = _name_pattern().fullmatch(name or "")
    if not match:
        return Identity()
    role = match["role"]
    kind = "engine" if "EngineCore" in role else "worker" if "Worker" in role else "server"
    found: dict[str, int] = {}
    for part in (match["parts"] or "").replace(" ", "_").split("_"):
        letters = part.rstrip("0123456789").rstrip("=")
        digits = part[len(part.rstrip("0123456789")) :]
        number = whole_number(digits)
        if number is not None:
            found[letters.lower()] = number
    dp = found.get("dp", found.get("") if kind == "engine" else None)
    rank = found.get("rank", whole_number(match["number"]))
    return Identity(kind, dp, found.get("pp"), found.get("tp"), rank)
