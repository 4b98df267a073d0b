"""The checks that a start-up passes, in the engine's order, each with what the prediction says of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.interval import Interval
from reconstruct.rounding import GIB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconstruct.predict.capacity import Capacity
    from reconstruct.predict.defaults import Settled
    from reconstruct.predict.scenario import Scenario
    from reconstruct.predict.terms import StageTerms

PASSES, UNSURE, FAILS = "passes", "may fail", "fails"


class Check(NamedTuple):
    """One check: its name, `passes`, `may fail` or `fails`, and one sentence with the numbers."""

    name: str
    verdict: str
    detail: str


def verdict_of(checks: Sequence[Check]) -> str:
    """Give `starts`, `may not start` or `does not start`."""
    verdicts = {check.verdict for check in checks}
    return "does not start" if FAILS in verdicts else "may not start" if UNSURE in verdicts else "starts"


def checks_of(
    scenario: Scenario, settled: Settled, stages: Sequence[StageTerms], capacity: Capacity
) -> tuple[Check, ...]:
    """Every check on the way from the launch to "ready"; the worst stage speaks for all."""
    explicit = scenario.cache_bytes is not None
    found = [Check("configuration", PASSES, "the model can be divided as asked")]
    if settled.engine == "V1" and scenario.release >= (0, 9, 1) and not explicit:
        found.append(_worst([_startup_free(stage, settled.utilization) for stage in stages]))
    found.append(_worst([_loading(stage) for stage in stages]))
    found.append(_worst([_profiling(stage) for stage in stages]))
    if not explicit:
        found.append(_worst([_cache_memory(stage) for stage in stages]))
    if all(check.verdict != FAILS for check in found):
        found.append(_request(capacity))
        if not explicit:
            found.append(_worst([_capture(stage) for stage in stages]))
            found.append(_worst([_warm_up(stage) for stage in stages]))
    return tuple(found)


def _judge(left: Interval) -> str:
    """Judge a margin that must not be negative."""
    if left.high is not None and left.high < 0:
        return FAILS
    return UNSURE if left.low is None or left.low < 0 else PASSES


def _worst(checks: Sequence[Check]) -> Check:
    order = (FAILS, UNSURE, PASSES)
    return min(checks, key=lambda check: order.index(check.verdict))


def _text(interval: Interval) -> str:
    low, high = (None if end is None else f"{end / GIB:.2f}" for end in interval)
    if low == high and low is not None:
        return f"{low} GiB"
    return f"{low or 'less'} to {high or 'more'} GiB"


def _startup_free(stage: StageTerms, utilization: float) -> Check:
    """0.9.1 on: v1/worker/gpu_worker.py, from 0.14.0 v1/worker/utils.py request_memory."""
    free, budget = stage.account.interval("initial_free_memory"), stage.account.interval("requested_memory")
    left = free.minus(budget)
    detail = f"free at the start {_text(free)}, asked for {_text(budget)} (utilisation {utilization:g})"
    return Check("free memory at the start", _judge(left), detail)


def _loading(stage: StageTerms) -> Check:
    free, weights = stage.account.interval("initial_free_memory"), stage.account.interval("model_memory")
    return Check("weights", _judge(free.minus(weights)), f"weights {_text(weights)}, free {_text(free)}")


def _profiling(stage: StageTerms) -> Check:
    free, used = stage.account.interval("initial_free_memory"), stage.account.interval("non_kv_cache_memory")
    return Check(
        "profile run", _judge(free.minus(used)), f"weights, peak and the rest {_text(used)}, free {_text(free)}"
    )


def _cache_memory(stage: StageTerms) -> Check:
    left = stage.available.minus(Interval.exactly(1))
    return Check("memory for the cache", _judge(left), f"left for the cache: {_text(stage.available)}")


def _request(capacity: Capacity) -> Check:
    name = "one request of max_model_len"
    if isinstance(capacity.most, str):
        return Check(name, FAILS, capacity.most)
    if isinstance(capacity.least, str):
        return Check(name, UNSURE, f"at the low end of the prediction: {capacity.least}")
    return Check(name, PASSES, f"the longest request that fits has {capacity.least.longest_request} tokens at least")


def _capture(stage: StageTerms) -> Check:
    """Tell what is free when graphs are captured: outside the budget, the headroom, and what was set aside for them."""
    left = stage.spare.interval.plus(stage.account.interval("transient_peak_headroom"))
    return Check("graph capture", _judge(left), f"free after capture: {_text(left)}")


def _warm_up(stage: StageTerms) -> Check:
    """Judge the sampler's warm-up after the capture, which needs the peak once more.

    Source: 0.8.0 on, v1/worker/gpu_worker.py compile_or_warm_up_model. The allocator's cache covers part of it, so a
    likely lack is no sure failure, and an unlikely one no doubt.
    """
    verdict = PASSES if stage.spare.likely >= 0 else UNSURE
    detail = f"free beyond a full-size batch: {_text(stage.spare.interval)}"
    return Check("a full-size batch", verdict, detail)
