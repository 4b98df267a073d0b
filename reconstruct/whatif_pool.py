"""What the pool holds after a change: blocks, the printed token count of the release, concurrency, the longest request."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from reconstruct.cache_groups import cache_groups
from reconstruct.change import EXACT, MODELLED, UNCHANGED, UNKNOWN, TermChange
from reconstruct.equations import Shape, equations
from reconstruct.interval import ANYTHING, Interval
from reconstruct.quantities import BY_NAME
from reconstruct.relations import CeilDivision, Quotient, Term
from reconstruct.rounding import implied
from reconstruct.solver import Evidence, solve
from reconstruct.whatif_geometry import (
    SAME,
    Geometry,
    Planned,
    Share,
    blocks_after,
    holding,
    of_pool,
    planned,
    scaled,
    share_by_plans,
    share_by_settings,
    stated,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconstruct.eras import Era
    from reconstruct.ledger import Account, StartUpLedger
    from reconstruct.whatif_setup import Setup

MOST_GROUPS = 64
"""More cache groups than any model has."""


class Pool(NamedTuple):
    """Capacity rows, why the engine would refuse (surely, or at the low end), the longest request, what is unknown."""

    rows: tuple[TermChange, ...]
    refusal: str
    surely_refused: bool
    longest: Interval
    binding_stage: int | None
    left_out: tuple[str, ...]
    checked: bool
    """Whether the one-request check could be made."""


class Question(NamedTuple):
    """What the pool follows from: each stage's M row after the change, and the geometry where a config gives it."""

    startup: StartUpLedger
    capacity: Account
    now: Setup
    then: Setup
    available: tuple[TermChange, ...]
    binding: tuple[bool, ...]
    """Whether each stage's row is the binding rank's."""
    before: Geometry | None
    after: Geometry | None


def pool_after(question: Question) -> Pool:
    """Give the capacity after the change: by the planner where a config is known, else by the ledger's equations."""
    per_block = _per_block(question)
    share = _share(question)
    pools = tuple(_stage_pool(question, stage) for stage in range(len(question.available)))
    blocks = _blocks(question, per_block, pools, share)
    if question.after is not None:
        found = _by_plan(question, blocks, pools, per_block)
    else:
        found = _by_equations(question, blocks, per_block, share)
    return found


class _StagePool(NamedTuple):
    pool: Interval
    gained: Interval
    kind: str


def _stage_pool(question: Question, stage: int) -> _StagePool:
    """Give one stage's M' and what it gains on today's; the multimodal reservation is the same on both sides."""
    row, then, now = question.available[stage], question.then, question.now
    held = question.capacity.interval("kv_pool_memory")
    reserved = _reserved(question)
    if then.pool is not None and then.pool != now.pool:
        pool = Interval.exactly(then.pool).minus(reserved)
        return _StagePool(pool, pool.minus(held), EXACT)
    if then.explicit:
        return _StagePool(held, Interval.exactly(0), UNCHANGED)
    pool = row.after.minus(reserved)
    if not _same_split(question) or held == ANYTHING:
        return _StagePool(pool, row.change, row.kind)
    gained = row.change
    for other in question.available:
        gained = gained.hull(other.change)
    by_gain = held.plus(gained)  # the pool that was divided may be another rank's than the row's
    return _StagePool((by_gain.meet(pool) or by_gain) if question.binding[stage] else by_gain, gained, row.kind)


def _same_split(question: Question) -> bool:
    """Whether ranks hold the same parts of the model as today."""
    now, then = question.now, question.then
    return (now.tensor, now.pipeline) == (then.tensor, then.pipeline)


def _reserved(question: Question) -> Interval:
    """Give what the multimodal reservation takes from M (0.25.0 on): as its line prints it."""
    lines = question.startup.log.of("mm_reservation")
    printed = [implied(f) for s in lines for f in s.fields if f.name == "mm_ipc_reservation"]
    if printed:
        return printed[0]
    return Interval.exactly(0)


def _per_block(question: Question) -> Interval:
    """Give today's bytes per block: the config's, where it does not contradict the log."""
    told = question.capacity.interval("bytes_per_block")
    if question.before is None:
        return told
    sizes = Interval(min(question.before.per_block), max(question.before.per_block))
    return told.meet(sizes) or told


