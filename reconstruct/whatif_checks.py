"""Whether a changed start-up would come up: the engine's own checks, in their order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconstruct.change import Check
from reconstruct.interval import ANYTHING, Interval
from reconstruct.releases import index
from reconstruct.rounding import GIB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconstruct.change import TermChange
    from reconstruct.whatif_pool import Pool
    from reconstruct.whatif_setup import Setup

PASSES, UNSURE, FAILS, UNTOLD = "passes", "may fail", "fails", "unknown"
ORDER = (FAILS, UNSURE, UNTOLD, PASSES)
"""Verdicts from worst; the worst stage speaks for all."""


def outcome_of(checks: Sequence[Check]) -> str:
    """Give "starts", "may not start", "does not start", or "unknown" where a check lacks a figure."""
    verdicts = {check.verdict for check in checks}
    if FAILS in verdicts:
        return "does not start"
    if UNSURE in verdicts:
        return "may not start"
    return "unknown" if UNTOLD in verdicts else "starts"


def checks_of(
    now: Setup,
    then: Setup,
    stages: Sequence[tuple[TermChange, ...]],
    actual: Sequence[Interval],
    pool: Pool,
    refusal: str,
    *,
    came_up: bool,
) -> tuple[Check, ...]:
    """Give every check. `actual` holds each stage's graphs as captured today; `refusal` is the configuration's.

    came_up: whether today's start passed its own check of free memory.
    """
    found = [Check("configuration", FAILS, refusal)] if refusal else []
    rows = [{row.name: row for row in stage} for stage in stages]
    if then.all_eras("engine", "V1") and then.span.low >= index("0.9.1"):
        found.append(_worst([_free_memory(r, came_up=came_up) for r in rows]))
    if not (then.explicit or then.checks_override):
        found.append(_worst([_cache_memory(r, sure=then.checks_override is False) for r in rows]))
    found.append(_one_request(pool, then))
    same_graphs = (now.eager, now.world, now.sequences) == (then.eager, then.world, then.sequences)
    if same_graphs and not then.eager and not then.explicit:
        captures = [_capture(r, a) for r, a in zip(rows, actual, strict=True)]
        found += [_worst(captures)] if all(c.verdict != UNTOLD for c in captures) else []
    return tuple(found)


def _worst(checks: Sequence[Check]) -> Check:
    return min(checks, key=lambda check: ORDER.index(check.verdict))


def _judged(left: Interval) -> str:
    """Judge a margin that must not be negative."""
    if left.high is not None and left.high < 0:
        return FAILS
    if left.low is not None and left.low >= 0:
        return PASSES
    return UNTOLD if left.low is None else UNSURE


def _text(interval: Interval) -> str:
    low, high = (None if end is None else f"{end / GIB:.2f}" for end in interval)
    if low is None and high is None:
        return "unknown"
    if low is None or high is None:
        return f"at least {low} GiB" if low else f"at most {high} GiB"
    return f"{low} GiB" if low == high else f"{low} to {high} GiB"


def _free_memory(rows: dict[str, TermChange], *, came_up: bool) -> Check:
    """R <= F. Source: 0.9.1 v1/worker/gpu_worker.py init_device; from 0.14.0 v1/worker/utils.py request_memory."""
    free, budget = rows["initial_free_memory"], rows["requested_memory"]
    left = free.after.minus(budget.after)
    if came_up and budget.change.high is not None and budget.change.high <= 1 and free.kind == "unchanged":
        return Check("free memory at the start", PASSES, "the budget does not grow, and was free")
    text = f"free {_text(free.after)}, asked for {_text(budget.after)}"
    return Check("free memory at the start", _judged(left), text)


def _cache_memory(rows: dict[str, TermChange], *, sure: bool) -> Check:
    """M > 0, unless blocks that the user asked for stand for it; not `sure` where the releases left open differ in that.

    Source: 0.20.1 v1/core/kv_cache_utils.py get_kv_cache_configs; V0 worker/worker.py raise_if_cache_size_invalid.
    """
    left = rows["available_kv_cache_memory"].after
    verdict = _judged(left.minus(Interval.exactly(1)))
    verdict = UNSURE if verdict == FAILS and not sure else verdict
    return Check("memory for the cache", verdict, f"left for the cache: {_text(left)}")


def _one_request(pool: Pool, then: Setup) -> Check:
    """One request of full length fits; from 0.29.0 on beside one block that is never handed out."""
    name = "one request of max_model_len"
    if then.all_eras("null_block", True):
        name += ", null block held back"
    if pool.refusal:
        return Check(name, FAILS if pool.surely_refused else UNSURE, pool.refusal)
    if not pool.checked:
        return Check(name, UNTOLD, "blocks of a request, or of the pool, are not known")
    longest = "" if pool.longest.low is None else f": {int(pool.longest.low)} tokens at least"
    return Check(name, PASSES, f"the longest request fits{longest}")


def _capture(rows: dict[str, TermChange], actual: Interval) -> Check:
    """Weigh what graphs find when they are captured: all outside the budget, the headroom, and what was set aside.

    The allocator may give memory back first, so that a lack is no sure failure.
    """
    free, budget = rows["initial_free_memory"], rows["requested_memory"]
    peak, charged = rows["transient_peak_headroom"], rows["cudagraph_memory_applied"]
    name = "graph capture"
    grown = free.change.plus(peak.change).plus(charged.change).minus(budget.change)
    if actual != ANYTHING and grown.low is not None and grown.low >= -1:
        return Check(name, PASSES, "as much is left for it as today")
    left = free.after.plus(peak.after).plus(charged.after).minus(budget.after).minus(actual)
    verdict = _judged(left)
    text = f"free beside the graphs as captured: {_text(left)}"
    return Check(name, UNSURE if verdict == FAILS else verdict, text)
