"""From a start-up's statements to its ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.launch_settings import read
from parsers.ranks import NAMELESS
from parsers.startups import identity
from parsers.template import whole_number
from parsers.tuples import NamedTuple
from reconstruct.cache_groups import cache_groups
from reconstruct.equations import Shape, equations
from reconstruct.eras import FIRST_V1, LAST_V0, possible
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
from reconstruct.geometry import Geometry, Layout, NoGeometry, evidence_of, model_lines, planner_for, without_defaults
from reconstruct.interval import ANYTHING, Interval
from reconstruct.joining import Joined, Solved, geometry_ledger, withdrawal
from reconstruct.ledger import Account, Claim, Conflict, EngineLedger, Missing, Quantity, RankLedger, StartUpLedger
from reconstruct.missing import reason
from reconstruct.outcome import outcome
from reconstruct.quantities import BY_NAME, ENGINE, RANK, sure_bounds
from reconstruct.relations import Term
from reconstruct.releases import index, narrow
from reconstruct.solver import Evidence, solve

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from parsers.launch_settings import Settings
    from parsers.record import Record
    from parsers.startups import EngineLog, StartUpLog
    from reconstruct.eras import Era
    from reconstruct.geometry import Geometries, Planner
    from reconstruct.releases import EngineVersion, Span

V0_KINDS = frozenset(("engine_config_v0", "v0_budget", "v0_profile_064", "v0_terms", "cpu_blocks"))
V1_KINDS = frozenset(
    (
        "available", "engine_config_v1", "explicit_kv_memory", "free_after", "graph_estimate", "graph_pool", "need",
        "profile", "requested", "snapshot", "tokens", "usage", "usage_consumed",
    )
)  # fmt: skip
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


class _Facts(NamedTuple):
    """What one engine's solution starts from, whatever the era."""

    engine: EngineLog
    ranks: tuple[int, ...]
    pooled: tuple[int, ...]
    all_ranks: bool
    world: int
    stages: int | None
    alone: bool


def _engines_possible(log: StartUpLog, span: Span) -> tuple[str, ...]:
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


def _facts(engine: EngineLog, settings: Settings, *, alone: bool) -> _Facts:
    ranks = tuple(i for i, r in enumerate(engine.ranks) if r.name != "drafter")
    pooled = tuple(i for i in ranks if engine.ranks[i].dp is not None and not engine.ranks[i].name.startswith(NAMELESS))
    tp, pp = settings.number("tensor_parallel_size"), settings.number("pipeline_parallel_size")
    world = (tp or 1) * (pp or 1)
    if tp is None and pp is None and alone:
        world = max(_world(engine), len(pooled))
    known = tp is not None or (len(ranks) == 1 and engine.ranks[ranks[0]].name.startswith("EngineCore"))
    return _Facts(engine, ranks, pooled, known and len(pooled) >= world, world, _stages(engine, ranks, settings), alone)


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


def _is_alone(log: StartUpLog, settings: Settings) -> bool:
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


def _evidence(
    facts: _Facts, log: StartUpLog, era: Era, span: Span, settings: Settings, given: Sequence[Given]
) -> list[Evidence]:
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


def _assumed(facts: _Facts, log: StartUpLog, rank: int, era: Era, span: Span, settings: Settings) -> list[Evidence]:
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


def _shape(
    facts: _Facts, log: StartUpLog, era: Era, span: Span, settings: Settings, evidence: Sequence[Evidence]
) -> Shape:
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


