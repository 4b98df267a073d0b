"""From a start-up's statements to its ledger."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from parsers.launch_settings import read
from parsers.tuples import NamedTuple
from reconstruct.equations import equations
from reconstruct.eras import possible
from reconstruct.facts import claims, facts_of, is_alone, shape_of
from reconstruct.geometry import Geometry, Layout, NoGeometry, evidence_of, model_lines, planner_for, without_defaults
from reconstruct.interval import ANYTHING, Interval
from reconstruct.joining import Joined, Solved, geometry_ledger, withdrawal
from reconstruct.ledger import Account, Claim, Conflict, EngineLedger, Missing, Quantity, RankLedger, StartUpLedger
from reconstruct.missing import reason
from reconstruct.outcome import outcome
from reconstruct.quantities import BY_NAME, ENGINE, RANK, sure_bounds
from reconstruct.relations import Term
from reconstruct.solver import solve
from reconstruct.stated_release import engines_possible, version_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from parsers.launch_settings import Settings
    from parsers.record import Record
    from parsers.startups import StartUpLog
    from reconstruct.eras import Era
    from reconstruct.facts import Facts, Given
    from reconstruct.geometry import Geometries, Planner
    from reconstruct.releases import EngineVersion, Span


class _Engine(NamedTuple):
    """What is solved about one engine."""

    facts: Facts
    log: StartUpLog
    settings: Settings
    given: Sequence[Given]
    planner: Planner | NoGeometry

    def solved(self, era: Era, span: Span, *, joined: bool) -> Solved:
        """Solve under one era, with the geometry's figures or without."""
        facts, settings = self.facts, self.settings
        evidence = claims(facts, self.log, era, span, settings, self.given)
        shape = shape_of(facts, self.log, era, span, settings, evidence)
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
    eras = possible(version.span, engines_possible(engine.log, version.span))
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


def _binding(facts: Facts, ranks: Sequence[RankLedger], solved: Sequence[Solved]) -> str | None:
    """Give the rank with the fewest blocks: the only one, or the one whose pool is surely the smallest."""
    if not facts.all_ranks or (len(facts.ranks) > 1 and facts.stages != 1):
        return None
    pools = {
        i: reduce(Interval.hull, (s.solution.values.get(Term("rank_pool_memory", i), ANYTHING) for s in solved))
        for i in facts.ranks
    }
    least = (i for i in pools if all(_surely_no_larger(pools[i], pools[other]) for other in pools if other != i))
    return next((ranks[i].name for i in least), None)


def _surely_no_larger(pool: Interval, other: Interval) -> bool:
    return pool.high is not None and other.low is not None and pool.high <= other.low


def _residual(facts: Facts, solved: Sequence[Solved]) -> Interval | None:
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


def _engine_ledger(solved: Sequence[Solved], facts: Facts) -> EngineLedger:
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
        _Engine(facts_of(e, settings, alone=is_alone(log, settings)), log, settings, given, planner)
        for e in log.engines
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
