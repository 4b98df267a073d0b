"""What one engine's solution starts from: its ranks, every claim about them, and which equations have what terms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.ranks import NAMELESS
from parsers.startups import identity
from parsers.template import whole_number
from parsers.tuples import NamedTuple
from reconstruct.cache_groups import cache_groups
from reconstruct.equations import Shape
from reconstruct.evidence import (
    EXPLICIT_POOL,
    block_size,
    graph_share,
    of_engine,
    of_overrides,
    of_rank,
    of_settings,
    overrides,
)
from reconstruct.interval import ANYTHING, Interval
from reconstruct.quantities import BY_NAME
from reconstruct.relations import Term
from reconstruct.releases import index
from reconstruct.solver import Evidence

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from parsers.launch_settings import Settings
    from parsers.startups import EngineLog, StartUpLog
    from reconstruct.eras import Era
    from reconstruct.releases import Span

PLAIN_LOAD_FORMATS = frozenset(
    ("LoadFormat.AUTO", "auto", "bitsandbytes", "dummy", "gguf", "hf", "mistral", "npcache", "pt", "runai_streamer",
     "safetensors", "sharded_state", "tensorizer", "fastsafetensors")
)  # fmt: skip
"""Loaders that keep no weights in another process (model_executor/model_loader, 0.32)."""


class Given(NamedTuple):
    """A fact that the user adds to a log."""

    name: str
    interval: Interval
    origin: str = "given"
    """`given`, or `catalogue` where the user named a card and a table gave the figure."""
    note: str = ""


class Facts(NamedTuple):
    """What one engine's solution starts from, whatever the era."""

    engine: EngineLog
    ranks: tuple[int, ...]
    pooled: tuple[int, ...]
    all_ranks: bool
    world: int
    stages: int | None
    alone: bool


def facts_of(engine: EngineLog, settings: Settings, *, alone: bool) -> Facts:
    """Gather one engine's facts. `alone`: whether the launch has no other engine."""
    ranks = tuple(i for i, r in enumerate(engine.ranks) if r.name != "drafter")
    pooled = tuple(i for i in ranks if engine.ranks[i].dp is not None and not engine.ranks[i].name.startswith(NAMELESS))
    tp, pp = settings.number("tensor_parallel_size"), settings.number("pipeline_parallel_size")
    world = (tp or 1) * (pp or 1)
    if tp is None and pp is None and alone:
        world = max(_world(engine), len(pooled))
    known = tp is not None or (len(ranks) == 1 and engine.ranks[ranks[0]].name.startswith("EngineCore"))
    return Facts(engine, ranks, pooled, known and len(pooled) >= world, world, _stages(engine, ranks, settings), alone)


def _stages(engine: EngineLog, ranks: tuple[int, ...], settings: Settings) -> int | None:
    """Give the pipeline stages: as stated, or one where the workers' names would show more (0.10.1 on); else None."""
    told = settings.number("pipeline_parallel_size")
    if told is not None or settings.lists_changes or settings.lists_all:
        return told or 1
    places = [identity(engine.ranks[i].name) for i in ranks]
    alone = len(places) <= 1 and not any(place.role == "worker" for place in places)
    return 1 if alone or all(place.tp is not None and place.pp is None for place in places) else None


def _world(engine: EngineLog) -> int:
    """Give how many workers the lines of rank and world speak of, where no settings do."""
    told = {whole_number(s.text("world_size")) or 1 for s in engine.statements if s.kind in {"rank", "world"}}
    return max(told, default=1)


def _charged(engine: EngineLog, era: Era, settings: Settings) -> bool | None:
    """Whether the estimate was charged: one environment variable for all ranks of a launch."""
    kinds = {s.kind for rank in engine.ranks for s in rank.statements}
    if era.estimate == "none" or settings.get("enforce_eager") is True or "graph_not_charged" in kinds:
        return False
    return True if "graph_charged" in kinds else None


def is_alone(log: StartUpLog, settings: Settings) -> bool:
    """Whether the launch has one engine: no second one in the log, and none asked for."""
    return len(log.engines) == 1 and (settings.number("data_parallel_size") or 1) == 1


def _meeting(evidence: Iterable[Evidence], term: Term) -> Interval:
    met: Interval = ANYTHING
    for item in evidence:
        if item.term == term:
            met = met.meet(item.interval) or met
    return met


def _lowest(evidence: Iterable[Evidence], name: str) -> Interval:
    """Give the interval of the smallest of several workers' figures, or the engine's own."""
    found = sorted(i.interval for i in evidence if i.term.name == name and i.interval.low is not None)
    return found[0] if found else ANYTHING