class _Engine(NamedTuple):
    """What is solved about one engine."""

    facts: _Facts
    log: StartUpLog
    settings: Settings
    given: Sequence[Given]
    planner: Planner | NoGeometry

    def solved(self, era: Era, span: Span, *, joined: bool) -> Solved:
        """Solve under one era, with the geometry's figures or without."""
        facts, settings = self.facts, self.settings
        evidence = _evidence(facts, self.log, era, span, settings, self.given)
        shape = _shape(facts, self.log, era, span, settings, evidence)
        planner = self.planner
        layout = planner if isinstance(planner, NoGeometry) else planner.layout(era, span)
        if joined and isinstance(layout, Layout) and not isinstance(planner, NoGeometry):
            stages = {i: facts.engine.ranks[i].pp for i in facts.ranks}
            evidence = without_defaults(evidence) if layout.block_size is not None else evidence
            evidence += evidence_of(layout, era, stages, planner.geometry.origin, model_lines(settings))
            shape = shape._replace(cache_groups=layout.groups, whole_length=layout.whole_length)
        relations = equations(era, shape)
        terms = {t for r in relations for t in r.terms} | {e.term for e in evidence}
        return Solved(era, span, shape, solve(evidence, relations, sure_bounds(terms)), layout)


def _fewest_clashes(solved: Sequence[Solved]) -> list[Solved]:
    """Leave out the eras that the figures contradict."""
    fewest = min(len(s.solution.clashes) for s in solved)
    return [s for s in solved if len(s.solution.clashes) == fewest]


def _joined(engine: _Engine, version: EngineVersion) -> Joined:
    """Solve under every era that the log leaves open; a geometry that only adds contradictions is taken out again."""
    eras = possible(version.span, _engines_possible(engine.log, version.span))
    dp = engine.facts.engine.dp
    kept = _fewest_clashes([engine.solved(era, span, joined=True) for era, span in eras])
    if not any(isinstance(s.layout, Layout) for s in kept):
        return Joined(dp, kept, kept[0])
    base = engine.solved(kept[0].era, kept[0].span, joined=False)
    if len(kept[0].solution.clashes) <= len(base.solution.clashes):
        return Joined(dp, kept, base)
    bare = _fewest_clashes([engine.solved(era, span, joined=False) for era, span in eras])
    return Joined(dp, bare, base, kept[0])


def _quantity(term: Term, solved: Sequence[Solved]) -> Quantity | None:
    interval: Interval | None = None
    for item in solved:
        value = item.solution.values.get(term, ANYTHING)
        interval = value if interval is None else interval.hull(value)
    first = solved[0].solution
    claims, steps = first.evidence.get(term, ()), first.steps.get(term, ())
    if interval is None or interval == ANYTHING or not (claims or steps):
        return None
    if not claims and interval.high is None and interval.low in {None, 0, 1}:
        return None  # no more than the sign
    unit = BY_NAME[term.name].unit
    inputs = tuple(dict.fromkeys(t.name for step in steps for t in step.inputs))
    equation = "; ".join(step.relation for step in steps)
    printed = [c for c in claims if c.origin == "printed"]
    if printed:
        lines = tuple(sorted({line for c in printed for line in c.lines}))
        return Quantity(term.name, interval, unit, "printed", lines, inputs, equation)
    if claims:
        return Quantity(term.name, interval, unit, claims[0].origin, first.lines(term), inputs, equation)
    return Quantity(term.name, interval, unit, "derived", first.lines(term), inputs, equation)


def _account(names: Iterable[str], rank: int | None, solved: Sequence[Solved]) -> Account:
    quantities: dict[str, Quantity] = {}
    missing: dict[str, Missing] = {}
    for name in names:
        found = _quantity(Term(name, rank), solved)
        if found:
            quantities[name] = found
        elif rank is None or BY_NAME[name].scope == "rank":
            missing[name] = Missing(name, reason(name, solved[0].era, solved[0].span, solved[0].shape))
    return Account(quantities, missing)


def _binding(facts: _Facts, ranks: Sequence[RankLedger], solved: Sequence[Solved]) -> str | None:
    """Give the rank with the fewest blocks: the only one, or the one whose pool is surely the smallest."""
    own = [(ranks[i], solved[0].solution.values.get(Term("rank_pool_memory", i), ANYTHING)) for i in facts.ranks]
    if len(own) == 1 and facts.all_ranks:
        return own[0][0].name
    bounded = [(rank, pool) for rank, pool in own if pool.high is not None]
    if facts.stages != 1 or not facts.all_ranks or not bounded or len(bounded) < len(own):
        return None
    return min(bounded, key=lambda item: (item[1].high or 0, item[1].low or 0))[0].name


