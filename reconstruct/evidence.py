"""From what was printed to evidence: each figure's interval, and whose figure it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.startups import SIZED, WORKER_TOKENS_KINDS, identity
from reconstruct.equations import SUGGESTION_BUFFER, WORKER_COUNTS
from reconstruct.interval import Interval
from reconstruct.quantities import BY_NAME
from reconstruct.relations import Term
from reconstruct.rounding import NotANumber, implied
from reconstruct.solver import Evidence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from parsers.launch_settings import Settings
    from parsers.rule import Statement
    from parsers.startups import EngineLog
    from reconstruct.eras import Era

_RENAMED = {
    "explicit_kv_cache_memory": "explicit_pool",
    "kv_pool_memory": "rank_pool_memory",  # the reservation line is a worker's; the planner's pool is the binding one's
    "override_num_blocks": "num_blocks",
}
"""Printed names that state a quantity under another name."""

OF_ONE_ENGINE = frozenset(("auto_fit", "need", "too_long"))
"""What an engine says of its own pool, and what others quote it on."""

EXPLICIT_POOL = frozenset(("cpu_explicit", "explicit_kv_memory", "startup_plan"))
"""Lines of starts that profile nothing for the pool."""

_GRAPH_SWITCH = {"graph_charged", "graph_not_charged"}


def _term(name: str, rank: int | None) -> Term | None:
    kind = BY_NAME.get(_RENAMED.get(name, name))
    if kind is None:
        return None
    return Term(kind.name, rank if kind.scope == "rank" else None)


def _of_statement(statement: Statement, rank: int | None) -> Iterator[Evidence]:
    for printed in statement.fields:
        term = _term(printed.name, rank)
        if term is None or (BY_NAME[term.name].scope == "rank" and rank is None):
            continue
        try:
            yield Evidence(term, implied(printed), "printed", statement.lines)
        except NotANumber:
            continue


CUT_AFTER_PRINTING = frozenset(("available_kv_cache_memory", "free_within_requested", "requested_memory"))
"""What a release with a float budget prints before it is cut to whole bytes."""


def _cut(item: Evidence, era: Era) -> Evidence:
    """Give what is left of a printed float once it is cut: downwards, or by `int()` towards zero.

    Source: 0.8.5 worker/worker.py, 0.9.1-0.13 v1/worker/gpu_worker.py determine_available_memory.
    """
    low, high = item.interval
    if era.budget == "ceil" or item.term.name not in CUT_AFTER_PRINTING or low is None or high is None or low == high:
        return item
    return item._replace(interval=Interval(low - 1, high + 1 if high < 0 else high))


def of_rank(statements: Iterable[Statement], rank: int, era: Era) -> Iterator[Evidence]:
    """Give what a worker's own lines state, and the counts that the engine printed for it."""
    for statement in statements:
        if statement.kind in {"tokens", "concurrency", "blocks"}:
            for item in _of_statement(statement, None):
                yield item if item.term.name == "max_model_len" else item._replace(term=Term(item.term.name, rank))
        else:
            yield from (_cut(item, era) for item in _of_statement(statement, rank))
    yield Evidence(Term("suggestion_buffer", rank), Interval.exactly(SUGGESTION_BUFFER), "config")


def of_engine(engine: EngineLog, era: Era, workers: int, *, alone: bool, by_worker: bool) -> Iterator[Evidence]:
    """Give what the engine's lines state.

    `alone` is whether this is the start-up's only engine: the front end's block count is a sum over engines. `by_worker`
    is whether its token counts are each worker's own; then only the length they share is the engine's. Where an era prints
    a count for each of `workers` and some are not there, the smallest is only known not to exceed those that are.
    """
    kinds = [s.kind for s in engine.statements]
    for statement in engine.statements:
        if statement.kind == "override":
            continue  # below: each worker may print its own
        if statement.kind == "front_end_blocks" and not alone:
            continue
        if statement.kind in OF_ONE_ENGINE and not alone and identity(statement.record.speaker.name).dp is None:
            continue  # the front end repeats what one of its engines died of
        if statement.kind == "max_model_len":
            continue  # before auto-fit; a setting, not what came of it
        counts = statement.kind in WORKER_TOKENS_KINDS
        partial = counts and era.tokens_per_worker and kinds.count(statement.kind) < workers
        for item in _of_statement(statement, None):
            if not counts or item.term.name not in WORKER_COUNTS:
                yield item
            elif not by_worker:
                yield item._replace(interval=Interval(None, item.interval.high)) if partial else item


def is_override(statement: Statement) -> bool:
    """Whether a line states the user's override; the graph profiler's own, over a cache of 0 blocks, is none."""
    return statement.kind == "override" and statement.text("computed_num_blocks") != "0"


def overrides(engine: EngineLog) -> list[Statement]:
    """Give the lines of the user's override."""
    return [s for s in engine.statements if is_override(s)]


