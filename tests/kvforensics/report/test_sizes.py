"""Intervals as text: worked examples, and the law that the text never leaves a value out."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvforensics.report.sizes import bytes_text, gib, gib_text, percent, ratio, whole
from reconstruct.interval import Interval
from reconstruct.rounding import GIB


def hundredths(n: int) -> Interval:
    """The bytes that print as n/100 GiB."""
    return Interval(-((-(2 * n - 1) * GIB) // 200), ((2 * n + 1) * GIB) // 200)


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        (Interval(), "unknown"),
        (Interval.exactly(0), "0"),
        (Interval.exactly(33 * GIB), "33"),
        (Interval.exactly(44808462336), "41.7311"),
        (Interval.exactly(157286400), "0.1465"),
        (Interval.exactly(20_000), "0.0000186"),
        (hundredths(4173), "41.73 ±0.005"),
        (hundredths(4100), "41.00 ±0.005"),
        (hundredths(-2631), "-26.31 ±0.005"),
        (hundredths(0), "0.00 ±0.005"),
        (Interval(75248096, 94502702), "0.08 ±0.01"),
        (Interval(10 * GIB, 72 * GIB), "10 – 72"),
        (Interval(0, 10737418), "0 – 0.01"),
        (Interval(-GIB // 16, GIB // 50), "-0.063 to 0.02"),
        (Interval(44808462336, None), "≥ 41.73"),
        (Interval(None, 44808462336), "≤ 41.74"),
        (Interval(1000, None), "≥ 0"),
        (Interval(8 << 20, None), "≥ 0.007"),
        (Interval(1200 * GIB, 1202 * GIB), "1,201 ±1"),
    ],
)
def test_gib(interval: Interval, text: str) -> None:
    assert gib(interval) == text


def test_an_exact_size_also_shows_its_bytes() -> None:
    assert gib_text(Interval.exactly(44808462336)) == "41.7311 GiB (44,808,462,336 B)"
    assert gib_text(hundredths(4173)) == "41.73 ±0.005 GiB"
    assert gib_text(Interval.exactly(0)) == "0 GiB"
    assert bytes_text(Interval(1572035, 1573333)) == "1,572,035 – 1,573,333 B"


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        (Interval.exactly(0), "0"),
        (Interval.exactly(151632), "151,632"),
        (Interval(9476, 9512), "9,476 – 9,512"),
        (Interval(-3, 4), "-3 to 4"),
        (Interval(9476, None), "≥ 9,476"),
        (Interval(None, 7), "≤ 7"),
        (Interval(), "unknown"),
    ],
)
def test_whole(interval: Interval, text: str) -> None:
    assert whole(interval) == text


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        (Interval.exactly(0.9), "0.9"),
        (Interval.exactly(0.9562), "0.9562"),
        (Interval(1.1549999999999998, 1.1650000000000003), "1.16 ±0.005"),
        (Interval(0.89995, 0.90005), "0.9000 ±0.00005"),
        (Interval(0.0, None), "≥ 0"),
    ],
)
def test_ratio(interval: Interval, text: str) -> None:
    assert ratio(interval) == text


@pytest.mark.parametrize(
    ("part", "of", "text"),
    [
        (Interval.exactly(0), Interval.exactly(80), "0%"),
        (Interval.exactly(718), Interval.exactly(1000), "71.8%"),
        (Interval(7170, 7190), Interval.exactly(10000), "72%"),
        (Interval(9, 12), Interval.exactly(100), "9–12%"),
        (Interval(1, None), Interval.exactly(100), ""),
        (Interval.exactly(1), Interval(0, 100), ""),
        (Interval.exactly(-5), Interval.exactly(1000), "-0.5%"),
        (Interval.exactly(1), Interval.exactly(10000), "<0.1%"),
        (Interval(34, 36), Interval(10000, 10400), "<1%"),
    ],
)
def test_percent(part: Interval, of: Interval, text: str) -> None:
    assert percent(part, of) == text


def test_a_part_of_a_whole_is_no_more_than_all_of_it() -> None:
    """Free memory is at most the card's, however little is known of either; what surely exceeds it is shown so."""
    assert percent(Interval(85, 104), Interval(98, 104)) == "81–107%"
    assert percent(Interval(85, 104), Interval(98, 104), inside=True) == "81–100%"
    assert percent(Interval(210, 220), Interval(100, 100), inside=True) == percent(
        Interval(210, 210), Interval(100, 100)
    )