def _residual(facts: _Facts, solved: Sequence[Solved]) -> Interval | None:
    """Give M - (R - C - H - G) of the first rank from the claims alone, before the equation narrowed them."""
    from reconstruct.solver import agreed

    solution = solved[0].solution
    names = ("requested_memory", "total_consumed", "transient_peak_headroom", "cudagraph_memory_applied")
    for i in facts.ranks:
        claims = [solution.evidence.get(Term("available_kv_cache_memory", i), ())]
        m = agreed(claims[0]) if claims[0] else ANYTHING
        parts = [solution.values.get(Term(n, i), ANYTHING) for n in names]
        if m.width is None or any(p.width is None for p in parts):
            continue
        return m.minus(parts[0]).plus(parts[1]).plus(parts[2]).plus(parts[3])
    return None


def _conflicts(solved: Sequence[Solved]) -> list[Conflict]:
    found = []
    for clash in solved[0].solution.clashes:
        claims = tuple(Claim(c.interval, c.origin, c.lines) for c in clash.claims)
        found.append(Conflict(clash.term.name, claims, clash.note))
    return found


def _engine_ledger(solved: Sequence[Solved], facts: _Facts) -> EngineLedger:
    ranks = []
    per_rank = ("bytes_per_block", "num_blocks", "kv_cache_tokens", "max_concurrency")
    for i, log in enumerate(facts.engine.ranks):
        names = [k.name for k in RANK] + list(per_rank) if log.name != "drafter" else ["model_memory"]
        ranks.append(RankLedger(log.name, log.dp, log.pp, log.tp, log.node, _account(names, i, solved)))
    capacity = _account([k.name for k in ENGINE], None, solved)
    return EngineLedger(
        facts.engine.dp, tuple(ranks), capacity, _binding(facts, ranks, solved), _residual(facts, solved)
    )


def card_given(given: Sequence[Given]) -> str | None:
    """Give the card that the user named, if any."""
    return next((g.note for g in given if g.origin == "catalogue" and g.note), None)


def rebuild(
    log: StartUpLog,
    unread: Sequence[Record] = (),
    given: Sequence[Given] = (),
    geometries: Geometries | None = None,
) -> StartUpLedger:
    """Rebuild the ledger of one start-up.

    Every figure is the narrowest interval that the printed lines, the settings and `given` facts allow under each era
    that the log leaves open. `geometries` adds what the model's config says of its cache, where one is found: without
    it, or where its figures contradict the log, the log speaks alone.
    """
    settings = read(log)
    version = version_of(log)
    result = outcome(log)
    card = card_given(given)
    geometry = geometries.of(settings.text("model")) if geometries else NoGeometry("none was asked for")
    planner = planner_for(geometry, log, settings, version, card)
    engines = [
        _Engine(_facts(e, settings, alone=_is_alone(log, settings)), log, settings, given, planner) for e in log.engines
    ]
    found = [_joined(engine, version) for engine in engines]
    conflicts = [c for joined in found for c in _conflicts(joined.kept)]
    withdrawn = [
        withdrawal(j.dp, j.withdrawn, j.base, geometry.origin)
        for j in found
        if j.withdrawn and isinstance(geometry, Geometry)
    ]
    if settings.lists_changes or settings.lists_all:
        conflicts += withdrawn  # else an override may be in force whose lines are not there
    return StartUpLedger(
        log,
        version,
        tuple(dict.fromkeys(s.era for joined in found for s in joined.kept)),
        result,
        settings,
        tuple(_engine_ledger(j.kept, e.facts) for e, j in zip(engines, found, strict=True)),
        tuple(conflicts),
        tuple(unread),
        geometry_ledger(geometry, planner, found, withdrawn, settings) if geometries else None,
    )
