"""Facts that the user adds on the command line: `--set name=value`, `--total-memory 79.19GiB`, `--gpu H100-80GB`."""

from __future__ import annotations

from kvforensics.errors import UsageFault
from parsers.template import MOST_DIGITS, Printed
from reconstruct.facts import Given
from reconstruct.interval import Interval
from reconstruct.quantities import BY_NAME, REPORTED
from reconstruct.rounding import NotANumber, implied
from reconstruct.solver import BEYOND

_UNITS = {"KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40, "K": 10, "M": 20, "G": 30, "T": 40}


def size(text: str) -> Interval:
    """Read a size: whole bytes, or a decimal with a unit, which hides half a unit of its last place.

    Raises UsageFault where it is neither.
    """
    digits = text.strip().rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
    unit = text.strip()[len(digits) :].strip()
    try:
        if len(digits) > MOST_DIGITS:
            raise NotANumber(digits)
        if unit in {"", "B"}:
            return Interval.exactly(int(digits.replace("_", "").replace(",", "")))
        if unit in _UNITS:
            return _rounded(digits, 1 << _UNITS[unit])
    except ValueError:
        pass
    raise UsageFault(f"'{text[:40]}' is no size; write bytes (85028896768) or a unit (79.19GiB)")


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
        raise UsageFault(f"--set {text[:80]}: write name=value with one of {', '.join(sorted(REPORTED))}")
    unit = BY_NAME[name].unit
    try:
        told = (
            size(value) if unit == "B" else implied(Printed(name, value.strip(), "ratio" if unit == "1" else "count"))
        )
    except NotANumber:
        raise UsageFault(f"--set {text[:80]}: that is no number") from None
    if told.meet(_POSSIBLE.get(name, BY_NAME[name].bound)) is None or not _sensible(told):
        raise UsageFault(f"--set {text[:80]}: no start-up has such a {name}")
    return Given(name, told)


_POSSIBLE = {name: Interval(1, None) for name in ("block_size", "bytes_per_block", "max_model_len", "total_memory")} | {
    "gpu_memory_utilization": Interval(1e-6, 1.0)
}
"""What a user may state of these, where less than the ledger's own bounds makes sense."""


def _sensible(told: Interval) -> bool:
    return all(end is None or -BEYOND < end < BEYOND for end in told)


def total_memory(text: str) -> Given:
    """Read --total-memory. Raises UsageFault where it is no size of a card."""
    told = size(text)
    if told.meet(_POSSIBLE["total_memory"]) is None or not _sensible(told):
        raise UsageFault(
            f"--total-memory {text[:40]}: no card has that; write what the driver reports, such as 79.19GiB"
        )
    return Given("total_memory", told)


def gpu(text: str) -> Given:
    """Look a card up. Raises UsageFault with the nearest names where it is not in the table."""
    from reconstruct.cards import UnknownCard, find

    try:
        card = find(text)
    except UnknownCard as error:
        raise UsageFault(f"--gpu {text}: {error}") from None
    return Given("total_memory", card.total_memory, "catalogue", card.name)