def read_back(text: str) -> tuple[Fraction | None, Fraction | None, bool]:
    """Give the range that a text stands for, and whether it is one figure without a spread."""
    text = text.replace(",", "")
    if text == "unknown":
        return None, None, False
    if match := re.fullmatch(r"([≥≤]) (\S+)", text):
        value = Fraction(match[2])
        return (value, None, False) if match[1] == "≥" else (None, value, False)
    if match := re.fullmatch(r"(\S+) ±(\S+)", text):
        return Fraction(match[1]) - Fraction(match[2]), Fraction(match[1]) + Fraction(match[2]), False
    if match := re.fullmatch(r"(\S+) (?:–|to) (\S+)", text):
        return Fraction(match[1]), Fraction(match[2]), False
    return Fraction(text), Fraction(text), True


ends = st.one_of(st.none(), st.integers(-(1 << 40), 1 << 43), st.integers(-(1 << 24), 1 << 24))


@st.composite
def intervals(draw: st.DrawFn) -> Interval:
    low = draw(ends)
    if low is not None and draw(st.booleans()):
        return Interval(low, low + draw(st.integers(1, 1 << draw(st.integers(1, 40)))))
    high = draw(ends)
    return Interval(*sorted((low, high))) if low is not None and high is not None else Interval(low, high)


@given(intervals())
def test_gib_leaves_no_value_out(interval: Interval) -> None:
    """Read back, the text contains the interval; one figure alone stands for values that round to it."""
    low, high, alone = read_back(gib(interval))
    if alone:
        assert interval.is_point
        assert low is not None
        assert abs(low - Fraction(interval.low or 0, GIB)) <= Fraction(1, 2 * 10**4)
        return
    assert (low is None) == (interval.low is None)
    assert (high is None) == (interval.high is None)
    assert low is None or low <= Fraction(interval.low, GIB)
    assert high is None or high >= Fraction(interval.high, GIB)


@given(intervals())
def test_gib_does_not_widen_much(interval: Interval) -> None:
    """What is printed is at most half as wide again as what is known: a reader loses little."""
    low, high, _ = read_back(gib(interval))
    if interval.width and low is not None and high is not None:
        assert (high - low) * GIB <= Fraction(3, 2) * interval.width or high - low <= Fraction(2)


@given(st.floats(0, 1e5), st.floats(1e-9, 10))
def test_ratio_leaves_no_value_out(low: float, width: float) -> None:
    """The same for ratios, up to the twelfth digit."""
    a, b, alone = read_back(ratio(Interval(low, low + width)))
    assert a is not None
    assert b is not None
    if alone:  # the two ends agree to the twelfth digit
        assert width <= 1e-11 * (1 + low)
        assert abs(float(a) - low) <= 5.1e-5
        return
    assert float(a) <= low + 1e-11 * (1 + low)
    assert float(b) >= (low + width) * (1 - 1e-11)


@given(st.integers(-(1 << 38), 1 << 38), st.integers(0, 1 << 36), st.integers(1, 1 << 38), st.integers(0, 1 << 30))
def test_percent_leaves_no_share_out(low: int, width: int, of: int, spread: int) -> None:
    """Every share lies in what the text rounds from."""
    text = percent(Interval(low, low + width), Interval(of, of + spread)).removesuffix("%").replace(",", "")
    if text.startswith("<"):
        assert low >= 0
        assert Fraction(100 * (low + width), of) < Fraction(text[1:])
        return
    shares = [Fraction(100 * part, of_) for part in (low, low + width) for of_ in (of, of + spread)]
    ends = [Fraction(end) for end in text.split("–")]
    if len(ends) == 2:
        assert ends[0] <= min(shares)
        assert ends[1] >= max(shares)
    else:
        unit = Fraction(1, 10) if "." in text else Fraction(1)
        assert ends[0] - unit / 2 <= min(shares)
        assert ends[0] + unit / 2 >= max(shares)