def claims(
    facts: Facts, log: StartUpLog, era: Era, span: Span, settings: Settings, given: Sequence[Given]
) -> list[Evidence]:
    """Give every claim about one engine: its lines, its settings, its release's defaults, and what the user adds."""
    engine = facts.engine
    found: list[Evidence] = []
    by_worker = any(s.kind in {"tokens", "concurrency", "blocks"} for r in engine.ranks for s in r.statements)
    found += of_engine(engine, era, facts.world, alone=facts.alone, by_worker=by_worker)
    found += of_overrides(engine, facts.world, era)
    for i, rank in enumerate(engine.ranks):
        found += of_rank(rank.statements, i, era)
    capacity_length = any(e.term.name == "max_model_len" for e in found)
    found += of_settings(settings, era, facts.ranks, capacity_length=capacity_length)
    utilization = _meeting(found, Term("gpu_memory_utilization"))
    for i in facts.ranks:
        found += graph_share(engine.ranks[i].statements, utilization, i)
        found += _assumed(facts, log, i, era, span, settings)
    tokens = [int(e.interval.low) for e in found if e.term.name == "kv_cache_tokens" and e.interval.low is not None]
    found += block_size(
        engine, settings, engine_version_high=span.high, tokens=tokens if era.tokens in {"blocks", "groups"} else ()
    )
    for fact in given:
        where = facts.ranks if BY_NAME[fact.name].scope == "rank" else (None,)
        found += [Evidence(Term(fact.name, r), fact.interval, fact.origin, (), fact.note) for r in where]
    return found


def _assumed(facts: Facts, log: StartUpLog, rank: int, era: Era, span: Span, settings: Settings) -> list[Evidence]:
    """Give the terms that a release does not have, or that its settings leave at nothing.

    One rank of a node speaks for its neighbours: where any rank has such a term, no other is taken to have none.
    """
    found = []
    kinds = {s.kind for s in log.statements}
    zero = Interval.exactly(0)
    if _charged(facts.engine, era, settings) is False:
        found.append(Evidence(Term("cudagraph_memory_applied", rank), zero, "config"))
    no_reservation = settings.lists_changes and settings.get("mm_ipc_gpu_memory_gb") is None
    if "mm_reservation" not in kinds and (not era.reservation or no_reservation):
        found.append(Evidence(Term("mm_ipc_reservation", rank), zero, "default"))
    if span.high >= index("0.32.0") and not _may_be_external(kinds, span, settings):
        found.append(Evidence(Term("external_weight_memory", rank), zero, "default"))
    return found


def _may_be_external(kinds: set[str], span: Span, settings: Settings) -> bool:
    if span.high < index("0.32.0"):
        return False
    if kinds & {"external_weights", "external_exceeds"}:
        return True
    return settings.text("load_format") not in PLAIN_LOAD_FORMATS


def shape_of(
    facts: Facts, log: StartUpLog, era: Era, span: Span, settings: Settings, evidence: Sequence[Evidence]
) -> Shape:
    """Give what decides which equations hold for one engine."""
    engine = facts.engine
    kinds = {s.kind for r in engine.ranks for s in r.statements}
    started = bool(
        kinds & {"available", "cpu_auto", "free_after", "graph_pool", "initial_free", "profile", "usage", "weights"}
    )
    refused = "free_below_requested" in kinds or "external_exceeds" in kinds
    explicit = bool(kinds & EXPLICIT_POOL)
    groups = cache_groups(
        log,
        era,
        tokens=_lowest(evidence, "kv_cache_tokens"),
        concurrency=_lowest(evidence, "max_concurrency"),
        length=_lowest(evidence, "max_model_len"),
        size=_meeting(evidence, Term("block_size")),
    )
    told = [s.text("context_parallel_size") for s in engine.statements if s.kind == "context_parallel"]
    return Shape(
        ranks=facts.ranks,
        pooled=facts.pooled,
        all_ranks=facts.all_ranks,
        stages=facts.stages,
        started=started and not refused,
        charged=_charged(engine, era, settings),
        explicit_pool=explicit or settings.number("kv_cache_memory_bytes") is not None,
        overridden=bool(overrides(engine)) or settings.number("num_gpu_blocks_override") is not None,
        cache_groups=groups.number,
        context_parallel=whole_number(told[0] if told else None)
        or settings.number("decode_context_parallel_size")
        or 1,
        workers_tokens=tuple(
            i for i, r in enumerate(engine.ranks) if any(s.kind in {"tokens", "blocks"} for s in r.statements)
        ),
        all_workers=not any(r.name.startswith(NAMELESS) for r in engine.ranks),
        whole_length=groups.whole_length,
        merged_layers=bool(log.of("hybrid_manager_disabled"))
        or settings.get("disable_hybrid_kv_cache_manager") is True,
        charges_external=_may_be_external({s.kind for s in log.statements}, span, settings),
    )
