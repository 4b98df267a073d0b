"""Bars of characters."""

from __future__ import annotations

import math

from parsers.tuples import NamedTuple


class Bar(NamedTuple):
    """Where a figure lies on a scale from 0 to 1: `sure` is filled in any case, `open` up to the figure's upper end."""

    sure: tuple[float, float]
    open: tuple[float, float]


def anchored_left(low: float, high: float) -> Bar:
    """Give the bar of what lies between `low` and `high`, from the scale's start."""
    return Bar((0.0, _clip(low)), (_clip(low), _clip(high)))


def anchored_right(right: float, low: float, high: float) -> Bar:
    """Give the bar of what lies between `low` and `high`, hanging from `right` downwards."""
    return Bar((_clip(right - low), _clip(right)), (_clip(right - high), _clip(right - low)))


def draw(bar: Bar, cells: int, *, ascii_only: bool, track: str = " ") -> str:
    """Draw a bar to the half cell, `#` and `:` in ASCII; whatever is more than nothing shows."""
    halves = [""] * (2 * cells)
    for mark, (start, end) in (("open", bar.open), ("sure", bar.sure)):
        first, last = round(start * 2 * cells), round(end * 2 * cells)
        if end > start and first == last:
            first = min(math.floor(start * 2 * cells), 2 * cells - 1)
            last = first + 1 if mark == "sure" or bar.sure[0] == bar.sure[1] else first
        halves[first:last] = [mark] * (last - first)
    pairs = zip(halves[::2], halves[1::2], strict=True)
    return "".join(_cell(left, right, ascii_only=ascii_only) or track for left, right in pairs)


def _cell(left: str, right: str, *, ascii_only: bool) -> str:
    if "sure" in {left, right}:
        if ascii_only:
            return "#"
        return "█" if left == right else "▌" if left == "sure" else "▐"
    if "open" in {left, right}:
        return ":" if ascii_only else "░"
    return ""


def _clip(value: float) -> float:
    return min(max(value, 0.0), 1.0)
