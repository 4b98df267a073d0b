"""The measured constants once more, from start-ups whose logs exist: what each would be, and how well it carries over."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.predict.constants import constant
from reconstruct.predict.fit import Point, TooFewPoints, fit
from reconstruct.predict.graphs import captured_layers, largest_rows, split_workspace
from reconstruct.predict.non_torch import baseline_kind, kind_of
from reconstruct.rounding import GIB, MIB

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from reconstruct.interval import Interval
    from reconstruct.ledger import StartUpLedger
    from reconstruct.predict.peak import Subject


class Sample(NamedTuple):
    """One rank of one start-up: what the model knows of it, what was measured, and the log's start-up."""

    model: str
    subject: Subject
    terms: dict[str, Interval]
    parts: dict[str, tuple[float, float]]
    """Per graph mode the first delta and each further one's, in MiB, where the log prints them."""


class Refit(NamedTuple):
    """One constant: its name, what ships, what these logs give, and the error of leaving one model out, in its unit."""

    name: str
    shipped: float
    fitted: float
    unit: str
    points: int
    outliers: int
    left_out_median: float
    left_out_largest: float


def graph_parts(startup: StartUpLedger) -> dict[str, tuple[float, float]]:
    """Give the deltas of the graph estimate, by mode (DEBUG lines of 0.18 on), as the first rank prints them."""
    found: dict[str, tuple[float, float]] = {}
    for statement in startup.log.of("graph_estimate_part"):
        mode, first, each = (statement.text(name) for name in ("mode", "first_capture", "each_graph"))
        if mode and first and each:
            found.setdefault(mode, (float(first), float(each)))
    return found


def _centre(interval: Interval) -> float:
    return (float(interval.low or 0) + float(interval.high or 0)) / 2


def refit(samples: Sequence[Sample]) -> list[Refit]:
    """Fit every constant that these start-ups bear on."""
    found = _graph_fits([s for s in samples if s.subject.settled.captured.largest])
    for name, term in (("non_torch", "non_torch_increase"), ("baseline", "initial_free_memory")):
        found += _medians(name, term, samples)
    return found


def _graph_fits(samples: Sequence[Sample]) -> list[Refit]:
    layers = [(s, float(s.subject.layers)) for s in samples]
    first = [
        _point(s, (1.0, largest_rows(s.subject)), s.parts["PIECEWISE"][0]) for s in samples if "PIECEWISE" in s.parts
    ]
    each = [_point(s, _second_features(s, n), s.parts["PIECEWISE"][1]) for s, n in layers if "PIECEWISE" in s.parts]
    full = [_point(s, _second_features(s, n), s.parts["FULL"][1]) for s, n in layers if "FULL" in s.parts]
    actual = [
        _point(
            s,
            _capture_features(s),
            _centre(s.terms["cudagraph_memory_actual"]) / MIB - split_workspace(s.subject) / MIB,
        )
        for s in samples
        if "cudagraph_memory_actual" in s.terms
    ]
    return [
        *_fitted(("graphs.first", "graphs.first_slope"), first),
        *_fitted(tuple(f"graphs.second{part}" for part in _SECOND), each),
        *_fitted(tuple(f"graphs.second_full{part}" for part in _SECOND), full),
        *_fitted(("graphs.fixed", "graphs.layer", "graphs.layer.experts", "graphs.layer.quantised"), actual),
    ]


_SECOND = ("", "_layer", "_layer.experts", "_layer.quantised")
"""The coefficients of a further graph's delta, by the ends of their names."""


def _second_features(sample: Sample, layers: float) -> tuple[float, ...]:
    return 1.0, layers, layers * _experts(sample), layers * _quantised(sample)


def _experts(sample: Sample) -> float:
    return 1.0 if sample.subject.shape.experts else 0.0


def _quantised(sample: Sample) -> float:
    return 0.0 if sample.subject.scheme.kind == "none" else 1.0


def _capture_features(sample: Sample) -> tuple[float, ...]:
    scaled = captured_layers(sample.subject)
    return 1.0, scaled, scaled * _experts(sample), scaled * _quantised(sample)


def _point(sample: Sample, features: tuple[float, ...], value: float) -> Point:
    return Point(sample.model, features, value)


def _fitted(names: tuple[str, ...], points: Sequence[Point]) -> list[Refit]:
    """One line for each coefficient of a fit; none where the logs do not determine it."""
    distinct = list(dict.fromkeys(points))
    try:
        found = fit(distinct)
    except TooFewPoints:
        return []
    return [
        Refit(
            name, constant(name).value, value, constant(name).unit, found.points, found.outliers,
            found.left_out_median, found.left_out_largest,
        )
        for name, value in zip(names, found.coefficients, strict=True)
    ]  # fmt: skip


def left_out(samples: Iterable[Sample], model: str, kind: str) -> int | None:
    """Give N, in bytes, as the other models' launches of this kind alone would have it; None where there are none."""
    own = [s for s in samples if s.model != model and kind_of(s.subject) == kind and "non_torch_increase" in s.terms]
    return round(median(_centre(s.terms["non_torch_increase"]) for s in own)) if own else None


def _medians(name: str, term: str, samples: Iterable[Sample]) -> list[Refit]:
    """Give a table's rows: the median of each kind of launch, and how far it is from models that it has not seen."""
    groups: dict[str, dict[str, list[float]]] = {}
    for sample in samples:
        if term in sample.terms:
            groups.setdefault(_kind(name, sample.subject), {}).setdefault(sample.model, []).append(
                _size(name, term, sample)
            )
    found = []
    for kind, by_model in groups.items():
        values = [v for own in by_model.values() for v in own]
        errors = []
        for model, own in by_model.items():
            rest = [v for other, vs in by_model.items() if other != model for v in vs]
            errors += [abs(v - median(rest)) for v in own] if rest else []
        shipped = constant(f"{name}.{kind}").value
        most = max(errors, default=0.0)
        found.append(
            Refit(
                f"{name}.{kind}",
                shipped,
                median(values),
                "GiB",
                len(values),
                0,
                median(errors) if errors else 0.0,
                most,
            )
        )
    return found


def _kind(name: str, subject: Subject) -> str:
    return kind_of(subject) if name == "non_torch" else baseline_kind(subject)


def _size(name: str, term: str, sample: Sample) -> float:
    value = _centre(sample.terms[term]) / GIB
    if name == "non_torch":
        return value
    total = sample.terms.get("total_memory") or sample.subject.hardware.total_memory
    return _centre(total) / GIB - value
