"""Numbers that are read wrongly: tokens that are no capacity, pools that are large by design, figures of one rank."""

from __future__ import annotations

from kvforensics.findings.case import DEFAULT_BLOCK, Case, high, low, merged, printed
from kvforensics.findings.finding import NOTE, WARNING, Action, Finding, FindingRule, Threshold, Unsaid
from kvforensics.report.sizes import gib_text, ratio, whole
from reconstruct.interval import ANYTHING, Interval
from reconstruct.rounding import GIB

SEVERAL_GROUPS = ("attention_block_size", "cache_groups", "mamba_padding", "padding_layers")
"""Lines that only a model with unlike cache layers prints."""

MANY_WEIGHTS = Threshold(
    "MANY_WEIGHTS", 10, "a pool ten times the weights is far beyond what a model of that size is served with"
)
MANY_REQUESTS = Threshold(
    "MANY_REQUESTS", 100, "a hundred full-length requests at once exceed what most services ask for"
)
RANKS_APART = Threshold(
    "RANKS_APART", GIB // 4, "a quarter GiB is beyond the spread of driver and NCCL between like cards"
)
RANKS_SHARE = Threshold(
    "RANKS_SHARE", 0.01, "one per cent of the pool, for cards so small that a quarter GiB is too coarse"
)

_FORMULAS = {
    "blocks": "blocks x block size",
    "groups": "blocks // cache groups x the smallest block size",
    "requests": "int(concurrency x max_model_len)",
}


def _tokens_are_not_capacity(case: Case) -> Finding | None:
    tokens, size = case.value("kv_cache_tokens"), case.value("block_size")
    if not tokens.is_point or tokens.low == 0 or not case.measured:
        return None
    groups = case.of(*SEVERAL_GROUPS)
    block = int(size.low or 0) if size.is_point else _default_block(case)
    broken = block > 0 and int(tokens.low or 0) % block != 0
    if not (groups or broken or _differs(case, tokens)) or case.of("hybrid_manager_disabled"):
        return None
    formulas = dict.fromkeys(_FORMULAS[e.tokens] for e in case.ledger.eras if e.tokens in _FORMULAS)
    concurrency, length = case.value("max_concurrency"), case.value("max_model_len")
    detail = f"The printed {whole(tokens)} tokens are {' or '.join(formulas) or 'a derived figure'} in this release"
    detail += "; the model has several cache groups, so blocks x block size is another number." if groups else "."
    if ANYTHING not in {concurrency, length}:
        detail += f" The number to trust is the concurrency: {ratio(concurrency)} requests of {whole(length)} tokens."
    blocks = case.value("num_blocks")
    if blocks.is_point and size.is_point:
        detail += f" Blocks x block size is {int(blocks.low or 0) * int(size.low or 0):,}."
    lines = merged(case.evidence("kv_cache_tokens", "max_concurrency"), tuple(s.line for s in groups))
    return Finding("tokens-are-not-capacity", NOTE, "The token count is not the capacity", detail, lines)


def _default_block(case: Case) -> int:
    """Give the block size that rules where nothing else is said; 0 where something may be."""
    settings = case.ledger.settings
    plain = settings.lists_changes and settings.get("block_size") is None and settings.text("device") != "cpu"
    return DEFAULT_BLOCK if plain and not case.of("backend_block_size", "attention_block_size") else 0


