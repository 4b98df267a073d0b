"""The device ran out of memory: in which step, of what, and who held the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvforensics.findings.case import Case, at_least_zero, high, low, merged, printed, sentence
from kvforensics.findings.effects import highest_utilization
from kvforensics.findings.finding import ERROR, Action, Cost, Finding, FindingRule
from kvforensics.report.sizes import gib_text, whole
from parsers.rules.out_of_memory import called, other_processes
from parsers.tuples import NamedTuple
from reconstruct.interval import ANYTHING, Interval
from reconstruct.ledger import is_measured
from reconstruct.rounding import implied

if TYPE_CHECKING:
    from collections.abc import Callable

    from parsers.rule import Statement

KINDS = ("out_of_memory", "out_of_memory_plain", "out_of_memory_warm_up")
STEPS = ("load", "profile", "kv-allocation", "kernel-warmup", "capture", "sampler-warmup", "runtime")
"""The steps of a start in their order (v1/worker/gpu_worker.py); a start never goes back."""

IN_WORDS = {
    "load": "while the weights were loaded",
    "profile": "in the profile run",
    "kv-allocation": "while the KV cache was allocated",
    "kernel-warmup": "in the kernels' warm-up",
    "capture": "while CUDA graphs were captured",
    "sampler-warmup": "in the sampler's warm-up",
    "runtime": "while serving",
}

_PASSED = {
    "weights": "profile",
    "available": "kv-allocation",
    "blocks": "kv-allocation",
    "explicit_kv_memory": "kv-allocation",
    "tokens": "kv-allocation",
    "v0_terms": "kv-allocation",
    "graph_capture_started": "capture",
    "graph_captured": "sampler-warmup",
    "graph_captured_seconds": "sampler-warmup",
    "graph_pool": "sampler-warmup",
    "engine_initialised": "runtime",
    "server_started": "runtime",
    "serving": "runtime",
}
"""The earliest step that can follow a line of this kind."""


class Death(NamedTuple):
    """The first out-of-memory error of a start-up."""

    statement: Statement
    step: str


def first_death(case: Case) -> Death | None:
    """Find the first out-of-memory error and the step it fell into; None where there is none.

    A start only moves forward, so the step is the later of what the lines before it had passed and what its traceback shows
    running.
    """
    everything = case.ledger.log.statements
    at = next((i for i, s in enumerate(everything) if s.kind in KINDS), None)
    if at is None:
        return None
    error = everything[at]
    passed = [_PASSED[s.kind] for s in everything[:at] if s.kind in _PASSED]
    steps = ["load", *passed, _running(everything[:at])]
    if error.kind == "out_of_memory_warm_up":
        steps.append("sampler-warmup")
    reached = max(steps, key=STEPS.index)
    in_pools = printed(error, "oom_private") != ANYTHING and not _sleeps(case)
    if reached == "kv-allocation" and in_pools and _running(everything[:at]) != reached:
        reached = "capture"  # private pools hold graphs, and the graph profile's were freed before
    return Death(error, reached)


def _sleeps(case: Case) -> bool:
    """Whether weights and pool stand in private pools too: those of the cumem allocator."""
    return bool(case.of("sleep_mode")) or case.ledger.settings.get("enable_sleep_mode") is True


def _running(before: tuple[Statement, ...]) -> str:
    """Give the step that the traceback above the error shows: its innermost known call, the profile's before all."""
    start = max((i for i, s in enumerate(before) if s.kind == "traceback"), default=len(before))
    seen = [called(s) for s in before[start:] if s.kind == "frame"]
    if "profile" in seen:
        return "profile"
    known = [step for step in seen if step in STEPS]
    return known[-1] if known else "profile" if "forward" in seen else "load"


def holders(error: Statement) -> tuple[Interval, tuple[tuple[int, Interval], ...]]:
    """Give what this process held, and every other by its pid, as torch's text has it.

    In a container the driver knows this process by another pid: torch then says nothing of it, or 0 bytes, and lists it
    among the others. It is the one that holds what torch had allocated; if no other can be, the largest.
    """
    own, allocated = printed(error, "oom_in_use"), printed(error, "oom_allocated")
    listed = [(pid, implied(used)) for pid, used in other_processes(error)]
    if own != ANYTHING and high(own) >= low(allocated):
        return own, tuple(listed)
    itself = max((p for p in listed if high(p[1]) >= low(allocated)), key=lambda p: low(p[1]), default=None)
    return itself[1] if itself else ANYTHING, tuple(p for p in listed if p is not itself)


