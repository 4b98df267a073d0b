"""Least squares with outliers and models left out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconstruct.predict.fit import Point, TooFewPoints, fit, predicted, solve

NUMBERS = st.floats(-100, 100, allow_nan=False)


@given(NUMBERS, NUMBERS, st.lists(st.integers(1, 90), min_size=3, max_size=12, unique=True))
def test_a_line_is_found_again(offset, slope, places):
    """Points on a line give the line."""
    points = [Point(str(x), (1.0, float(x)), offset + slope * x) for x in places]
    found = solve(points)
    assert all(abs(predicted(found, p.features) - p.value) < 1e-5 for p in points)


def test_an_outlier_is_reported_and_not_fitted():
    """One estimate of a gigabyte among small ones does not bend the line."""
    points = [Point(str(x), (1.0, float(x)), 2.0 * x + (0.1 if x % 2 else -0.1)) for x in range(1, 12)]
    found = fit([*points, Point("odd", (1.0, 6.0), 500.0)])
    assert found.outliers == 1
    assert found.coefficients[1] == pytest.approx(2.0, abs=0.1)
    assert found.left_out_largest < 1


def test_one_model_alone_says_nothing_of_others():
    """Leaving the only model out leaves nothing."""
    with pytest.raises(TooFewPoints):
        fit([Point("a", (1.0, float(x)), float(x)) for x in range(4)])


def test_features_that_never_vary_cannot_be_told_apart():
    """Two constant features are one too many."""
    with pytest.raises(TooFewPoints):
        solve([Point(str(x), (1.0, 2.0), float(x)) for x in range(4)])


def test_a_feature_that_is_always_zero_gets_zero():
    """No quantised model in the logs, no coefficient for them."""
    assert solve([Point(str(x), (1.0, float(x), 0.0), 3.0 * x) for x in range(1, 5)])[2] == 0