def _differs(case: Case, tokens: Interval) -> bool:
    """Whether the printed concurrency or the blocks contradict tokens = blocks x block size."""
    size, blocks = case.value("block_size"), case.value("num_blocks")
    told = case.quantity("num_blocks")
    if told and told.origin == "printed" and size.is_point and blocks.is_point:
        return int(tokens.low or 0) != int(blocks.low or 0) * int(size.low or 0) * case.context_parallel
    length, concurrency = case.value("max_model_len"), case.value("max_concurrency")
    if not case.surely("tokens", "groups") or not (size.is_point and length.is_point) or concurrency.low is None:
        return False
    if case.context_parallel > 1 or case.of("context_parallel"):
        return False
    request = -(-int(length.low or 0) // int(size.low or 1)) * int(size.low or 1)
    return not (concurrency.low * request <= int(tokens.low or 0) <= high(concurrency) * request)


def _whole_gpu_by_design(case: Case) -> Finding | None:
    if case.ledger.outcome == "failed" or not case.measured:
        return None
    pool, weights, concurrency = case.value("kv_pool_memory"), case.value("model_memory"), case.value("max_concurrency")
    many = low(concurrency) >= MANY_REQUESTS.value
    room = max(low(pool), low(case.value("available_kv_cache_memory")))
    large = weights.high is not None and room >= MANY_WEIGHTS.value * weights.high > 0
    if not (many or large):
        return None
    detail = (
        "vLLM takes its whole budget at the start and fills what the model leaves with KV cache; that is by design."
    )
    if pool.high is not None and weights.high is not None:
        detail += f" The pool is {gib_text(pool)}, the weights {gib_text(weights)}."
    if concurrency != ANYTHING:
        detail += f" {ratio(concurrency)} requests of full length fit at once."
    detail += " To take less, lower --gpu-memory-utilization or set --kv-cache-memory-bytes to length x sequences."
    lines = merged(case.evidence("kv_cache_tokens", "max_concurrency", "available_kv_cache_memory", "model_memory"))
    return Finding("whole-gpu-by-design", NOTE, "The pool is as large as the budget allows, by design", detail, lines)


def _per_rank_not_total(case: Case) -> Finding | None:
    engines = case.ledger.engines
    counts = [q for e in engines if (q := e.capacity.get("kv_cache_tokens")) is not None]
    if len(engines) < 2 or not counts:
        return None
    total = Interval.exactly(0)
    for q in counts:
        total = total.plus(q.interval)
    detail = (
        f"Every figure is one engine's: {len(engines)} data-parallel engines have a pool each, together {whole(total)} tokens as "
        f"far as the log shows ({len(counts)} of them). Tensor parallelism does not multiply tokens."
    )
    lines = merged(*(q.lines for q in counts))
    return Finding("per-rank-not-total", NOTE, "The figures are per engine, not in total", detail, lines)


def _ranks_differ(case: Case) -> Finding | Unsaid | None:
    uneven: list[tuple[float, Finding]] = []
    for engine in case.ledger.engines:
        pools = [(r, q) for r in engine.ranks if (q := r.account.get("available_kv_cache_memory")) is not None]
        if len(pools) < 2:
            continue
        poorest = min(pools, key=lambda p: high(p[1].interval))
        gaps = [q.interval.minus(poorest[1].interval) for _, q in pools]
        gap = max(gaps, key=low)
        limit = min(RANKS_APART.value, RANKS_SHARE.value * max(high(poorest[1].interval), 0))
        if low(gap) < limit:
            continue
        idle = Interval.exactly(0)
        for one in gaps:
            idle = idle.plus(Interval(max(low(one), 0), None if one.high is None else max(one.high, 0)))
        detail = (
            f"{poorest[0].name} has {gib_text(poorest[1].interval)} for the KV cache, another rank "
            f"{gib_text(gap)} more. The pool is sized by the rank with the fewest blocks; up to {gib_text(idle)} lie idle on "
            "the others."
        )
        lines = merged(*(q.lines for _, q in pools))
        actions = _partition(case)
        found = Finding("ranks-differ", WARNING, "Ranks have unlike room", detail, lines, case.cost(gap), actions)
        uneven.append((low(gap), found))
    if uneven:
        return max(uneven, key=lambda u: u[0])[1]
    if case.world > 1 and len(case.held("available_kv_cache_memory")) == 1:
        return Unsaid("ranks-differ", "M of the other ranks: they print it only with VLLM_LOGGING_LEVEL=DEBUG")
    return None


def _partition(case: Case) -> tuple[Action, ...]:
    if (case.ledger.settings.number("pipeline_parallel_size") or 1) > 1:
        return (
            Action("VLLM_PP_LAYER_PARTITION with fewer layers on the poor stage", (), "stages may run at unlike speed"),
        )
    return (Action("find out what else runs on the poorer card", (), ""),)


def _blocks_overridden(case: Case) -> Finding | None:
    said = [s for s in case.of("override") if s.text("computed_num_blocks") not in {None, "0"}]
    settings = case.ledger.settings
    asked = settings.number("num_gpu_blocks_override") is not None
    if not said or not case.measured or not (asked or not settings.lists_changes):
        return None
    computed, taken = printed(said[0], "computed_num_blocks"), printed(said[0], "override_num_blocks")
    more = low(taken) > high(computed)
    per_block, pool = case.value("bytes_per_block"), case.value("kv_pool_memory")
    detail = f"num_gpu_blocks_override replaces the {whole(computed)} blocks that fit by {whole(taken)}."
    if per_block.low is not None and per_block.high is not None:
        bytes_needed = Interval(int(taken.low or 0) * per_block.low, int(taken.high or 0) * per_block.high)
        detail += f" They need {gib_text(bytes_needed)}; the pool is {gib_text(pool)}."
    if case.surely("override_ignored", True):
        detail += " This release prints the override and then ignores it."
    severity = WARNING if more or case.surely("override_ignored", True) else NOTE
    title = f"{whole(taken)} blocks by order, {whole(computed)} fit"
    return Finding("blocks-overridden", severity, title, detail, tuple(s.line for s in said))


RULES = (
    FindingRule(
        "tokens-are-not-capacity",
        (NOTE,),
        "Which formula this release printed, blocks x block size, and the number to trust.",
        "The tokens are no multiple of the block, differ from blocks x block size, or the model has several cache groups.",
        ("kv_cache_tokens", "block_size", "max_concurrency", *SEVERAL_GROUPS),
        _tokens_are_not_capacity,
    ),
    FindingRule(
        "whole-gpu-by-design",
        (NOTE,),
        "That the pool is pre-allocated by design, and how to take less.",
        "The pool is ten times the weights, or a hundred full-length requests fit.",
        ("kv_pool_memory", "model_memory", "max_concurrency"),
        _whole_gpu_by_design,
        (MANY_WEIGHTS, MANY_REQUESTS),
    ),
    FindingRule(
        "per-rank-not-total",
        (NOTE,),
        "That each engine has a pool of its own, and their sum.",
        "Several data-parallel engines stand in the log.",
        ("kv_cache_tokens",),
        _per_rank_not_total,
    ),
    FindingRule(
        "ranks-differ",
        (WARNING,),
        "Which rank binds, and what lies idle on the others.",
        "The M of two ranks of one engine are surely a quarter GiB or one per cent apart.",
        ("available_kv_cache_memory",),
        _ranks_differ,
        (RANKS_APART, RANKS_SHARE),
        after=("memory-held-by-others",),
    ),
    FindingRule(
        "blocks-overridden",
        (WARNING, NOTE),
        "What the ordered blocks need, against the pool.",
        "The user gave num_gpu_blocks_override. Not the graph profiler's own override of 0 blocks.",
        ("override", "bytes_per_block", "kv_pool_memory"),
        _blocks_overridden,
    ),
)
