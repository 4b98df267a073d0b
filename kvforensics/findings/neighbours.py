"""Memory that is not the model's: other processes, unified memory, budgets beyond what is free, pools given in bytes."""

from __future__ import annotations

from kvforensics.findings.case import Case, Held, at_least_zero, high, low, merged, printed
from kvforensics.findings.effects import highest_utilization
from kvforensics.findings.finding import (
    ERROR,
    NOTE,
    WARNING,
    Action,
    Cost,
    Effect,
    Finding,
    FindingRule,
    Threshold,
    Unsaid,
)
from kvforensics.findings.out_of_memory import holders
from kvforensics.findings.peaks import ABOVE_MODEL, SURE_MODEL, unexplained_peak
from kvforensics.report.sizes import gib, gib_text
from reconstruct.interval import ANYTHING, Interval
from reconstruct.rounding import GIB

ONE_RANK_HELD = Threshold(
    "ONE_RANK_HELD", int(0.65 * GIB), "T - F of a lone rank on an empty card: 0.23 to 0.61 GiB over eleven card models"
)
GROUP_HELD = Threshold(
    "GROUP_HELD",
    int(2.6 * GIB),
    "T - F with NCCL before the snapshot (0.11.0 on): 1.4 to 2.1 GiB, 2.5 with context parallelism",
)
ABOVE_PEERS = Threshold("ABOVE_PEERS", GIB // 2, "ranks of one launch hold alike; half a GiB is beyond their spread")
ONE_RANK_UNEXPLAINED = Threshold(
    "ONE_RANK_UNEXPLAINED",
    GIB,
    "non-torch of a lone rank from 0.9.1 on: 0.02 to 0.61 GiB seen, 1.0 to 1.5 GiB beside other programs",
)
GROUP_UNEXPLAINED = Threshold(
    "GROUP_UNEXPLAINED",
    int(2.6 * GIB),
    "non-torch in groups: 2.0 to 2.2 GiB with the all-reduce workspace of H100-class cards",
)

BASELINE_UNKNOWN = "T and F at the baseline: no line states both"
MOST_TAKEN = Threshold(
    "MOST_TAKEN", 0.5, "where others leave less than half the budget, a pool in what is left is rarely what was wanted"
)


def _unified(case: Case) -> tuple[int, ...]:
    """Give the lines that name an integrated device, by the table of cards; GH200 has memory of its own and is none."""
    said = case.of("device_name")
    if not said:
        return ()
    from reconstruct.cards import cards

    names = {alias.replace(" ", "_") for card in cards() if card.integrated for alias in card.aliases}
    return tuple(s.line for s in said if any(name in (s.text("path") or "") for name in names))


def _used(case: Case) -> list[tuple[Held, Interval]]:
    """Give T - F at the baseline for every rank that states both; V0's figures are taken after load and say nothing."""
    if not (case.surely("engine", "V1") and case.since("0.9.1")):
        return []
    free = {id(h.rank): h.quantity.interval for h in case.held("initial_free_memory") if h.quantity.origin == "printed"}
    return [(h, h.quantity.interval.minus(free[id(h.rank)])) for h in case.held("total_memory") if id(h.rank) in free]


def _budget_exceeds_free(case: Case) -> Finding | None:
    refusals = case.of("free_below_requested", "external_exceeds")
    if not refusals:
        return None
    first = max(refusals, key=lambda s: low(printed(s, "requested_memory").minus(printed(s, "initial_free_memory"))))
    total, free, budget = (printed(first, n) for n in ("total_memory", "initial_free_memory", "requested_memory"))
    short = at_least_zero(budget.minus(free))
    tops = [
        t
        for s in refusals
        if (t := highest_utilization(printed(s, "initial_free_memory"), printed(s, "total_memory"))) is not None
    ]
    detail = (
        f"The budget of {gib_text(budget)} exceeds the {gib_text(free)} that are free of {gib_text(total)}: "
        f"short by {gib_text(short)}. {gib_text(total.minus(free))} were in use before the engine took anything."
    )
    ranks = {s.record.speaker.pid for s in refusals if s.record.speaker.pid is not None}
    if len(ranks) > 1:
        detail += f" {len(ranks)} workers were refused."
    actions: list[Action] = []
    if tops and min(tops) > 0:
        top = min(tops)
        actions.append(
            Action(
                f"--gpu-memory-utilization {top}",
                (Effect("requested_memory", free),),
                "a smaller KV cache, if it still fits",
            )
        )
    freeing = Action(
        "end what else runs on the card (nvidia-smi names it)",
        (),
        "it may be another server, or a start that still ends",
    )
    actions.insert(0 if high(free) < MOST_TAKEN.value * low(budget) else len(actions), freeing)
    title = f"The budget exceeds the free memory by {gib_text(short)}"
    lines = merged(tuple(s.line for s in refusals))
    return Finding("budget-exceeds-free-memory", ERROR, title, detail, lines, Cost(short), tuple(actions))


def _held_by_others(case: Case) -> Finding | Unsaid | None:
    used = _used(case)
    lone = case.world == 1 or case.before("0.11.0")
    limit = ONE_RANK_HELD if lone else GROUP_HELD
    beyond = [(h, u, limit.value) for h, u in used if low(u) > limit.value]
    least = max(0, min((high(u) for _, u in used), default=float("inf")))  # below 0 only where lines contradict
    beyond += [(h, u, least) for h, u in used if low(u) - least > ABOVE_PEERS.value]
    worst = max(beyond, key=lambda b: low(b[1]) - b[2], default=None)
    named = [s for s in case.of("out_of_memory") if holders(s)[1]]
    if worst is None and not named:
        return None if used else Unsaid("memory-held-by-others", BASELINE_UNKNOWN)
    detail, lost, lines = "", ANYTHING, case.lines("free_below_requested")
    if worst:
        held, in_use, own = worst
        lost = Interval(max(int(low(in_use) - own), 0), in_use.high)
        lines = merged(lines, held.quantity.lines, *(h.quantity.lines for h in case.held("initial_free_memory")))
        detail = (
            f"On {held.rank.name} {gib_text(in_use)} were in use at the baseline; an engine of this release and "
            f"world size holds up to {gib(Interval.exactly(int(own)))} GiB itself. The rest can be another process, a "
            "display or WSL."
        )
        if _unified(case):
            detail += " On unified memory it can also be the page cache."
    for said in named[:1]:
        parts = [f"process {pid} {gib_text(size)}" for pid, size in holders(said)[1]]
        named_ones = f"Torch's error names {', '.join(parts)} beside this process."
        detail = f"{detail} {named_ones}".strip()
        lines = merged(lines, (said.line,))
    action = Action(
        "find and end the other processes (nvidia-smi), or lower --gpu-memory-utilization", (), "they may be wanted"
    )
    title = "Other processes hold memory on the card"
    return Finding("memory-held-by-others", WARNING, title, detail, lines, Cost(lost), (action,))


def _uma_device(case: Case) -> Finding | None:
    lines = _unified(case)
    if not lines:
        return None
    detail = (
        "The device shares the host's memory. Free memory is what the system has available, the page cache of "
        "a loaded checkpoint counts against it, differences of free memory include the host's, and the "
        "utilisation bounds nothing but the pool."
    )
    action = Action(
        "drop the page cache before the start, or set --kv-cache-memory-bytes", (), "other programs' caches go too"
    )
    return Finding("uma-device", NOTE, "Unified memory: free means available RAM", detail, lines, actions=(action,))


def _free_memory_grew(case: Case) -> Finding | None:
    fatal, survived = case.of("free_grew"), case.of("free_grew_survived")
    said = (fatal or survived)[:1]
    if not said:
        return None
    before = printed(said[0], "initial_free_memory")
    after = printed(said[0], "free_after_profiling" if fatal else "free_after")
    detail = f"Free memory went from {gib_text(before)} to {gib_text(after)} while the engine profiled"
    detail += ": another process let go of memory."
    detail += "" if fatal else " The engine sized the pool from torch's reserved memory instead."
    action = Action("start again, or start engines on one card one after the other", (), "")
    lines = tuple(s.line for s in (fatal or survived))
    grown = at_least_zero(after.minus(before))
    severity = ERROR if fatal and case.ledger.outcome != "ready" else WARNING
    return Finding(
        "free-memory-grew", severity, "Free memory grew while profiling", detail, lines, Cost(grown), (action,)
    )


def _explicit_kv_memory(case: Case) -> Finding | None:
    said = case.of("explicit_kv_memory", "startup_plan")
    if not said:
        return None
    pool = printed(said[0], "explicit_kv_cache_memory")
    free = next((f for s in said if (f := printed(s, "initial_free_memory")) != ANYTHING), ANYTHING)
    weights = case.value("model_memory")
    detail = f"The pool is {gib_text(pool)} by order: --gpu-memory-utilization is ignored and nothing is profiled."
    left = free.minus(pool).minus(weights)
    if left.low is not None and left.high is not None:
        detail += f" {gib_text(left)} are left for activations, graphs and libraries."
    elif free != ANYTHING:
        detail += f" {gib_text(free)} were free before; the weights are not in the log."
    if case.of("startup_plan"):
        detail += " A persisted start-up plan gave the figure; remove it to profile anew."
    lines = tuple(s.line for s in said)
    return Finding("explicit-kv-memory", NOTE, "The KV cache has a fixed size", detail, lines)


def _mm_ipc_reserved(case: Case) -> Finding | None:
    said = case.of("mm_reservation")
    if not said:
        return None
    taken, left = printed(said[0], "mm_ipc_reservation"), printed(said[0], "kv_pool_memory")
    detail = (
        f"{gib_text(taken)} are kept for decoding images and video in the front end; the pool is "
        f"{gib_text(left)}, not the printed M of {gib_text(case.value('available_kv_cache_memory'))}."
    )
    action = Action("--mm-ipc-gpu-memory-gb 0", (), "multimodal inputs go through host memory")
    return Finding(
        "mm-ipc-reserved",
        NOTE,
        "Memory is kept for multimodal input",
        detail,
        case.lines("mm_reservation"),
        case.cost(taken),
        (action,),
    )


def _sleep_mode(case: Case) -> Finding | None:
    lines = merged(case.lines("sleep_mode", "slept"))
    asked = case.ledger.settings.get("enable_sleep_mode") is True
    if not (lines or asked):
        return None
    detail = (
        "Weights and KV cache live in pools of the cumem allocator. Segments that such a pool holds without using them count as "
        "consumed, so the printed M can be too small, not too large; what 'Sleep mode freed' counts is the device's free memory, "
        "other processes included."
    )
    return Finding(
        "sleep-mode-accounting",
        NOTE,
        "Sleep mode blurs the accounting",
        detail,
        merged(lines, case.setting_lines("enable_sleep_mode")),
    )


def _unexplained(case: Case) -> Finding | None:
    if not (case.surely("engine", "V1") and case.since("0.9.1")) or case.surely("charge", "device", "opaque"):
        return None
    limit = (ONE_RANK_UNEXPLAINED if case.world == 1 else GROUP_UNEXPLAINED).value
    worst: tuple[float, Held, Interval] | None = None
    weights = {id(h.rank): h.quantity.interval for h in case.held("model_memory")}
    terms = [(h, h.quantity.interval) for h in case.held("non_torch_increase")]
    if case.surely("charge", "consumed"):
        terms = [
            (h, h.quantity.interval.minus(weights[id(h.rank)]))
            for h in case.held("total_consumed")
            if id(h.rank) in weights
        ]
    for held, rest in terms:
        if low(rest) > limit and (worst is None or low(rest) > worst[0]):
            worst = (low(rest), held, rest)
    if worst is None:
        return unexplained_peak(case)
    _, held, rest = worst
    beyond = Interval(int(low(rest) - limit), None if rest.high is None else int(rest.high - limit))
    detail = (
        f"On {held.rank.name} {gib_text(rest)} are neither weights nor torch's peak; up to "
        f"{gib(Interval.exactly(int(limit)))} GiB is usual. "
        "Suspects, likeliest first: another process that started meanwhile, communication buffers, a library's "
        "workspace, a pool that kept what it freed."
    )
    return Finding(
        "unexplained-memory",
        WARNING,
        "Memory that no known term explains",
        detail,
        held.quantity.lines,
        case.cost(beyond),
    )


RULES = (
    FindingRule(
        "budget-exceeds-free-memory",
        (ERROR,),
        "T - F, by how much the budget is short, and the highest utilisation that passes on every rank.",
        "'Free memory on device … is less than desired', or external weights beyond the budget.",
        ("free_below_requested", "external_exceeds"),
        _budget_exceeds_free,
        (MOST_TAKEN,),
        after=("memory-held-by-others",),
    ),
    FindingRule(
        "memory-held-by-others",
        (WARNING,),
        "What is lost, and to whom it can belong.",
        "At the baseline T - F exceeds what the release and world size hold themselves, one rank lies half a "
        "GiB above its peers, or torch's error names other processes. Never from V0's figures, which are taken after load.",
        ("total_memory", "initial_free_memory", "out_of_memory"),
        _held_by_others,
        (ONE_RANK_HELD, GROUP_HELD, ABOVE_PEERS),
    ),
    FindingRule(
        "uma-device",
        (NOTE,),
        "That free memory is the host's, and what counts against it.",
        "A line names an integrated GPU. GH200 has memory of its own and is none.",
        ("device_name",),
        _uma_device,
    ),
    FindingRule(
        "free-memory-grew",
        (ERROR, WARNING),
        "That another process let go of memory, and to start again.",
        "The profile's assertion failed, or ROCm's fallback replaced it.",
        ("free_grew", "free_grew_survived"),
        _free_memory_grew,
    ),
    FindingRule(
        "explicit-kv-memory",
        (NOTE,),
        "That the utilisation is ignored and nothing is profiled, and what is left for the rest.",
        "The pool was given in bytes, or by a persisted start-up plan. Not the CPU backend's 'Explicitly set'.",
        ("explicit_kv_memory", "startup_plan", "model_memory"),
        _explicit_kv_memory,
    ),
    FindingRule(
        "mm-ipc-reserved",
        (NOTE,),
        "The real pool against the printed M.",
        "Memory was reserved for the front end's multimodal decoding (0.25.0 on).",
        ("mm_reservation", "available_kv_cache_memory"),
        _mm_ipc_reserved,
    ),
    FindingRule(
        "sleep-mode-accounting",
        (NOTE,),
        "In which direction the figures err.",
        "Sleep mode is on, so that weights and pool live in cumem's pools.",
        ("sleep_mode", "slept"),
        _sleep_mode,
    ),
    FindingRule(
        "unexplained-memory",
        (WARNING,),
        "The amount and ranked suspects.",
        "Non-torch memory surely exceeds what is usual for the world size, or the peak of a start that compiled nothing lies "
        "surely above the model's band (config and card known); silent before 0.9.1.",
        ("non_torch_increase", "total_consumed", "model_memory", "transient_peak_headroom"),
        _unexplained,
        (ONE_RANK_UNEXPLAINED, GROUP_UNEXPLAINED, ABOVE_MODEL, SURE_MODEL),
    ),
)