def _share(question: Question) -> Share:
    before, after = question.before, question.after
    if before is not None and after is not None and len(set(before.per_block)) == 1 == len(set(after.per_block)):
        return share_by_plans(before.per_block[0], after.per_block[0])
    now, then = question.now, question.then
    if before is not None and after is not None and before.per_block == after.per_block:
        return SAME
    uniform = _groups_today(question) == 1
    return share_by_settings(now, then, question.startup.settings.text("dtype"), uniform=uniform)


def _groups_today(question: Question) -> int | None:
    """Give the model's cache groups as the log shows them; None where the releases left open disagree."""
    startup, capacity = question.startup, question.capacity
    found = {
        cache_groups(
            startup.log, era, startup.version.span, ready=startup.outcome == "ready",
            tokens=capacity.interval("kv_cache_tokens"), concurrency=capacity.interval("max_concurrency"),
            length=capacity.interval("max_model_len"), size=capacity.interval("block_size"),
        )
        for era in startup.eras
    }  # fmt: skip
    return found.pop() if len(found) == 1 else None


def _blocks(question: Question, per_block: Interval, pools: Sequence[_StagePool], share: Share) -> Interval:
    """Give num_blocks after the change, both ways: from today's count, and from the pool itself."""
    held = question.capacity.interval("num_blocks")
    if question.now.overridden:
        return held
    same = _same_split(question)
    by_gain = blocks_after(held, per_block, pools[0].gained, share) if same else ANYTHING
    if same and len(pools) > 1:
        return by_gain  # the pool is the binding stage's, which no line need tell
    after = question.after
    if after is not None:
        if len(pools) != max(after.stages) + 1:
            return by_gain
        counts = [of_pool(pools[stage].pool, Interval.exactly(size)) for stage, size in _stage_blocks(after)]
    else:
        counts = [of_pool(one.pool, scaled(per_block, share)) for one in pools] if len(pools) == 1 else []
    by_pool = _least(counts)
    return by_gain.meet(by_pool) or by_gain


def _stage_blocks(geometry: Geometry) -> list[tuple[int, int]]:
    return list(dict.fromkeys(zip(geometry.stages, geometry.per_block, strict=True)))


def _least(counts: Sequence[Interval]) -> Interval:
    if not counts:
        return ANYTHING
    lows = [c.low for c in counts]
    highs = [c.high for c in counts if c.high is not None]
    low = None if any(v is None for v in lows) else min(v for v in lows if v is not None)
    return Interval(low, min(highs) if highs else None)


def _by_plan(question: Question, blocks: Interval, pools: Sequence[_StagePool], per_block: Interval) -> Pool:
    """Run the release's own planner at both ends of the block count."""
    geometry = question.after
    if geometry is None:
        raise AssertionError
    least = _plan_end(geometry, blocks.low, pools, low=True)
    most = _plan_end(geometry, blocks.high, pools, low=False)
    sizes = Interval(min(geometry.per_block), max(geometry.per_block))
    figures = _figures(least, most, blocks, question.then)
    stage = _binding_stage(geometry, pools)
    if stage is not None:
        sizes = Interval.exactly(dict(zip(geometry.stages, geometry.per_block, strict=True))[stage])
    pool = pools[stage or 0]
    rows = _rows(question, {**figures, "bytes_per_block": sizes, "kv_pool_memory": pool.pool}, per_block, pool)
    refusal = most.refusal or least.refusal
    longest = _ends(least, most, "longest_request")
    known = blocks.low is not None and blocks.high is not None
    left = () if known else ("num_blocks: M is not known after the change",)
    return Pool(rows, refusal, bool(most.refusal), longest, stage, left, bool(refusal) or least.plan is not None)


def _binding_stage(geometry: Geometry, pools: Sequence[_StagePool]) -> int | None:
    """Give the stage that holds the fewest blocks, by the upper ends; None where a stage's pool is not known."""
    if len(pools) != max(geometry.stages) + 1:
        return None
    counts = [
        (of_pool(pools[stage].pool, Interval.exactly(size)).high, stage) for stage, size in _stage_blocks(geometry)
    ]
    known = [(count, stage) for count, stage in counts if count is not None]
    return min(known)[1] if known else None


def _plan_end(geometry: Geometry, blocks: float | None, pools: Sequence[_StagePool], *, low: bool) -> Planned:
    """Plan at one end; with an override the pools themselves, since the count does not follow from them."""
    if geometry.built.launch.num_gpu_blocks_override is not None:
        ends = [one.pool.low if low else one.pool.high for one in pools]
        if all(end is not None for end in ends) and len(ends) == max(geometry.stages) + 1:
            return planned(geometry, [int(end or 0) for end in ends])
        return Planned(None)
    return Planned(None) if blocks is None else holding(geometry, int(blocks))


