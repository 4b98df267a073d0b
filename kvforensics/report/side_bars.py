"""Bars of one start-up beside another's: the waterfalls of both on one scale, and counts each on their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvforensics.report.bars import anchored_left
from kvforensics.report.document import Bars
from kvforensics.report.waterfall import placed
from reconstruct.interval import ANYTHING, Interval

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kvforensics.report.bars import Bar

KINDS = {
    "total_memory": "total", "requested_memory": "budget", "total_consumed": "taken", "model_memory": "part",
    "transient_peak_headroom": "taken", "cudagraph_memory_applied": "taken", "available_kv_cache_memory": "pool",
    "kv_pool_memory": "pool",
}  # fmt: skip
"""What stands on the scale of bytes, in the order in which it is taken from the budget, and its kind there."""
COUNTS = ("num_blocks", "kv_cache_tokens", "max_concurrency")
SCALES = ("total_memory", "requested_memory")


def side_by_side(sides: Sequence[Mapping[str, Interval]]) -> dict[str, Bars]:
    """Give the bars of each quantity, one for each side; none where no side can be placed."""
    falls = [_fall(side, _scale(sides)) for side in sides]
    found = {name: Bars(kind, tuple(fall.get(name) for fall in falls)) for name, kind in KINDS.items()}
    for name in COUNTS:
        ends = [side.get(name, ANYTHING) for side in sides]
        unit = max((end.high or 0 for end in ends), default=0)
        found[name] = Bars("pool", tuple(_counted(end, unit) for end in ends))
    return {name: bars for name, bars in found.items() if any(bars.sides)}


def _scale(sides: Sequence[Mapping[str, Interval]]) -> Interval:
    """Give the largest card, else the largest budget: every side is drawn against it."""
    for name in SCALES:
        known = [side[name] for side in sides if name in side and side[name].width is not None]
        if known:
            return max(known, key=lambda interval: interval.high or 0)
    return ANYTHING


def _fall(side: Mapping[str, Interval], scale: Interval) -> dict[str, Bar | None]:
    rows = [(kind, side.get(name, ANYTHING)) for name, kind in KINDS.items()]
    return dict(zip(KINDS, placed(rows, scale, side.get("requested_memory", ANYTHING)), strict=True))


def _counted(interval: Interval, unit: float) -> Bar | None:
    if not unit or interval.low is None or interval.high is None:
        return None
    return anchored_left(max(interval.low, 0) / unit, interval.high / unit)
