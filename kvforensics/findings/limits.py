"""Starts that the planner refused, and pools that nearly were: too small for a request, for anything, for the state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvforensics.findings.case import Case, at_least_zero, high, low, merged, printed, sentence
from kvforensics.findings.effects import highest_utilization, resized, utilization_step
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
from kvforensics.report.sizes import gib_text, ratio, whole
from reconstruct.interval import ANYTHING, Interval

if TYPE_CHECKING:
    from parsers.rule import Statement

BARELY = Threshold(
    "BARELY", 1.5, "below one and a half full-length requests, losing a third of the pool stops the next start"
)


def _raise_utilization(case: Case, gap: Interval) -> Action | None:
    """Give the utilisation that closes a gap, where the card has that much free; None where T or F says no."""
    total, current = case.value("total_memory"), case.value("gpu_memory_utilization")
    now, step = float(current.low or 0), utilization_step(gap, total)
    top = highest_utilization(case.value("initial_free_memory"), total)
    if step is None or not current.is_point or top is None or now + step > top:
        return None
    wanted = round(now + step, 4)
    effects = resized(case.value("available_kv_cache_memory"), total, wanted - now, case.rate)
    return Action(
        f"--gpu-memory-utilization {wanted}", effects, "less is left beside the budget for graphs and other processes"
    )


def _higher_utilization(case: Case, missing: Interval) -> Action | None:
    """Give the way up without a figure; None on the CPU backend and where the card surely has no room."""
    host = bool(case.of("cpu_auto")) or case.ledger.settings.text("device") == "cpu"
    room = high(case.value("initial_free_memory")) - low(case.value("requested_memory"))
    if host or room <= max(low(missing), 0):
        return None
    return Action("--gpu-memory-utilization higher", (), "the card must have that much free: nvidia-smi tells")


def _request_does_not_fit(case: Case) -> Finding | None:
    """Read V1's refusal in GiB or V0's in tokens."""
    refusals = case.of("need", "too_long")
    if not refusals:
        return None
    said = max(refusals, key=lambda s: len(s.fields))
    length = printed(said, "max_model_len")
    if said.kind == "too_long":
        storable = printed(said, "storable_tokens")
        gap = length.minus(storable)
        detail = f"One request of {whole(length)} tokens does not fit into a pool of {whole(storable)}; {whole(gap)} are missing."
        fits, size = storable, ANYTHING
    else:
        needed, there = printed(said, "needed_kv_cache_memory"), printed(said, "checked_kv_cache_memory")
        size, fits = at_least_zero(needed.minus(there)), printed(said, "estimated_max_model_len")
        gap = length.minus(fits) if fits != ANYTHING else ANYTHING
        detail = (
            f"One request of {whole(length)} tokens needs {gib_text(needed)} of KV cache, {gib_text(there)} are there: "
            f"{gib_text(size)} are missing."
        )
        detail += _reachable(case, fits)
    lines = merged(case.lines("need", "too_long"), case.evidence("available_kv_cache_memory"))
    return Finding(
        "request-does-not-fit", ERROR, f"One request of {whole(length)} tokens does not fit", detail, lines,
        Cost(size, gap), _fitting(case, fits, size, said.kind),
    )  # fmt: skip


def _reachable(case: Case, fits: Interval) -> str:
    """Say whether the printed estimate can be used: before 0.29 the check forgets the block that is never handed out."""
    if fits == ANYTHING:
        return ""
    if case.since("0.29.0"):
        return f" The printed estimate of {whole(fits)} tokens already holds back the null block, so it can be used."
    return (
        f" The printed estimate of {whole(fits)} tokens counts every block, but one (the null block) is never handed out: "
        "stay a block below it."
    )


def _fitting(case: Case, fits: Interval, size: Interval, kind: str) -> tuple[Action, ...]:
    block = int(case.value("block_size").high or 0)
    actions = []
    if fits.low is not None and fits.low > 0:
        below = 0 if kind == "too_long" or case.since("0.29.0") else block
        usable = max(int(fits.low) - below, 1)
        effect = Effect("max_model_len", Interval.exactly(usable))
        actions.append(Action(f"--max-model-len {usable}", (effect,), "longer requests are refused"))
    raised = _raise_utilization(case, size) if size != ANYTHING else None
    if raised:
        actions.append(raised)
    if not str(case.ledger.settings.get("kv_cache_dtype") or "auto").startswith("fp8"):
        actions.append(
            Action("--kv-cache-dtype fp8", (), "needs a supporting backend; accuracy may drop without scales")
        )
    if case.ledger.settings.get("enforce_eager") is not True and low(case.value("cudagraph_memory_applied")) > 0:
        gained = case.value("available_kv_cache_memory").plus(case.value("cudagraph_memory_applied"))
        effect = Effect("available_kv_cache_memory", gained)
        actions.append(Action("--enforce-eager", (effect,), "no CUDA graphs: slower decoding"))
    return tuple(actions)


def _no_kv_memory(case: Case) -> Finding | None:
    refusals = case.of("no_kv_memory", "auto_fit_failed")
    empty = [h for h in case.held("available_kv_cache_memory") if high(h.quantity.interval) <= 0]
    if not refusals and (not empty or case.ledger.outcome == "ready"):
        return None
    terms = (
        ("requested_memory", "budget"), ("total_consumed", "consumed at rest"), ("transient_peak_headroom", "activation peak"),
        ("cudagraph_memory_applied", "graphs"), ("available_kv_cache_memory", "left for the KV cache"),
    )  # fmt: skip
    stated = [(label, q.interval) for name, label in terms if (q := case.quantity(name)) is not None]
    account = [f"{label} {gib_text(interval)}" for label, interval in stated if interval != Interval.exactly(0)]
    eaters = [(name, label) for name, label in terms[1:4] if low(case.value(name)) > 0]
    largest = max(eaters, key=lambda t: low(case.value(t[0])), default=None)
    left = case.value("available_kv_cache_memory")
    detail = "Nothing is left of the budget for the KV cache."
    detail += f" {sentence(account)}" if account else " The log states no term of the budget."
    detail += f" Most of it went to: {largest[1]}." if largest else ""
    if case.of("cpu_auto") or case.ledger.settings.text("device") == "cpu":
        detail += " On the CPU backend the budget is host memory."
    missing = at_least_zero(left.negated()) if left != ANYTHING else ANYTHING
    raised = _raise_utilization(case, missing) if missing != ANYTHING else None
    smaller = Action(
        "--max-num-batched-tokens and --max-num-seqs lower", (), "slower prefill, fewer requests at a time"
    )
    lines = merged(case.lines("no_kv_memory", "auto_fit_failed"), *(h.quantity.lines for h in empty))
    lines = merged(lines, case.evidence("total_consumed", "transient_peak_headroom"))
    actions = tuple(a for a in (raised or _higher_utilization(case, missing), smaller) if a)
    return Finding("no-kv-memory", ERROR, "Nothing left for the KV cache", detail, lines, Cost(missing), actions)


def _seqs_exceed_state_blocks(case: Case) -> Finding | None:
    said = case.of("state_blocks")
    if not said:
        return None
    asked, there = printed(said[0], "asked_max_num_seqs"), printed(said[0], "num_blocks")
    detail = (
        f"Each decoding sequence needs a state block; there are {whole(there)}, and max_num_seqs is {whole(asked)}. "
        "Memory is not the problem: the bound is on sequences."
    )
    action = Action(f"--max-num-seqs {int(there.low or 0)}", (), "more requests wait their turn")
    lines = case.lines("state_blocks", "attention_block_size")
    title = f"max_num_seqs {whole(asked)} exceeds {whole(there)} state blocks"
    return Finding("seqs-exceed-state-blocks", ERROR, title, detail, merged(lines), actions=(action,))


def _auto_fit_reduced(case: Case) -> Finding | None:
    said = _reductions(case)
    if not said:
        return None
    asked, given = printed(said[0], "asked_max_model_len"), printed(said[0], "max_model_len")
    detail = (
        f"The engine cut max_model_len from {whole(asked)} to {whole(given)} tokens, all that the pool holds. A concurrency "
        "of 1.00x then says nothing: the length was chosen to give it."
    )
    return Finding("auto-fit-reduced", NOTE, f"Length cut to {whole(given)} tokens", detail, case.lines("auto_fit"))


def _reductions(case: Case) -> list[Statement]:
    """Give the lines with which auto-fit cut the length; others say that the length fits."""
    return [s for s in case.of("auto_fit") if printed(s, "asked_max_model_len") != ANYTHING]


def _pool_below_max_len(case: Case) -> Finding | None:
    if case.ledger.outcome == "failed":
        return None
    length, concurrency, tokens = (case.value(n) for n in ("max_model_len", "max_concurrency", "kv_cache_tokens"))
    short = high(concurrency) < 1 if concurrency != ANYTHING else high(tokens) < low(length)
    if not short or case.of("auto_fit") or high(case.value("kv_pool_memory")) <= 0:
        return None
    detail = (
        f"The pool holds {ratio(concurrency)} requests of {whole(length)} tokens, and the start went on. A request of that "
        "length can wait for ever, or is preempted again and again."
    )
    lines = case.evidence("kv_cache_tokens", "max_concurrency", "max_model_len")
    action = Action(f"--max-model-len {int(tokens.low)}", (), "longer requests are refused") if tokens.low else None
    actions = (action,) if action else ()
    return Finding(
        "pool-below-max-len", WARNING, "The pool is smaller than one full request", detail, lines, actions=actions
    )


def _barely_fits(case: Case) -> Finding | Unsaid | None:
    concurrency = case.value("max_concurrency")
    if case.ledger.outcome == "failed":
        return None
    if concurrency.high is None or concurrency.low is None:
        return Unsaid("barely-fits", "how many full-length requests fit: the log has no concurrency line")
    if _reductions(case) or concurrency.high < 1 or concurrency.high >= BARELY.value:
        return None
    detail = (
        f"{ratio(concurrency)} requests of full length fit. A longer max_model_len, a larger batch, a drafter or another process "
        "on the card can stop the next start."
    )
    lines = case.evidence("max_concurrency", "kv_cache_tokens")
    return Finding("barely-fits", NOTE, f"Only {ratio(concurrency)} full-length requests fit", detail, lines)


RULES = (
    FindingRule(
        "request-does-not-fit",
        (ERROR,),
        "How much is missing for one request of full length, whether the printed estimate can be reached, and the levers.",
        "The planner refused: 'To serve at least one request', or V0's 'max seq len is larger than'. Not the validator's "
        "'greater than the derived max_model_len', which is no question of memory.",
        ("need", "too_long", "total_memory", "initial_free_memory", "gpu_memory_utilization"),
        _request_does_not_fit,
        after=("drafter-cost", "batched-tokens-eat-kv", "memory-held-by-others"),
    ),
    FindingRule(
        "no-kv-memory",
        (ERROR,),
        "The budget term by term, and which one ate it.",
        "'No available memory for the cache blocks', or M at or below 0 in a start that did not come up.",
        ("no_kv_memory", "available_kv_cache_memory"),
        _no_kv_memory,
        after=("batched-tokens-eat-kv", "memory-held-by-others", "unexplained-memory"),
    ),
    FindingRule(
        "seqs-exceed-state-blocks",
        (ERROR,),
        "The bound on sequences, and the value to set.",
        "max_num_seqs lies above the state blocks of a Mamba-like model.",
        ("state_blocks",),
        _seqs_exceed_state_blocks,
    ),
    FindingRule(
        "auto-fit-reduced",
        (NOTE,),
        "The old and the new length.",
        "The engine reduced max_model_len by itself.",
        ("auto_fit",),
        _auto_fit_reduced,
    ),
    FindingRule(
        "pool-below-max-len",
        (WARNING,),
        "That a full-length request may never be served.",
        "Less than one full-length request fits, and the start went on.",
        ("max_concurrency", "max_model_len"),
        _pool_below_max_len,
        after=("blocks-overridden",),
    ),
    FindingRule(
        "barely-fits",
        (NOTE,),
        "That the next change may not start.",
        "Between 1 and 1.5 full-length requests fit; not after auto-fit, which makes it 1 by itself.",
        ("max_concurrency",),
        _barely_fits,
        (BARELY,),
    ),
)