def _ends(least: Planned, most: Planned, name: str) -> Interval:
    low, high = (stated(getattr(end.plan, name)) if end.plan else None for end in (least, most))
    if least.refusal and not (low is None and name in {"max_model_len", "block_size"}):
        low = 0
    return Interval(low, high) if low is None or high is None or low <= high else Interval(high, low)


def _figures(least: Planned, most: Planned, blocks: Interval, then: Setup) -> dict[str, Interval]:
    """Give the plan's figures at both ends; settings as they are asked for where neither end has a plan."""
    found = {name: _ends(least, most, name) for name in ("kv_cache_tokens", "max_concurrency")}
    any_plan = most if most.plan else least
    low = least if least.plan else any_plan
    asked = {"max_model_len": then.max_model_len, "block_size": then.block_size}
    found |= {name: _ends(low, any_plan, name) if any_plan.plan else told for name, told in asked.items()}
    counted = _ends(least, most, "num_blocks")
    found["num_blocks"] = counted if counted.width is not None and not least.refusal else blocks
    return found


def _by_equations(question: Question, blocks: Interval, per_block: Interval, share: Share) -> Pool:
    """Let the ledger's own relations carry the blocks on to tokens and concurrency."""
    then = question.then
    figures: dict[str, Interval] = {}
    groups = _groups_today(question)
    for era in then.eras:
        box = _solved(question, era, blocks, groups)
        for name in ("num_blocks", "kv_cache_tokens", "max_concurrency"):
            value = box.get(Term(name), ANYTHING)
            figures[name] = figures[name].hull(value) if name in figures else value
    figures["kv_cache_tokens"] = _scaled_tokens(question, figures)
    figures["max_model_len"], figures["block_size"] = then.max_model_len, then.block_size
    figures["bytes_per_block"] = scaled(per_block, share)
    pool = _stage_pool(question, 0)
    figures["kv_pool_memory"] = pool.pool
    rows = _rows(question, figures, per_block, pool)
    refusal, surely, checked = _one_request(question, figures, then, groups)
    left = []
    if share.why and share.low is None:
        left.append(f"bytes_per_block: {share.why}")
    if figures["kv_cache_tokens"] == ANYTHING and not then.all_eras("tokens", "none"):
        left.append("kv_cache_tokens: the model's cache groups are not known (--config tells)")
    return Pool(rows, refusal, surely, _longest(figures, then, groups), None, tuple(left), checked)


def _solved(question: Question, era: Era, blocks: Interval, groups: int | None) -> dict[Term, Interval]:
    then = question.then
    settings = question.startup.settings
    shape = Shape(
        ranks=(), pooled=(), all_ranks=True, stages=1, started=True, charged=None, explicit_pool=False, overridden=True,
        cache_groups=groups, context_parallel=settings.number("decode_context_parallel_size") or 1,
    )  # fmt: skip
    evidence = [
        Evidence(Term("num_blocks"), blocks, "modelled"),
        Evidence(Term("block_size"), then.block_size, "config"),
        Evidence(Term("max_model_len"), then.max_model_len, "config"),
    ]
    request = _request_blocks(question)
    if request != ANYTHING:
        evidence.append(Evidence(Term("blocks_per_request"), request, "derived"))
    relations = equations(era, shape)
    terms = {t for r in relations for t in r.terms}
    bounds = {t: BY_NAME[t.name].bound for t in terms if BY_NAME[t.name].bound != ANYTHING}
    return solve(evidence, relations, bounds).values


def _request_blocks(question: Question) -> Interval:
    """Give the blocks of one request of full length, as today's count and concurrency imply, where the length stays."""
    now, then, capacity = question.now, question.then, question.capacity
    if now.max_model_len != then.max_model_len or now.block_size != then.block_size:
        return ANYTHING
    if not now.all_eras("concurrency", "requests") or (now.tensor, now.pipeline) != (then.tensor, then.pipeline):
        return ANYTHING
    of_one = Term("blocks_per_request")
    quotient = Quotient("", Term("max_concurrency"), Term("num_blocks"), of_one)
    box = {Term(n): capacity.interval(n) for n in ("max_concurrency", "num_blocks")}
    return next((value for term, value in quotient.contract(box) if term == of_one), ANYTHING)


