"""CUDA graphs: charged to the pool, estimated but not charged, outside the budget, estimated wrongly, counted twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvforensics.findings.case import Case, at_least_zero, high, low, merged, printed
from kvforensics.findings.effects import highest_utilization, resized
from kvforensics.findings.finding import NO_COST, NOTE, WARNING, Action, Effect, Finding, FindingRule, Threshold
from kvforensics.findings.out_of_memory import KINDS as OUT_OF_MEMORY
from kvforensics.report.sizes import gib_text, whole
from reconstruct.interval import ANYTHING, Interval
from reconstruct.rounding import GIB

if TYPE_CHECKING:
    from parsers.rule import Statement

OFF_SHARE = Threshold("OFF_SHARE", 0.10, "the spread that repeated captures of one configuration show")
OFF_BYTES = Threshold(
    "OFF_BYTES", GIB // 4, "a quarter GiB; below it the free-memory deltas' own granularity takes part"
)
EDGE = Threshold(
    "EDGE", GIB // 2, "less than half a GiB beside the budget does not outlast one more allocation of a library"
)
SWITCH = "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS"


def _error(statement: Statement) -> Interval:
    """Give the signed error of the estimate, actual - estimated, as far as the rounded line tells."""
    by_parts = printed(statement, "cudagraph_memory_actual").minus(printed(statement, "cudagraph_memory_estimate"))
    size = printed(statement, "difference")
    if size == ANYTHING:
        return by_parts
    signed = size if low(by_parts) + high(by_parts) > 0 else size.negated()
    return by_parts.meet(signed) or by_parts


def _far_off(statement: Statement) -> bool:
    error, actual = _error(statement), printed(statement, "cudagraph_memory_actual")
    least = max(low(error), -high(error), 0)
    return least > max(OFF_SHARE.value * max(high(actual), 0), OFF_BYTES.value)


def _worst_pool_line(case: Case) -> Statement | None:
    off = [s for s in case.of("graph_pool") if _far_off(s)]
    return max(off, key=lambda s: max(low(_error(s)), -high(_error(s))), default=None)


def _beside_budget(case: Case) -> Interval:
    """Give what stands free beside the budget at the baseline, F - R."""
    return case.value("initial_free_memory").minus(case.value("requested_memory"))


def _is_charged(case: Case) -> bool:
    """Whether the estimate was taken from the budget: a line says so, or it is the default and none says otherwise."""
    if low(case.value("cudagraph_memory_applied")) > 0 or case.of("graph_charged"):
        return True
    version = case.ledger.version
    # forks keep defaults that their lines left
    fork = version.stated is not None and version.span.low != version.span.high
    default = case.surely("estimate", "on") and not fork and not case.of("graph_not_charged")
    return default and low(case.value("cudagraph_memory_estimate")) > 0


def _charged(case: Case) -> Finding | None:
    if not _is_charged(case):
        return None
    charged = case.value("cudagraph_memory_applied")
    off = _worst_pool_line(case)
    lines = case.lines("graph_charged") or case.evidence("cudagraph_memory_applied")
    detail = f"{gib_text(charged)} of the budget are kept for CUDA graphs before the KV cache is sized."
    if low(charged) <= 0 and not case.of("graph_charged"):
        detail += " That is this release's default; the line that tells is not in the log."
    actions: tuple[Action, ...] = ()
    pool, total, now = (case.value(n) for n in ("available_kv_cache_memory", "total_memory", "gpu_memory_utilization"))
    for said in case.of("graph_charged")[:1]:
        same, wanted = said.text("equivalent_utilization"), said.text("suggested_utilization")
        detail += f" Without the charge, --gpu-memory-utilization {same} would give this pool."
        top = highest_utilization(case.value("initial_free_memory"), total)
        if wanted and now.is_point and (top is None or float(wanted) <= top):
            effects = resized(pool, total, float(wanted) - float(now.low or 0), case.rate)
            actions = (Action(f"--gpu-memory-utilization {wanted}", effects, "less is left beside the budget"),)
    back = (Effect("available_kv_cache_memory", pool.plus(charged)),)
    risk = "graphs then come on top of the budget: capture can run out of memory"
    actions = (*actions, Action(f"{SWITCH}=0", back, risk))
    if case.of(*OUT_OF_MEMORY):
        actions = ()  # both take memory from a start that had too little
    lines = merged(lines, case.lines("graph_estimate")[:1])
    return Finding(
        "graphs-charged-to-kv", WARNING if off else NOTE, "CUDA graphs are charged to the KV cache", detail, lines,
        case.cost(charged), actions,
    )  # fmt: skip


def _not_charged(case: Case) -> Finding | None:
    said = case.of("graph_not_charged")
    if not said:
        return None
    estimate, beside = case.value("cudagraph_memory_estimate"), _beside_budget(case)
    headroom = at_least_zero(case.value("transient_peak_headroom"))
    room = beside.plus(headroom)
    detail = f"The estimate of {gib_text(estimate)} is printed but not taken from the budget; graphs come on top of it."
    if room.low is not None or room.high is not None:
        detail += (
            f" At capture about {gib_text(room)} are free: what stands beside the budget and the idle activation room."
        )
    else:
        detail += " What is free at capture is not printed at this level (VLLM_LOGGING_LEVEL=DEBUG)."
    tight = high(room) < low(estimate)
    wanted = said[0].text("suggested_utilization")
    action = Action(
        f"{SWITCH}=1 --gpu-memory-utilization {wanted}", (), "the same pool, with the graphs inside the budget"
    )
    severity = WARNING if tight else NOTE
    lines = merged(tuple(s.line for s in said), case.lines("graph_estimate")[:1])
    title = "CUDA graphs are not in the budget"
    return Finding("graph-estimate-not-charged", severity, title, detail, lines, actions=(action,))


def _outside_budget(case: Case) -> Finding | None:
    if not case.surely("estimate", "none"):
        return None
    found = [h for h in case.held("cudagraph_memory_actual") if low(h.quantity.interval) > 0]
    worst = max(found, key=lambda h: low(h.quantity.interval), default=None)
    if worst is None:
        return None
    actual, budget = worst.quantity.interval, case.value("requested_memory")
    free, total = case.value("initial_free_memory"), case.value("total_memory")
    detail = f"This release makes no estimate: graphs took {gib_text(actual)} on top of the budget."
    left = (free if free.low else total).minus(budget).minus(actual)
    if left.low is not None and left.high is not None:
        detail += f" Budget and graphs together leave {gib_text(left)} of what was free."
    else:
        detail += " How near that is to the card's edge needs T and F (--gpu or --total-memory adds T)."
    severity = WARNING if left.high is not None and left.high < EDGE.value else NOTE
    lines = merged(worst.quantity.lines)
    lower = Action("fewer --cuda-graph-sizes, or --enforce-eager", (), "slower decoding of the sizes left out")
    actions = (lower,) if severity == WARNING else ()
    return Finding(
        "graphs-outside-budget", severity, "CUDA graphs came on top of the budget", detail, lines, actions=actions
    )


def _estimate_off(case: Case) -> Finding | None:
    worst = _worst_pool_line(case)
    if worst is None:
        return None
    error = _error(worst)
    actual, estimate = printed(worst, "cudagraph_memory_actual"), printed(worst, "cudagraph_memory_estimate")
    charged = _is_charged(case)
    over = high(error) < 0
    said = f"difference printed by the engine: {worst.text('difference')} GiB"
    detail = f"Estimated {gib_text(estimate)}, taken {gib_text(actual)} ({said})."
    if over and charged:
        detail += " The excess was kept from the KV cache."
    elif over:
        detail += " The estimate was not charged, so the excess cost nothing."
    else:
        detail += " The shortfall came out of the memory beside the budget."
    detail += _causes(case)
    cost = case.cost(error.negated()) if over and charged else NO_COST
    lines = merged(case.lines("graph_pool"), case.lines("graph_estimate")[:1])
    size = error.negated() if over else error
    title = f"The graph estimate is {'too high' if over else 'too low'} by {gib_text(size)}"
    actions: tuple[Action, ...] = ()
    if over and charged:
        gained = (Effect("available_kv_cache_memory", case.value("available_kv_cache_memory").plus(error.negated())),)
        actions = (
            Action("raise --gpu-memory-utilization by the excess", gained, "a later start may estimate otherwise"),
        )
    return Finding("graph-estimate-off", WARNING if charged else NOTE, title, detail, lines, cost, actions)


def _causes(case: Case) -> str:
    causes = []
    settings = case.ledger.settings
    if settings.get("speculative_config") or case.of("draft_max_model_len", "drafter_loading"):
        causes.append("a drafter's graphs")
    if case.of("encoder_cache", "encoder_graph_captured"):
        causes.append("the encoder")
    if case.context_parallel > 1:
        causes.append("FULL graphs, which are not profiled under context parallelism")
    if any("GB10" in (s.text("path") or "") for s in case.of("device_name")):
        causes.append("unified memory, where the estimate is a difference of host memory")
    return f" Known sources of error here: {', '.join(causes)}." if causes else ""


def _suggestion_wrong(case: Case) -> Finding | None:
    said = [s for s in case.of("usage", "usage_consumed") if s.text("kv_cache_memory_to_requested")]
    if not said or not case.surely("peak_has_estimate", True):
        return None
    charged = case.value("cudagraph_memory_applied")
    if charged.high == 0 or (case.before("0.27.0") and low(charged) <= 0):
        return None
    first = said[0]
    to_budget = printed(first, "kv_cache_memory_to_requested").plus(at_least_zero(charged))
    to_card = printed(first, "kv_cache_memory_to_gpu").plus(at_least_zero(charged))
    detail = (
        "The printed --kv-cache-memory figures subtract CUDA graphs twice, once as measured and once inside the peak. "
        f"Right are {whole(to_budget)} B to fit the budget and {whole(to_card)} B to fill the card."
    )
    if low(charged) <= 0:
        detail += " Whether an estimate was charged is not in the log, so the lower end may be the figure."
    actions: tuple[Action, ...] = ()
    if to_budget.low is not None:
        size = int(to_budget.low)
        risk = "profiling is skipped: what the next start needs beside the pool must not grow"
        actions = (Action(f"--kv-cache-memory {size}", (Effect("kv_pool_memory", Interval.exactly(size)),), risk),)
    title = "The engine's --kv-cache-memory hint counts graphs twice"
    return Finding(
        "kv-suggestion-wrong",
        NOTE,
        title,
        detail,
        tuple(s.line for s in said),
        case.cost(at_least_zero(charged)),
        actions,
    )


RULES = (
    FindingRule(
        "graphs-charged-to-kv",
        (WARNING, NOTE),
        "Bytes and tokens charged, the utilisation that would give the same pool without it, the switch and its risk.",
        "G taken from the budget is above 0: by its line, or by the release's default where no line says otherwise; a warning "
        "when the estimate is off as well.",
        ("cudagraph_memory_applied", "graph_charged", "graph_pool"),
        _charged,
        (OFF_SHARE, OFF_BYTES),
    ),
    FindingRule(
        "graph-estimate-not-charged",
        (WARNING, NOTE),
        "What is free at capture, and the risk of running out.",
        "An estimate is printed and not taken from the budget; a warning when it exceeds what is free at capture.",
        ("graph_not_charged", "cudagraph_memory_estimate", "initial_free_memory", "requested_memory"),
        _not_charged,
    ),
    FindingRule(
        "graphs-outside-budget",
        (WARNING, NOTE),
        "How near budget and graphs together come to the card's edge.",
        "The release makes no estimate (V0, V1 before 0.18) and the capture says what it took.",
        ("cudagraph_memory_actual", "requested_memory", "initial_free_memory", "total_memory"),
        _outside_budget,
        (EDGE,),
    ),
    FindingRule(
        "graph-estimate-off",
        (WARNING, NOTE),
        "The signed error, what it cost or risked, and known sources of it.",
        "Actual and estimate are further apart than 10 % of the actual and a quarter GiB, after the rounding of both.",
        ("graph_pool", "cudagraph_memory_applied"),
        _estimate_off,
        (OFF_SHARE, OFF_BYTES),
    ),
    FindingRule(
        "kv-suggestion-wrong",
        (NOTE,),
        "The right integers.",
        "The --kv-cache-memory hint of a release whose peak contains the estimate (0.27 on; 0.18 with the switch on), where "
        "an estimate was or may have been charged.",
        ("usage", "usage_consumed", "cudagraph_memory_applied"),
        _suggestion_wrong,
    ),
)
