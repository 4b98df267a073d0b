"""Facts that the user adds on the command line: `--set name=value`, `--total-memory 79.19GiB`, `--gpu H100-80GB`."""

from __future__ import annotations

from kvforensics.errors import UsageFault
from parsers.template import Printed
from reconstruct.interval import Interval
from reconstruct.quantities import BY_NAME, REPORTED
from reconstruct.rebuild import Given
from reconstruct.rounding import NotANumber, implied

_UNITS = {"KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40, "K": 10, "M": 20, "G": 30, "T": 40}


def size(text: str) -> Interval:
    """Read a size: whole bytes, or a decimal with a unit, which hides half a unit of its last place.

    Raises UsageFault where it is neither.
    """
    digits = text.strip().rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
    unit = text.strip()[len(digits) :].strip()
    try:
        if unit in {"", "B"}:
            return Interval.exactly(int(digits.replace("_", "").replace(",", "")))
        if unit in _UNITS:
            return _rounded(digits, 1 << _UNITS[unit])
    except ValueError:
        pass
    raise UsageFault(f"'{text}' is no size; write bytes (85028896768) or a unit (79.19GiB)")


def _rounded(digits: str, unit: int) -> Interval:
    whole, _, fraction = digits.replace(",", "").partition(".")
    scale = 10 ** len(fraction)
    n = int(whole + fraction)
    if not fraction:
        return Interval.exactly(n * unit)
    return Interval(-((-(2 * n - 1) * unit) // (2 * scale)), ((2 * n + 1) * unit) // (2 * scale))


def setting(text: str) -> Given:
    """Read `name=value`. Raises UsageFault for an unknown name or a value of the wrong kind."""
    name, equals, value = text.partition("=")
    name = name.strip()
    if not equals or name not in REPORTED:
        raise UsageFault(f"--set {text}: write name=value with one of {', '.join(sorted(REPORTED))}")
    unit = BY_NAME[name].unit
    if unit == "B":
        return Given(name, size(value))
    try:
        if unit == "1":
            return Given(name, implied(Printed(name, value.strip(), "ratio")))
        return Given(name, implied(Printed(name, value.strip(), "count")))
    except NotANumber:
        raise UsageFault(f"--set {text}: '{value}' is no number") from None


def total_memory(text: str) -> Given:
    """Read --total-memory."""
    return Given("total_memory", size(text))


def gpu(text: str) -> Given:
    """Look a card up. Raises UsageFault with the nearest names where it is not in the table."""
    from reconstruct.cards import UnknownCard, find

    try:
        card = find(text)
    except UnknownCard as error:
        raise UsageFault(f"--gpu {text}: {error}") from None
    return Given("total_memory", card.total_memory, "catalogue", card.name)
