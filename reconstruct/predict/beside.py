"""What the model of `plan` has of a start-up whose lines leave terms open: figures beside the ledger, never part of it."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from reconstruct.ledger import Quantity, is_measured
from reconstruct.planner.errors import BadSetting, Unsupported
from reconstruct.predict.observed import scenario_of, tells_settings
from reconstruct.predict.scenario import Fixed
from reconstruct.releases import RELEASES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from reconstruct.interval import Interval
    from reconstruct.ledger import Account, RankLedger, StartUpLedger
    from reconstruct.predict.scenario import Scenario

    StagesOf = Callable[[Interval], tuple[tuple[Account, ...], ...]]
    """From a rank's weights to the predicted accounts of every stage, for each release that a log leaves open."""

CONSUMED, OTHER, PEAK = "total_consumed", "non_torch_increase", "transient_peak_headroom"
TERMS = (CONSUMED, OTHER, PEAK)
"""C, N and H: what INFO lines of 0.11 to 0.25 leave open."""


def beside(startup: StartUpLedger, config: Mapping[str, object], card: str | None) -> StartUpLedger:
    """Give the ledger with the model's figures beside its ranks' terms; the ledger's own figures stay as they are.

    Nothing is added where the log does not tell the launch, the card or the release closely enough, where the model
    does not know a start-up of its kind, or where the lines contradict it.
    """
    if not _tells_enough(startup):
        return startup
    span = startup.version.span
    try:
        scenarios = [scenario_of(startup, config, card, RELEASES[place]) for place in {span.low, span.high}]
        stages_of = _stages_of(scenarios)
        loaded = _stages_of([one._replace(compiles=False) for one in scenarios]) if scenarios[0].compiles else None
        engines = tuple(e._replace(ranks=tuple(_rank(r, stages_of, loaded) for r in e.ranks)) for e in startup.engines)
    except (Unsupported, BadSetting):
        return startup
    return startup._replace(engines=engines)


def _tells_enough(startup: StartUpLedger) -> bool:
    """Whether a log tells what was launched, one known way to charge it, and no two totals."""
    charges = {era.charge for era in startup.eras}
    alike = len(charges) == 1 and charges <= {"terms", "consumed"}
    return alike and tells_settings(startup) and all(c.quantity != "total_memory" for c in startup.conflicts)


def _stages_of(scenarios: Sequence[Scenario]) -> StagesOf:
    from reconstruct.predict.ledger import predict

    @cache
    def accounts(weights: Interval) -> tuple[tuple[Account, ...], ...]:
        stated = Fixed("model_memory", weights, "printed")
        found = [predict(one._replace(fixed=(*one.fixed, stated))).engine for one in scenarios]
        return tuple(tuple(rank.account for rank in engine.ranks) for engine in found if engine is not None)

    return accounts


def _rank(rank: RankLedger, stages_of: StagesOf, loaded: StagesOf | None) -> RankLedger:
    """Add the figures of a rank whose weights and stage are known; `loaded` where the start compiled."""
    weights = rank.account.interval("model_memory")
    if weights.width is None or rank.name == "drafter":
        return rank
    every = stages_of(weights)
    if not every or any((rank.pp or 0) >= len(stages) or (rank.pp is None and len(stages) > 1) for stages in every):
        return rank
    figures = _figures(rank.account, [stages[rank.pp or 0] for stages in every])
    if not figures or loaded is None:
        return rank._replace(modelled=figures)
    peaks = [stages[rank.pp or 0].interval(PEAK) for stages in loaded(weights)]
    return rank._replace(modelled=figures, loaded_peak=_hull(peaks))


def _figures(account: Account, predicted: Sequence[Account]) -> tuple[Quantity, ...]:
    """Give the model's bands within what the lines allow; none at all where an open term, or C + H, is outside its band.

    The peak keeps its band where it is measured: a start may have peaked above it. From 0.27.0 on no log has N.
    """
    consumes = all(one.get("torch_peak_increase") is None for one in predicted)
    terms = (CONSUMED, PEAK) if consumes else TERMS
    open_terms = [name for name in terms if not is_measured(account.interval(name))]
    bands = {name: _hull([one.interval(name) for one in predicted]) for name in (*open_terms, PEAK)}
    for name in open_terms:
        own = bands[name].meet(account.interval(name))
        if own is None:
            return ()
        bands[name] = own
    if CONSUMED in bands and PEAK in open_terms:
        both = account.interval("non_kv_cache_memory")
        consumed = bands[CONSUMED].meet(both.minus(bands[PEAK]))
        peak = bands[PEAK].meet(both.minus(bands[CONSUMED]))
        if consumed is None or peak is None:
            return ()
        bands |= {CONSUMED: consumed, PEAK: peak}
    if {CONSUMED, OTHER} <= bands.keys():
        rest = bands[CONSUMED].minus(account.interval("model_memory"))
        bands[OTHER] = bands[OTHER].meet(rest) or bands[OTHER]
    return tuple(Quantity(name, band, "B", "modelled") for name, band in bands.items() if band.width is not None)


def _hull(intervals: Sequence[Interval]) -> Interval:
    found = intervals[0]
    for one in intervals[1:]:
        found = found.hull(one)
    return found