def _scaled_tokens(question: Question, figures: dict[str, Interval]) -> Interval:
    """Give tokens where the equations leave them open: with the same formula they are today's rate, whatever the groups."""
    told = figures["kv_cache_tokens"]
    now, then, capacity = question.now, question.then, question.capacity
    held, before, after = (
        capacity.interval("kv_cache_tokens"), capacity.interval("num_blocks"), figures["num_blocks"],
    )  # fmt: skip
    if told != ANYTHING or not now.all_eras("tokens", "groups") or not then.all_eras("tokens", "groups"):
        return told
    size = int(now.block_size.low or 0)
    if not (held.is_point and before.is_point and size) or after.width is None or now.block_size != then.block_size:
        return told
    per = int(held.low or 0) // size
    fitting = [g for g in range(1, MOST_GROUPS + 1) if int(before.low or 0) // g == per]
    if not fitting:
        return told
    counts = [int(end) // g * size for g in fitting for end in (after.low or 0, after.high or 0)]
    return Interval(min(counts), max(counts))


def _one_request(
    question: Question, figures: dict[str, Interval], then: Setup, groups: int | None
) -> tuple[str, bool, bool]:
    """Make the one-request check: blocks of a request against the pool's, less the null block from 0.29.0 on."""
    blocks = figures["num_blocks"]
    request = _request_blocks(question)
    if request == ANYTHING and groups == 1 and then.block_size.is_point:
        of_one = Term("blocks_per_request")
        division = CeilDivision("", of_one, Term("max_model_len"), Term("block_size"))
        box = {Term("max_model_len"): then.max_model_len, Term("block_size"): then.block_size}
        request = next((value for term, value in division.contract(box) if term == of_one), ANYTHING)
    if request.low is None or blocks.low is None or request.high is None:
        return "", False, _fits_as_today(question, figures)
    held = 1 if then.all_eras("null_block", True) else 0
    text = f"one request of {then.max_model_len.low} tokens takes {request.low} blocks"
    if blocks.high is not None and blocks.high - held < request.low:
        return f"{text}, at most {int(blocks.high) - held} are there", True, True
    if blocks.low - held < request.high and not _fits_as_today(question, figures):
        return f"{text}, at the low end {int(blocks.low) - held} are there", False, True
    return "", False, True


def _fits_as_today(question: Question, figures: dict[str, Interval]) -> bool:
    """Whether the same request fits because today's concurrency, scaled by the pool, stays above one and a null block's share.

    The share of one block in a pool that holds a request is small; a twentieth is allowed for it.
    """
    now, then, capacity = question.now, question.then, question.capacity
    told, held, pool = (
        capacity.interval("max_concurrency").low,
        capacity.interval("kv_pool_memory").high,
        figures["kv_pool_memory"].low,
    )
    same = now.max_model_len == then.max_model_len and now.block_size == then.block_size and _same_split(question)
    same = same and now.kv_cache_dtype == then.kv_cache_dtype
    return bool(same and told and held and pool and held > 0 and told * pool / held >= 1.05)


def _longest(figures: dict[str, Interval], then: Setup, groups: int | None) -> Interval:
    blocks = figures["num_blocks"]
    if groups != 1 or not then.block_size.is_point:
        return ANYTHING
    held = 1 if then.all_eras("null_block", True) else 0
    size = int(then.block_size.low or 1)
    low, high = (None if end is None else max(0, int(end) - held) * size for end in blocks)
    return Interval(low, high)


def _rows(
    question: Question, figures: dict[str, Interval], per_block: Interval, pool: _StagePool
) -> tuple[TermChange, ...]:
    """Give the capacity as rows, and what the blocks take and leave."""
    order = (
        "kv_pool_memory", "block_size", "bytes_per_block", "num_blocks", "kv_cache_tokens", "max_model_len",
        "max_concurrency",
    )  # fmt: skip
    rows = []
    for name in order:
        before = per_block if name == "bytes_per_block" else question.capacity.interval(name)
        after = figures.get(name, ANYTHING)
        change = pool.gained if name == "kv_pool_memory" else after.minus(before)
        rows.append(TermChange(name, before, after, change, _kind(name, before, after, pool.kind)))
    return tuple(rows)


def _kind(name: str, before: Interval, after: Interval, of_pool: str) -> str:
    if after == ANYTHING:
        return UNKNOWN
    if before == after and (before.is_point or of_pool == UNCHANGED):
        return UNCHANGED
    if name in {"block_size", "bytes_per_block", "max_model_len"}:
        return EXACT if after.is_point else MODELLED
    return EXACT if of_pool == UNCHANGED and name != "kv_pool_memory" else of_pool
