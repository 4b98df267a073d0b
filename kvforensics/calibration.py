"""How well the model predicts start-ups whose logs exist: predicted, measured and error for each term."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from kvforensics.errors import UsageFault
from kvforensics.explanation import NothingToExplain, explain
from kvforensics.planning import NoConfig, config_of
from parsers.source import BinaryInput, UnreadableInput
from parsers.tuples import NamedTuple
from reconstruct.planner.errors import BadSetting, Unsupported
from reconstruct.predict.ledger import predict
from reconstruct.predict.non_torch import kind_of as launch_kind
from reconstruct.predict.observed import UntoldCard, observed, scenario_of, tells_settings
from reconstruct.predict.refit import Sample, graph_parts, left_out, refit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from reconstruct.interval import Interval
    from reconstruct.ledger import StartUpLedger
    from reconstruct.predict.ledger import Prediction
    from reconstruct.predict.observed import Observed
    from reconstruct.predict.refit import Refit


STAND_IN = "H100-80GB"
"""The card for logs that name none: only their weights are compared."""


class Row(NamedTuple):
    """One term of one rank: the band, the likeliest value, and what the log states."""

    log: str
    model: str
    release: str
    kind: str
    """`dense`, or what makes the model harder: `experts`, `quantised`, `latent`, `recurrent`, `images`, `adapters`."""
    rank: str
    term: str
    predicted: Interval
    expected: int
    measured: Interval
    ranks: str = ""
    """How the launch is spread: `TP2`, `PP2`, or nothing for one card."""
    launch: str = ""
    """The row of the non-torch table that it falls under."""

    @property
    def inside(self) -> bool:
        """Whether some value that the log allows lies in the band."""
        return self.predicted.meet(self.measured) is not None

    @property
    def error(self) -> float:
        """How far the likeliest value lies from the nearest value that the log allows, as a share of it."""
        return error_of(self.expected, self.measured)

    @property
    def width(self) -> float:
        """Half the band as a share of what was measured."""
        span = float(self.predicted.high or 0) - float(self.predicted.low or 0)
        return span / 2 / max(abs(float(self.measured.low or 0) + float(self.measured.high or 0)) / 2, 1.0)


def error_of(expected: int, measured: Interval) -> float:
    """Give how far a value lies from the nearest one that a log allows, as a share of what it states."""
    low, high = float(measured.low or 0), float(measured.high or 0)
    miss = expected - high if expected > high else expected - low if expected < low else 0.0
    return miss / max(abs(low + high) / 2, 1.0)


class Skipped(NamedTuple):
    """A log that was not compared, and why."""

    log: str
    reason: str


class Calibration(NamedTuple):
    """All rows, the constants refitted, and the logs without any.

    left_out: M once more with N as the other models' logs alone have it; the other terms of M are not fitted.
    """

    rows: tuple[Row, ...]
    left_out: tuple[Row, ...]
    refits: tuple[Refit, ...]
    skipped: tuple[Skipped, ...]


class Error(NamedTuple):
    """One term over many logs: how many figures, median and largest error, how many inside their band, median width."""

    term: str
    kind: str
    figures: int
    median: float
    largest: float
    inside: int
    width: float


def logs_of(paths: Iterable[Path]) -> list[Path]:
    """Every file of the given files and folders. Raises UsageFault for a path that is not there."""
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise UsageFault(f"{path}: no such log or folder")
        found += sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    return found


def calibrate(paths: Sequence[Path], card: str | None, configs: Path | None) -> Calibration:
    """Compare every start-up whose model's config is known with its prediction, and refit the constants."""
    rows: list[Row] = []
    samples: list[Sample] = []
    skipped: list[Skipped] = []
    for path in logs_of(paths):
        try:
            startups = explain(str(path)).startups
        except (NothingToExplain, BinaryInput, UnreadableInput) as fault:
            skipped.append(Skipped(path.name, str(fault)))
            continue
        for startup in startups:
            try:
                found, own = compared(path.name, startup, card, configs)
            except (Unsupported, NoConfig, BadSetting) as fault:
                skipped.append(Skipped(path.name, str(fault)))
                continue
            rows += found
            samples += own
            if not found:
                skipped.append(Skipped(path.name, "the log states no term with both ends"))
    return Calibration(tuple(rows), tuple(_left_out(rows, samples)), tuple(refit(samples)), tuple(skipped))


def _left_out(rows: Sequence[Row], samples: Sequence[Sample]) -> list[Row]:
    """Give the rows of M with N taken from other models."""
    found = []
    for i, row in enumerate(rows):
        if row.term != "available_kv_cache_memory":
            continue
        others = [r for r in rows[:i] if (r.log, r.rank, r.term) == (row.log, row.rank, "non_torch_increase")]
        value = left_out(samples, row.model, row.launch) if others else None
        if value is not None:
            found.append(row._replace(expected=row.expected + others[-1].expected - value))
    return found


