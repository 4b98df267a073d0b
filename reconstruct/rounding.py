"""What printed digits imply: the one place that knows how vLLM rounds.

`f"{x:.2f}"` and `round(x, 2)` both pick the nearest hundredth of the exact binary value (upstream utils/mem_utils.py
`format_gib`, and the `%.2f` of worker.py before 0.14), so a figure `v` hides every byte count within half a unit of its
last place, both ends included (a tie may fall either way). `round` drops zeros: "21.0" hides +-0.005, not +-0.05.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from reconstruct.interval import Interval

if TYPE_CHECKING:
    from parsers.template import Printed

GIB = 1 << 30
MIB = 1 << 20

_SIZES = {
    "bytes": 1,
    "B": 1,
    "KiB": 1 << 10,
    "KB": 1 << 10,
    "MiB": MIB,
    "MB": MIB,
    "GiB": GIB,
    "GB": GIB,
    "TiB": 1 << 40,
    "TB": 1 << 40,
}
"""Units of torch's text; it divides by powers of two whatever it calls them (c10/cuda/CUDACachingAllocator.cpp format_size)."""

_DECIMALS = {"gib": 2, "gib4": 4, "mib": 2, "ratio2": 2, "ratio4": 4, "ratio6": 6, "times": 2}


MAX_DIGITS = 64
"""No engine prints longer figures; hostile text must not become a number of a million digits."""


class NotANumber(ValueError):
    """The printed text is no figure of its form."""


def _scaled(text: str, decimals: int) -> tuple[int, int]:
    """Give (n, scale) with the printed value n/scale; scale is at least 10**decimals."""
    if len(text) > MAX_DIGITS:
        raise NotANumber(text[:MAX_DIGITS])
    mantissa, _, exponent = text.replace(",", "").strip().partition("e")
    whole, _, fraction = mantissa.partition(".")
    places = max(decimals, len(fraction))
    try:
        number = int(whole + fraction.ljust(places, "0"))
        power = int(exponent or 0)
    except ValueError:
        raise NotANumber(text) from None
    if abs(power) > MAX_DIGITS:
        raise NotANumber(text)
    if power < 0:
        return number, 10 ** (places - power)
    return number * 10**power, 10**places


def _whole(text: str, decimals: int, unit: int) -> Interval:
    """Give the whole multiples of one (bytes) that print as `text` when divided by `unit`."""
    n, scale = _scaled(text, decimals)
    low = -((-(2 * n - 1) * unit) // (2 * scale))
    high = ((2 * n + 1) * unit) // (2 * scale)
    if low > high:  # more digits than a double carries: the nearest whole number is meant
        low = high = (2 * n * unit + scale) // (2 * scale)
    return Interval(low, high)


def _real(text: str, decimals: int) -> Interval:
    n, scale = _scaled(text, decimals)
    return Interval(
        math.nextafter((2 * n - 1) / (2 * scale), -math.inf), math.nextafter((2 * n + 1) / (2 * scale), math.inf)
    )


def _size(text: str) -> Interval:
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
    unit = _SIZES.get(text[len(digits) :].strip())
    if unit is None:
        raise NotANumber(text)
    return _whole(digits, 2 if unit > 1 else 0, unit)


def implied(printed: Printed) -> Interval:
    """Give every value that prints as `printed`: whole bytes for sizes, floats for ratios.

    Raises NotANumber where the text is no figure.
    """
    text, form = printed.text, printed.form
    if form in {"gib", "gib4"}:
        return _whole(text, _DECIMALS[form], GIB)
    if form == "mib":
        return _whole(text, 2, MIB)
    if form == "size":
        return _size(text)
    if form in {"bytes", "count"}:
        return Interval.exactly(_scaled(text, 0)[0])
    if form == "ratio":
        try:
            value = float(text)
        except ValueError:
            raise NotANumber(text) from None
        if not math.isfinite(value):
            raise NotANumber(text)
        return Interval.exactly(value)
    if form in _DECIMALS:
        return _real(text, _DECIMALS[form])
    raise NotANumber(text)
