"""The calibrated model asked twice, as the start-up was and as it would be: terms of each stage, hulls over possible cards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.cards import UnknownCard, cards
from reconstruct.interval import Interval
from reconstruct.planner.errors import Unsupported, WouldNotStart
from reconstruct.predict.ledger import predict
from reconstruct.predict.observed import scenario_of
from reconstruct.quantities import BY_NAME
from reconstruct.whatif_setup import fits_itself

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from reconstruct.change import Change
    from reconstruct.ledger import StartUpLedger
    from reconstruct.planner.launch import Launch
    from reconstruct.predict.ledger import Prediction
    from reconstruct.predict.scenario import Scenario
    from reconstruct.whatif_setup import Setup

SOME_CARD = "H100-80GB"
"""Stands in where a log says nothing of its card: the planner asks a card for its attention kernels alone."""
MOST_CARDS = 4
"""More candidates than this make no useful band."""


class Model(NamedTuple):
    """What the model says of each stage, today and then, and what it leaves out."""

    now: tuple[dict[str, Interval], ...]
    then: tuple[dict[str, Interval], ...]
    reasons: tuple[str, ...]
    batched_tokens: tuple[int, int]
    sequences: tuple[int, int]

    def moved(self, name: str, stage: int, today: Interval) -> Interval | None:
        """Give a term after the change: its band, reaching further where today's figure lies outside today's band.

        None where the model has no such term.
        """
        now = self.now[min(stage, len(self.now) - 1)].get(name)
        then = self.then[stage].get(name)
        if then is None:
            return None
        low, high = then
        if now is not None and today.low is not None and now.high is not None and low is not None:
            high = None if high is None else high + max(0, today.low - now.high)
        if now is not None and today.high is not None and now.low is not None and low is not None:
            low -= max(0, now.low - today.high)
        least = BY_NAME[name].bound.low
        return Interval(low if least is None or low is None else max(low, least), high)


def scenarios(
    startup: StartUpLedger, config: Mapping[str, object], card: str | None, release: str
) -> tuple[Scenario, ...]:
    """Give the launch that the log states on each card that it may have run on.

    Raises Unsupported where cards cannot be told or the settings lie beyond the model.
    """
    try:
        return (scenario_of(startup, config, card, release),)
    except Unsupported:
        if card is not None:
            raise
    fitting = _candidates(startup)
    if not 0 < len(fitting) <= MOST_CARDS:
        raise Unsupported("the log names no card: say which with --gpu")
    return tuple(scenario_of(startup, config, name, release) for name in fitting)


def _candidates(startup: StartUpLedger) -> list[str]:
    """Give the cards whose total memory is the log's, one for each class of card."""
    from reconstruct.predict.hardware import hardware_of

    totals = [r.account.interval("total_memory") for e in startup.engines for r in e.ranks]
    total = next((t for t in totals if t.width is not None), None)
    if total is None:
        return []
    found: dict[object, str] = {}
    for one in cards():
        if one.total_memory.meet(total) is None:
            continue
        try:
            hardware = hardware_of(one.aliases[0])
        except UnknownCard:
            continue
        found.setdefault((hardware.family, hardware.multiprocessors), one.aliases[0])
    return list(found.values())


def launch_of(startup: StartUpLedger, config: Mapping[str, object], card: str | None, release: str) -> Launch:
    """Give the planner's settings as the log states them. Raises Unsupported."""
    try:
        launch = scenarios(startup, config, card, release)[0].launch
    except Unsupported:
        launch = scenario_of(startup, config, SOME_CARD, release).launch
    return launch._replace(autofit=fits_itself(startup))


def changed_launch(launch: Launch, change: Change, then: Setup) -> Launch:
    """Give the planner's settings after the change."""
    return launch._replace(
        engine_version=then.release,
        use_v1=then.eras[0].engine == "V1",
        kv_cache_dtype=change.kv_cache_dtype or launch.kv_cache_dtype,
        max_model_len=change.max_model_len or launch.max_model_len,
        autofit=launch.autofit and change.max_model_len is None,
        max_num_batched_tokens=change.max_num_batched_tokens or launch.max_num_batched_tokens,
        max_num_seqs=change.max_num_seqs or launch.max_num_seqs,
        tensor_parallel_size=change.tensor_parallel_size or launch.tensor_parallel_size,
        pipeline_parallel_size=change.pipeline_parallel_size or launch.pipeline_parallel_size,
        block_size=change.block_size or launch.block_size,
    )


def _changed(scenario: Scenario, change: Change, then: Setup) -> Scenario:
    utilization = then.utilization.low if then.utilization.is_point else scenario.gpu_memory_utilization
    same_release = change.engine_version is None
    return scenario._replace(
        launch=changed_launch(scenario.launch, change, then),
        gpu_memory_utilization=None if utilization is None else float(utilization),
        batched_tokens_given=scenario.batched_tokens_given or change.max_num_batched_tokens is not None,
        enforce_eager=then.eager,
        quantization=change.quantization or scenario.quantization,
        charge_graphs=then.switched if then.charged is None else then.charged,
        runner=scenario.runner if same_release else None,
        compiles=then.compiles,
        cache_bytes=then.pool,
        fixed=scenario.fixed if same_release and change.gpu_memory_utilization is None else (),
    )


def model_of(
    startup: StartUpLedger, config: Mapping[str, object], card: str | None, change: Change, now: Setup, then: Setup
) -> Model:
    """Ask the model on every card that fits. Raises Unsupported, and WouldNotStart where the engine refuses the change."""
    before, after = [], []
    for scenario in scenarios(startup, config, card, now.release):
        today = scenario._replace(charge_graphs=now.charged, cache_bytes=None)
        before.append(_predicted(today))
        after.append(_predicted(_changed(scenario, change, then)._replace(cache_bytes=None)))
    settled = [(p.settled, q.settled) for p, q in zip(before, after, strict=True)]
    first, second = settled[0]
    if first is None or second is None:
        raise Unsupported("the model has no settings for this launch")
    reasons = tuple(dict.fromkeys(r for p in after for r in p.reasons))
    return Model(
        _bands(before), _bands(after), reasons,
        (first.batched_tokens, second.batched_tokens), (first.sequences, second.sequences),
    )  # fmt: skip


def _predicted(scenario: Scenario) -> Prediction:
    found = predict(scenario)
    if found.engine is None:
        failing = found.failing
        raise WouldNotStart(failing.detail if failing else "the engine refuses this launch")
    return found


def _bands(predictions: Sequence[Prediction]) -> tuple[dict[str, Interval], ...]:
    """Give each stage's terms: every value that the model allows on any of the cards."""
    stages: list[dict[str, Interval]] = []
    for prediction in predictions:
        if prediction.engine is None:
            continue
        for i, rank in enumerate(prediction.engine.ranks):
            if i == len(stages):
                stages.append({})
            for name, quantity in rank.account.quantities.items():
                held = stages[i].get(name)
                stages[i][name] = held.hull(quantity.interval) if held else quantity.interval
    return tuple(stages)
