"""Refitting the measured constants: small least squares, with the error of leaving one model out."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

TRIM = 4.0
"""Points further off than this many median deviations are outliers, reported but not fitted."""


class Point(NamedTuple):
    """One measurement: whose it is, the features that are to explain it, and its value."""

    group: str
    features: tuple[float, ...]
    value: float


class Fit(NamedTuple):
    """Coefficients in the features' order, how many points went in, how many were outliers, and errors left out.

    left_out_median, left_out_largest: errors on the fitted points of a group when the fit saw none of that group.
    """

    coefficients: tuple[float, ...]
    points: int
    outliers: int
    left_out_median: float
    left_out_largest: float


class TooFewPoints(ValueError):
    """The measurements do not determine the coefficients."""


def solve(points: Sequence[Point]) -> tuple[float, ...]:
    """Least squares by normal equations. Raises TooFewPoints where features do not vary enough.

    A feature that is zero in every point gets the coefficient zero.
    """
    if not points:
        raise TooFewPoints("no measurement of this term")
    size = len(points[0].features)
    used = [i for i in range(size) if any(p.features[i] for p in points)]
    rows = [[sum(p.features[i] * p.features[j] for p in points) for j in used] for i in used]
    for row, i in zip(rows, used, strict=True):
        row.append(sum(p.features[i] * p.value for p in points))
    _eliminate(rows)
    found = [0.0] * size
    for row, i in zip(rows, used, strict=True):
        found[i] = row[-1]
    return tuple(found)


def _eliminate(rows: list[list[float]]) -> None:
    """Bring an augmented matrix to the identity, in place."""
    for column in range(len(rows)):
        pivot = max(range(column, len(rows)), key=lambda r: abs(rows[r][column]))
        scale = max(abs(v) for v in rows[pivot]) or 1.0
        if abs(rows[pivot][column]) <= 1e-9 * scale:
            raise TooFewPoints("the measurements do not tell the features apart")
        rows[column], rows[pivot] = rows[pivot], rows[column]
        head = rows[column][column]
        rows[column] = [value / head for value in rows[column]]
        for other, row in enumerate(rows):
            if other != column and row[column]:
                factor = row[column]
                rows[other] = [v - factor * u for v, u in zip(row, rows[column], strict=True)]


def predicted(coefficients: Sequence[float], features: Sequence[float]) -> float:
    """Evaluate a fit at some features."""
    return sum(c * f for c, f in zip(coefficients, features, strict=True))


def trimmed(points: Sequence[Point]) -> tuple[list[Point], list[Point]]:
    """Split off outliers: points whose residual exceeds TRIM median deviations of a first fit."""
    first = solve(points)
    off = [abs(p.value - predicted(first, p.features)) for p in points]
    limit = TRIM * max(median(off), 1e-9)
    kept = [p for p, d in zip(points, off, strict=True) if d <= limit]
    return kept, [p for p, d in zip(points, off, strict=True) if d > limit]


def fit(points: Sequence[Point]) -> Fit:
    """Fit without outliers, and measure the error on each group that the fit did not see. Raises TooFewPoints."""
    kept, outliers = trimmed(points)
    coefficients = solve(kept)
    errors = []
    for group in dict.fromkeys(p.group for p in kept):
        rest = [p for p in kept if p.group != group]
        try:
            without = solve(rest)
        except TooFewPoints:
            continue
        errors += [abs(p.value - predicted(without, p.features)) for p in kept if p.group == group]
    if not errors:
        raise TooFewPoints("one model alone cannot be left out")
    return Fit(coefficients, len(kept), len(outliers), median(errors), max(errors))