def _account(case: Case, error: Statement) -> str:
    tried, free, total = printed(error, "oom_tried"), printed(error, "oom_free"), printed(error, "total_memory")
    own, others = holders(error)
    parts = []
    if tried != ANYTHING:
        of = f"on {gib_text(total)}" if free == ANYTHING else f"free {gib_text(free)} of {gib_text(total)}"
        parts.append(f"wanted {gib_text(tried)}, {of}")
    if own != ANYTHING:
        parts.append(f"this process held {gib_text(own)}")
    parts += [f"process {pid} held {gib_text(used)}" for pid, used in others]
    allocated, spare = printed(error, "oom_allocated"), printed(error, "oom_unallocated")
    if allocated != ANYTHING:
        parts.append(f"torch had allocated {gib_text(allocated)}")
    if printed(error, "oom_private") != ANYTHING:
        parts.append(f"{gib_text(printed(error, 'oom_private'))} of it in private pools (graphs)")
    if spare != ANYTHING:
        parts.append(f"{gib_text(spare)} reserved but unallocated")
    budget = case.value("requested_memory")
    if own != ANYTHING and budget.low is not None and is_measured(budget):
        parts.append(f"the budget was {gib_text(budget)}, so {gib_text(own.minus(budget))} stood outside it")
    return sentence(parts) if parts else "The text gives no figures."


def _actions(case: Case, death: Death) -> tuple[Action, ...]:
    error, step = death.statement, death.step
    short = at_least_zero(printed(error, "oom_tried").minus(printed(error, "oom_free")))
    if step == "load":
        return (
            Action(
                "more tensor parallelism, quantised weights or --cpu-offload-gb", (), "slower, or another checkpoint"
            ),
        )
    lower = _lower_utilization(case, error, short)
    batch = Action("lower --max-num-batched-tokens and --max-num-seqs", (), "slower prefill, fewer requests at a time")
    if step == "profile":
        return (batch,)
    found = [lower] if lower else [Action("lower --gpu-memory-utilization", (), "a smaller KV cache")]
    if step == "capture":
        found.append(Action("fewer capture sizes, or --enforce-eager", (), "slower decoding of the sizes left out"))
    if step in {"sampler-warmup", "runtime"}:
        found.append(batch)
    return tuple(found)


def _lower_utilization(case: Case, error: Statement, short: Interval) -> Action | None:
    """Give the utilisation that would have left the missing bytes: everything past the profile comes on top of the budget."""
    total, now = printed(error, "total_memory"), case.value("gpu_memory_utilization")
    if short.high is None or not total.low or not now.is_point:
        return None
    below = highest_utilization(Interval.exactly(int(float(now.low or 0) * total.low) - int(short.high)), total)
    if below is None or below <= 0:
        return None
    return Action(
        f"--gpu-memory-utilization {below}", (), "a smaller KV cache; what the step needs after this is not known"
    )


def _dies_in(step: str) -> Callable[[Case], Finding | None]:
    def check(case: Case) -> Finding | None:
        death = first_death(case)
        if death is None or death.step != step:
            return None
        error = death.statement
        tried = printed(error, "oom_tried")
        short = at_least_zero(tried.minus(printed(error, "oom_free"))) if tried != ANYTHING else ANYTHING
        detail = f"The device ran out of memory {IN_WORDS[step]}. {_account(case, error)}"
        spare = printed(error, "oom_unallocated")
        if spare != ANYTHING and low(spare) >= high(tried):
            detail += " Torch held enough, but in pieces: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True may help."
        requests = error.text("requests")
        if requests:
            detail += f" The warm-up ran with {whole(printed(error, 'requests'))} dummy requests."
        lines = merged((error.line,), case.evidence("requested_memory"))
        title = f"Out of memory {IN_WORDS[step]}"
        return Finding(f"oom-at-{step}", ERROR, title, detail, lines, Cost(short), _actions(case, death))

    return check


RULES = tuple(
    FindingRule(
        f"oom-at-{step}",
        (ERROR,),
        "The step, what was wanted and free, who held the rest, what stood outside the budget, and the value to set.",
        f"The first out-of-memory error of the start fell {IN_WORDS[step]}, by the lines before it and its traceback.",
        (*KINDS, "frame", "requested_memory"),
        _dies_in(step),
        after=("memory-held-by-others", "graph-estimate-not-charged", "graphs-outside-budget", "batched-tokens-eat-kv"),
    )
    for step in STEPS
)