def of_overrides(engine: EngineLog, workers: int, era: Era) -> Iterator[Evidence]:
    """Give the blocks asked for, and what would have fitted: every worker's own count where each printed one.

    `workers` is how many there are; the engine's count is the smallest, which fewer lines bound only from above.
    """
    found = overrides(engine)
    if not found:
        return
    lines = tuple(line for s in found for line in s.lines)
    asked = [p for s in found for p in s.fields if p.name == "override_num_blocks"]
    fitting = [int(implied(p).low or 0) for s in found for p in s.fields if p.name == "computed_num_blocks"]
    if not era.override_ignored:
        yield from (Evidence(Term("num_blocks"), implied(p), "printed", lines) for p in asked[:1])
    least = min(fitting)
    known = era.engine == "V0" or len(fitting) >= workers
    yield Evidence(Term("computed_num_blocks"), Interval(least if known else None, least), "printed", lines)


def graph_share(statements: Iterable[Statement], utilization: Interval, rank: int) -> Iterator[Evidence]:
    """Give G_est / T as the utilisation line of the graph profile states it, twice over.

    Source: v1/worker/gpu_worker.py determine_available_memory, 0.18.0-0.33: round(u -+ G_est / T, 4), the larger capped
    at 1.0.
    """
    for statement in statements:
        if statement.kind not in _GRAPH_SWITCH:
            continue
        printed = {p.name: implied(p) for p in statement.fields if p.form == "ratio4"}
        current = utilization.meet(printed["gpu_memory_utilization"]) or printed["gpu_memory_utilization"]
        term = Term("graph_share", rank)
        raised = printed["suggested_utilization"].minus(current)
        if statement.text("suggested_utilization") == "1.0000":
            raised = Interval(raised.low, None)
        yield Evidence(term, raised, "printed", statement.lines)
        if "equivalent_utilization" in printed:
            yield Evidence(term, current.minus(printed["equivalent_utilization"]), "printed", statement.lines)


def of_settings(settings: Settings, era: Era, ranks: tuple[int, ...], *, capacity_length: bool) -> Iterator[Evidence]:
    """Give what arguments and defaults state.

    `capacity_length` is whether a capacity line states the length; then the configuration's, which may have been reduced
    since, does not count.
    """
    asked = settings.values.get("gpu_memory_utilization")
    if asked and isinstance(asked.value, int | float) and not isinstance(asked.value, bool):
        if 0 < asked.value <= 1:  # the engine refuses any other before it looks at a card (config/cache.py)
            yield Evidence(Term("gpu_memory_utilization"), Interval.exactly(float(asked.value)), "printed", asked.lines)
    elif settings.lists_changes and not asked:
        yield Evidence(Term("gpu_memory_utilization"), Interval.exactly(era.default_utilization), "default")
    length = settings.number("max_model_len")
    if not capacity_length and length is not None and length > 0:
        lines = settings.values["max_model_len"].lines
        yield Evidence(Term("max_model_len"), Interval(1 if settings.fits_length else length, length), "printed", lines)
    pool = settings.number("kv_cache_memory_bytes")
    if pool is not None:
        for rank in ranks:
            lines = settings.values["kv_cache_memory_bytes"].lines
            yield Evidence(Term("explicit_pool", rank), Interval.exactly(pool), "printed", lines)


def _is_sized(engine: EngineLog) -> bool:
    """Whether the log reaches the cache's size: until the model is loaded its backend or its state may set the blocks."""
    sized = SIZED | OF_ONE_ENGINE | {"no_kv_memory"}
    said = (*engine.statements, *(s for rank in engine.ranks for s in rank.statements))
    return any(s.kind in sized for s in said)


def block_size(
    engine: EngineLog, settings: Settings, *, engine_version_high: int, tokens: Iterable[int]
) -> Iterator[Evidence]:
    """Give the block size: as a line raised or forced it, else as asked, else the default where it is known to rule.

    Source of the defaults: config/cache.py (16), platforms/cpu.py check_and_update_config (128 from 0.11.2).
    """
    from reconstruct.releases import index

    lines = [s for s in engine.statements if s.kind in {"attention_block_size", "backend_block_size"}]
    if lines:
        for item in _of_statement(lines[-1], None):
            same = [s for s in lines if s.text("block_size") == lines[-1].text("block_size")]
            yield item._replace(lines=tuple(line for s in same for line in s.lines))
        return
    if not _is_sized(engine):
        return
    asked = settings.number("block_size")
    if asked is not None and asked > 0:
        yield Evidence(Term("block_size"), Interval.exactly(asked), "printed", settings.values["block_size"].lines)
        return
    if not (settings.lists_changes or settings.lists_all):
        return
    device = settings.text("device") or "cuda"
    default = 16 if device == "cuda" else 128 if device == "cpu" and engine_version_high >= index("0.11.2") else None
    if default and all(count % default == 0 for count in tokens):
        yield Evidence(Term("block_size"), Interval.exactly(default), "default")
