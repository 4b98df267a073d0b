"""Which release and engine a log comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconstruct.eras import FIRST_V1, LAST_V0
from reconstruct.releases import narrow

if TYPE_CHECKING:
    from parsers.startups import StartUpLog
    from reconstruct.releases import EngineVersion, Span

V0_KINDS = frozenset(("engine_config_v0", "v0_budget", "v0_profile_064", "v0_terms", "cpu_blocks"))
V1_KINDS = frozenset(
    (
        "available", "engine_config_v1", "explicit_kv_memory", "free_after", "graph_estimate", "graph_pool", "need",
        "profile", "requested", "snapshot", "tokens", "usage", "usage_consumed",
    )
)  # fmt: skip


def engines_possible(log: StartUpLog, span: Span) -> tuple[str, ...]:
    """Give the engines, V0 and V1, that the release and the kinds of lines leave open."""
    kinds = {s.kind for s in log.statements}
    if span.low > LAST_V0 or span.high < FIRST_V1:  # the release outranks the wordings: two logs may be spliced
        return ("V1",) if span.low > LAST_V0 else ("V0",)
    if bool(kinds & V1_KINDS) != bool(kinds & V0_KINDS):
        return ("V1",) if kinds & V1_KINDS else ("V0",)
    both_blocks = any(s.kind == "blocks" and s.text("num_cpu_blocks") for s in log.statements)
    return ("V0",) if both_blocks else ("V0", "V1")


def version_of(log: StartUpLog) -> EngineVersion:
    """Give the release: as the engine states it, else the front end, else what the wordings leave open."""
    stated = None
    for kinds in (("engine_config", "engine_config_v0", "engine_config_v1"), ("banner_version", "api_version")):
        found = [s.text("version") for s in log.of(*kinds) if s.text("version")]
        if found:
            stated = found[0]
            break
    return narrow(stated, [s.rule.releases for s in log.statements])
