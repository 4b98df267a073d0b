"""One effect put together: setup, model, terms of each stage, pool, checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.change import MODELLED, Effect, tightest
from reconstruct.ledger import Account
from reconstruct.planner import catalogue
from reconstruct.planner.errors import BadSetting, Unsupported, WouldNotStart
from reconstruct.predict.sizes import full_config
from reconstruct.whatif_capacity import Question
from reconstruct.whatif_checks import checks_of, outcome_of
from reconstruct.whatif_geometry import geometry_of
from reconstruct.whatif_model import changed_launch, launch_of, model_of
from reconstruct.whatif_pool import pool_after
from reconstruct.whatif_scene import Scene
from reconstruct.whatif_setup import afterwards, fits_itself, today
from reconstruct.whatif_terms import rank_terms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from reconstruct.change import Change, TermChange
    from reconstruct.ledger import EngineLedger, RankLedger, StartUpLedger
    from reconstruct.whatif_geometry import Geometry
    from reconstruct.whatif_model import Model
    from reconstruct.whatif_setup import Setup

NO_CONFIG = "no config of the model is known (--config gives it)"

NO_SIZES = "only the model's cache is known here, not its weights (--config gives them)"


class _Modelled(NamedTuple):
    """What a config adds: the model's bands and both geometries, or why not."""

    model: Model | str
    before: Geometry | None
    after: Geometry | None
    refusal: str
    notes: tuple[str, ...]


def predicted_effect(
    startup: StartUpLedger, change: Change, config: Mapping[str, object] | None, card: str | None
) -> Effect:
    """See reconstruct.change.effect."""
    engine = tightest(startup.engines)
    now = today(startup, engine)
    then, notes = afterwards(now, change, fitted=fits_itself(startup))
    name = startup.settings.text("model")
    sized = config if config is not None else full_config(name) if name else None
    cached = sized if sized is not None else catalogue.find(name) if name else None
    found = _modelled(startup, engine, cached, card, change, now, then)
    if sized is None and cached is not None and isinstance(found.model, str) and found.model and not found.refusal:
        found = found._replace(model=NO_SIZES)
    ranks = _stages(engine)
    stages = [
        rank_terms(Scene(_account(ranks, stage), stage, now, then, change, found.model))
        for stage in range(then.pipeline)
    ]
    available = tuple(rows[-1] for rows in stages)
    binding = [ranks[i].name == engine.binding_rank if i in ranks else False for i in range(then.pipeline)]
    question = Question(startup, engine.capacity, now, then, available, tuple(binding), found.before, found.after)
    pool = pool_after(question)
    shown = pool.binding_stage if pool.binding_stage is not None and pool.binding_stage < len(stages) else 0
    actual = [_account(ranks, i).interval("cudagraph_memory_actual") for i in range(len(stages))]
    came_up = startup.outcome == "ready" or engine.capacity.get("kv_pool_memory") is not None
    checks = checks_of(now, then, stages, actual, pool, found.refusal, came_up=came_up)
    left = [
        f"{r.name}: {r.why}" for r in stages[shown] if r.kind == "unknown" and r.name != "available_kv_cache_memory"
    ]
    rank = ranks.get(shown) or next(iter(ranks.values()), None)
    return Effect(
        change=change,
        dp=engine.dp,
        rank=rank.name if rank else "",
        version_before=startup.version.low,
        version_after=change.engine_version or startup.version.low,
        terms=stages[shown] + pool.rows,
        checks=checks,
        outcome=outcome_of(checks),
        notes=notes + found.notes + _risks(change) + _bands(found.model, stages[shown]),
        left_out=tuple(dict.fromkeys([*left, *pool.left_out])),
    )


def _stages(engine: EngineLedger) -> dict[int, RankLedger]:
    """Give one rank for each stage: the binding one, else the one with the smallest M; nodes may share a rank's name."""
    found: dict[int, RankLedger] = {}
    for rank in engine.ranks:
        if rank.name != "drafter":
            stage = rank.pp or 0
            both = (found.get(stage, rank), rank)
            found[stage] = min(both, key=lambda one: (one.name != engine.binding_rank, _pool(one)))
    return found


def _pool(rank: RankLedger) -> float:
    high = rank.account.interval("available_kv_cache_memory").high
    return float("inf") if high is None else high


def _account(ranks: Mapping[int, RankLedger], stage: int) -> Account:
    if stage in ranks:
        return ranks[stage].account
    return next(iter(ranks.values())).account if ranks else Account({}, {})


def _modelled(
    startup: StartUpLedger, engine: EngineLedger, config: Mapping[str, object] | None, card: str | None, change: Change,
    now: Setup, then: Setup,
) -> _Modelled:  # fmt: skip
    if config is None:
        return _Modelled(NO_CONFIG, None, None, "", ())
    notes: list[str] = []
    refusal = ""
    before = after = None
    try:
        launch = launch_of(startup, config, card, now.release)
        before = geometry_of(config, launch)
    except (Unsupported, BadSetting) as fault:
        notes.append(f"the planner does not know this launch: {fault}")
    except WouldNotStart as fault:
        return _Modelled(f"the config does not fit this log: {fault}", None, None, "", ())
    if before is not None and not _fits(engine, before):
        return _Modelled("the model's config does not fit this log's bytes per block", None, None, "", ())
    try:
        after = geometry_of(config, changed_launch(launch, change, then)) if before is not None else None
    except (Unsupported, BadSetting) as fault:
        notes.append(f"the planner does not know the launch after the change: {fault}")
    except WouldNotStart as fault:
        refusal = str(fault)
    if refusal:
        return _Modelled(refusal, before, None, refusal, ())
    model: Model | str
    try:
        asks = _needs_model(change, now, then) or now.may_compile or then.may_compile
        model = model_of(startup, config, card, change, now, then) if asks else ""
    except (Unsupported, BadSetting) as fault:
        model = str(fault)
    except WouldNotStart as fault:
        model = refusal = str(fault)
    return _Modelled(model, before, after, refusal, tuple(notes))


def _needs_model(change: Change, now: Setup, then: Setup) -> bool:
    """Whether some term moves by more than arithmetic."""
    asked = (change.tensor_parallel_size, change.pipeline_parallel_size, change.engine_version, change.quantization)
    batch = (change.max_num_batched_tokens, change.max_num_seqs)
    length = change.max_model_len if now.batched_tokens is None else None
    graphs = now.eager != then.eager or now.charged is not then.charged
    return any(v is not None for v in (*asked, *batch, length)) or graphs


def _fits(engine: EngineLedger, geometry: Geometry) -> bool:
    told = engine.capacity.interval("bytes_per_block")
    return any(told.contains(size) for size in geometry.per_block)


def _bands(model: Model | str, rows: Sequence[TermChange]) -> tuple[str, ...]:
    """Say what makes the model's bands wide, or leaves a term out of it, where one of them shows."""
    shown = any(row.kind == MODELLED for row in rows)
    return () if isinstance(model, str) or not shown else model.reasons


def _risks(change: Change) -> tuple[str, ...]:
    found = []
    if change.kv_cache_dtype is not None:
        found.append("another cache dtype may choose another attention backend; accuracy may drop without scales")
    if change.estimate_cudagraphs is False:
        found.append("graphs still take their memory, from what nobody set aside")
    if change.kv_cache_memory is not None:
        found.append("profiling is skipped: what the next start needs beside the pool must not grow")
    return tuple(found)