def compared(
    log: str, startup: StartUpLedger, card: str | None, configs: Path | None
) -> tuple[list[Row], list[Sample]]:
    """Predict one start-up and pair each term with what its log states. Raises Unsupported, BadSetting or NoConfig."""
    model = startup.settings.text("model")
    if model is None:
        raise NoConfig("the log names no model")
    config = config_of(model, configs)
    whole = tells_settings(startup)
    try:
        scenario = scenario_of(startup, config, card)
    except UntoldCard:
        whole, scenario = False, scenario_of(startup, config, STAND_IN)
    prediction = predict(scenario)
    if prediction.engine is None:
        return [], []
    rows: list[Row] = []
    samples = []
    parts = graph_parts(startup)
    newest = _at_newest(startup, config, card) if not whole else None
    for own in observed(startup):
        if not whole:  # the weights alone do not depend on what the log leaves open
            terms = {name: i for name, i in own.terms.items() if name == "model_memory"}
            own = own._replace(terms=terms)  # noqa: PLW2901 - the narrowed one is the one to compare
        if own.stage < len(prediction.engine.ranks):
            rows += [_widened(row, newest) for row in _paired(log, model, prediction, own)]
            samples.append(Sample(model, prediction.subjects[own.stage], own.terms, parts))
    return rows, samples


def _at_newest(startup: StartUpLedger, config: Mapping[str, object], card: str | None) -> Prediction | None:
    """Give the prediction for the newest release that a log leaves open."""
    try:
        return predict(scenario_of(startup, config, card or STAND_IN, startup.version.high))
    except (Unsupported, BadSetting):
        return None


def _widened(row: Row, other: Prediction | None) -> Row:
    """Give a row whose band spans both releases that a log leaves open; the nearer one's likeliest value."""
    if other is None or other.engine is None:
        return row
    place = next((i for i, rank in enumerate(other.engine.ranks) if rank.account.get(row.term)), None)
    if place is None:
        return row
    band = row.predicted.hull(other.engine.ranks[place].account.interval(row.term))
    nearer = row._replace(expected=other.expected[place].get(row.term, row.expected))
    return (nearer if abs(nearer.error) < abs(row.error) else row)._replace(predicted=band)


def _paired(log: str, model: str, prediction: Prediction, own: Observed) -> list[Row]:
    engine = prediction.engine
    if engine is None:
        return []
    account, expected = engine.ranks[own.stage].account, prediction.expected[own.stage]
    found = []
    release, kind = prediction.scenario.launch.engine_version, kind_of(prediction)
    launch, ranks = launch_kind(prediction.subjects[own.stage]), _ranks(prediction)
    for term, measured in own.terms.items():
        quantity = account.get(term) or engine.capacity.get(term)
        if quantity is None or quantity.interval.low is None or quantity.interval.high is None:
            continue
        likely = expected.get(term)
        if likely is None:
            likely = _scaled(quantity.interval, prediction, own.stage)
        found.append(Row(log, model, release, kind, own.rank, term, quantity.interval, likely, measured, ranks, launch))
    return found


def _ranks(prediction: Prediction) -> str:
    launch = prediction.scenario.launch
    sizes = (("TP", launch.tensor_parallel_size), ("PP", launch.pipeline_parallel_size))
    return " ".join(f"{name}{size}" for name, size in sizes if size > 1)


def _scaled(interval: Interval, prediction: Prediction, stage: int) -> int:
    """Where in a capacity's band the likeliest M puts it: capacity grows evenly with M."""
    engine = prediction.engine
    low, high = float(interval.low or 0), float(interval.high or 0)
    if engine is None:
        return int(low)
    pool = engine.ranks[stage].account.interval("available_kv_cache_memory")
    least, most = float(pool.low or 0), float(pool.high or 0)
    share = (prediction.expected[stage]["available_kv_cache_memory"] - least) / (most - least) if most > least else 0.5
    return int(low + share * (high - low))


def kind_of(prediction: Prediction) -> str:
    """Tell what makes a model harder to predict than a dense, unquantised one."""
    from reconstruct.predict.scheme import scheme_of
    from reconstruct.predict.shape import shape_of

    scenario = prediction.scenario
    shape = shape_of(scenario.config)
    if scenario.lora:
        return "adapters"
    if shape.multimodal:
        return "images"
    if shape.trait.mixer != "mha":
        return "latent" if shape.trait.mixer == "latent" else "recurrent"
    if shape.experts:
        return "experts"
    return "dense" if scheme_of(scenario.config, scenario.quantization).kind == "none" else "quantised"


def summary(rows: Sequence[Row], *, by_kind: bool = False) -> list[Error]:
    """Errors of every term, over all rows or for each kind of model; rows that repeat a model and its figure count once."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.term, row.kind if by_kind else ""), []).append(row)
    found = []
    for (term, kind), members in groups.items():
        distinct = list({(r.model, r.release, r.predicted, r.measured): r for r in members}.values())
        errors = [abs(r.error) for r in distinct]
        inside, width = sum(r.inside for r in distinct), median(r.width for r in distinct)
        found.append(Error(term, kind, len(distinct), median(errors), max(errors), inside, width))
    return found
