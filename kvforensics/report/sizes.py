"""Intervals as text for people: the one place outside reconstruct.rounding that knows a GiB.

No text shows more digits than its interval supports, and none leaves a value out: read back, `a ±b` and `a – b` contain
every value of the interval, `≥ a` and `≤ b` every value on the open side.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

from reconstruct.quantities import BY_NAME
from reconstruct.rounding import GIB

if TYPE_CHECKING:
    from reconstruct.interval import Interval, Number

UNKNOWN = "unknown"
FULL_DIGITS = 4
"""Decimals of an exactly known figure."""
NARROW = Fraction(1, 5)
"""A half width up to this share of the centre is written `±`; a wider interval shows both ends."""
SLACK = Fraction(4, 3)
"""How much wider the printed half width may be than the true one before another digit is spent."""


def gib(interval: Interval) -> str:
    """Give bytes in GiB, the unit left out: `41.73 ±0.005`, `14 – 72`, `≥ 41.73`, `unknown`."""
    return _shown(_end(interval.low, GIB), _end(interval.high, GIB))


def gib_text(interval: Interval) -> str:
    """Give bytes in GiB with the unit, and the exact number of bytes where there is only one."""
    if interval.is_point and interval.low != 0:
        return f"{gib(interval)} GiB ({whole(interval)} B)"
    return f"{gib(interval)} GiB"


def bytes_text(interval: Interval) -> str:
    """Give bytes to the byte."""
    return f"{whole(interval)} B"


def whole(interval: Interval) -> str:
    """Give whole numbers exactly, with commas: `151,632`, `9,476 – 9,512`, `≥ 9,476`."""
    low = None if interval.low is None else f"{math.ceil(interval.low):,}"
    high = None if interval.high is None else f"{math.floor(interval.high):,}"
    return _joined(low, high, negative=interval.low is not None and interval.low < 0)


def ratio(interval: Interval) -> str:
    """Give a fraction or a multiple: `0.9`, `1.16 ±0.005`."""
    if interval.is_point:
        return f"{interval.low:.12g}"
    return _shown(_end(interval.low, 1), _end(interval.high, 1))


def percent(part: Interval, whole_of: Interval, *, inside: bool = False) -> str:
    """Give what share of `whole_of` a part is: `71.8%`, `9–12%`; nothing where either is open or the whole may be 0.

    A single figure stands for every share that rounds to it. `inside`: a part that does not surely exceed the whole is no
    more than all of it.
    """
    ends = (part.low, part.high, whole_of.low, whole_of.high)
    if any(end is None for end in ends) or not whole_of.low or whole_of.low < 0:
        return ""
    shares = [Fraction(100 * p) / Fraction(w) for p in ends[:2] for w in ends[2:] if p is not None and w is not None]
    low, high = min(shares), max(shares)
    if inside:
        high = min(high, max(low, Fraction(100)))
    for places in (1, 0):
        unit = Fraction(1, 10**places)
        middle = _rounded((low + high) / 2, places)
        if middle - unit / 2 <= low and high <= middle + unit / 2:
            little = not middle and low >= 0 and high > 0
            return f"<{_number(unit, places)}%" if little else f"{_number(middle, places, keep=bool(middle))}%"
    return f"{math.floor(low)}–{math.ceil(high)}%"


def _end(value: Number | None, unit: int) -> Fraction | None:
    """Give an end in `unit`; a float's twelfth digit is taken for the noise of its arithmetic."""
    if value is None:
        return None
    return Fraction(value if isinstance(value, int) else f"{value:.12g}") / unit


def _shown(low: Fraction | None, high: Fraction | None) -> str:
    if low is not None and low == high:
        return _number(_rounded(low, _places_for(low)), _places_for(low))
    if low is None or high is None:
        left = None if low is None else _floor_text(low, _bound_places(low))
        right = None if high is None else _ceil_text(high, _bound_places(high))
        return _joined(left, right, negative=False)
    middle, half = (low + high) / 2, (high - low) / 2
    if half <= NARROW * abs(middle) or (low < 0 < high and abs(middle) <= half / 4):
        return _centred(low, high, half)
    places = max(1, _leading(high - low) + 1)
    return _joined(_floor_text(low, places), _ceil_text(high, places), negative=low < 0)


def _centred(low: Fraction, high: Fraction, half: Fraction) -> str:
    """Give `centre ±half` with the fewest digits that do not blow the half width up."""
    first = max(0, _leading(half))
    for places in (first, first + 1):
        shorter, longer = (_spread(low, high, c, places) for c in (max(0, places - 1), places))
        if longer <= SLACK * half or places > first:
            centre_places = max(0, places - 1) if shorter <= longer else places
            centre = _rounded((low + high) / 2, centre_places)
            return f"{_number(centre, centre_places, keep=True)} ±{_number(min(shorter, longer), places)}"
    raise AssertionError


def _spread(low: Fraction, high: Fraction, centre_places: int, places: int) -> Fraction:
    """Give the half width that a rounded centre needs to reach both ends, rounded up."""
    centre = _rounded((low + high) / 2, centre_places)
    return Fraction(math.ceil(max(high - centre, centre - low) * 10**places), 10**places)


def _leading(value: Fraction) -> int:
    """Give the decimal place of a positive number's first digit: 1 for 0.5, 0 for 5, -1 for 50."""
    if value == 0:
        return 0
    place = -math.floor(math.log10(value))
    return place if value * Fraction(10) ** place >= 1 else place + 1


def _places_for(value: Fraction) -> int:
    return max(FULL_DIGITS, _leading(abs(value)) + 2) if value else 0


def _bound_places(value: Fraction) -> int:
    """Give the decimals of a lone bound; below a thousandth (a MiB) it says nothing that matters."""
    return min(max(2, _leading(abs(value)) + 2), 3)


def _rounded(value: Fraction, places: int) -> Fraction:
    return Fraction(math.floor(value * 10**places + Fraction(1, 2)), 10**places)


def _number(value: Fraction, places: int, *, keep: bool = False) -> str:
    """Write a decimal that is whole at `places`; zeros at its end are dropped unless they are digits that count."""
    digits = f"{abs(round(value * 10**places)):0{places + 1}d}"
    text = f"{int(digits[: len(digits) - places]):,}" + (f".{digits[len(digits) - places :]}" if places else "")
    if not keep and "." in text:
        text = text.rstrip("0").rstrip(".")
    return f"-{text}" if value < 0 else text


def _floor_text(value: Fraction, places: int) -> str:
    return _number(Fraction(math.floor(value * 10**places), 10**places), places)


def _ceil_text(value: Fraction, places: int) -> str:
    return _number(Fraction(math.ceil(value * 10**places), 10**places), places)


def _joined(low: str | None, high: str | None, *, negative: bool) -> str:
    if low is None:
        return UNKNOWN if high is None else f"≤ {high}"
    if high is None:
        return f"≥ {low}"
    return low if low == high else f"{low} {'to' if negative else '–'} {high}"


def amount(name: str, interval: Interval) -> str:
    """Give a figure of a quantity: GiB, whole numbers or a ratio."""
    if interval.low is None and interval.high is None:
        return UNKNOWN
    unit = BY_NAME[name].unit
    if unit == "B" and name != "bytes_per_block":
        return gib(interval)
    return ratio(interval) if unit == "1" else whole(interval)


def step(name: str, interval: Interval) -> str:
    """Give a change of a quantity, with its sign."""
    text = amount(name, interval)
    grows = interval.low is not None and interval.low >= 0 and interval.high != 0
    return f"+{text}" if grows and text[:1].isdigit() else text
