"""What the pool holds after a change: blocks, the printed token count of the release, concurrency, the longest request."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.change import EXACT, MODELLED, UNCHANGED, UNKNOWN, TermChange
from reconstruct.interval import ANYTHING, Interval
from reconstruct.relations import Term
from reconstruct.rounding import implied
from reconstruct.whatif_capacity import groups_today, longest, one_request, same_split, scaled_tokens, solved
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
    ways,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconstruct.whatif_capacity import Question
    from reconstruct.whatif_setup import Setup


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


def pool_after(question: Question) -> Pool:
    """Give the capacity after the change: by the planner where a config is known, else by the ledger's equations."""
    per_block = _per_block(question)
    share = _share(question)
    pools = tuple(_stage_pool(question, stage) for stage in range(len(question.available)))
    blocks = _blocks(question, per_block, pools, share)
    if question.after is not None:
        return _by_plan(question, question.after, blocks, pools, per_block)
    return _by_equations(question, blocks, per_block, share)


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
    if not same_split(question) or held == ANYTHING:
        return _StagePool(pool, row.change, row.kind)
    gained = row.change
    for other in question.available:
        gained = gained.hull(other.change)
    by_gain = held.plus(gained)  # the pool that was divided may be another rank's than the row's
    return _StagePool((by_gain.meet(pool) or by_gain) if question.binding[stage] else by_gain, gained, row.kind)


def _reserved(question: Question) -> Interval:
    """Give what the multimodal reservation takes from M (0.25.0 on): as its line prints it."""
    lines = question.startup.log.of("mm_reservation")
    printed = [implied(f) for s in lines for f in s.fields if f.name == "mm_ipc_reservation"]
    return printed[0] if printed else Interval.exactly(0)


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
    uniform = groups_today(question).number == 1
    return share_by_settings(now, then, question.startup.settings.text("dtype"), uniform=uniform)


def _blocks(question: Question, per_block: Interval, pools: Sequence[_StagePool], share: Share) -> Interval:
    """Give num_blocks after the change, both ways: from today's count, and from the pool itself."""
    held = question.capacity.interval("num_blocks")
    if question.then.fixes_blocks is not False:
        asked = question.then.overridden
        return Interval.exactly(asked) if question.then.fixes_blocks and asked is not None else ANYTHING
    same = same_split(question)
    follows = same and question.now.fixes_blocks is False
    by_gain = blocks_after(held, per_block, pools[0].gained, share) if follows else ANYTHING
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


def _by_plan(
    question: Question, geometry: Geometry, blocks: Interval, pools: Sequence[_StagePool], per_block: Interval
) -> Pool:
    """Run the release's own planner at both ends of the block count; of releases left open, each that plans its own way."""
    ends = [(_plan_end(g, blocks.low, pools, low=True), _plan_end(g, blocks.high, pools, low=False))
            for g in ways(geometry, question.then.releases)]  # fmt: skip
    least, most = ends[0]
    sizes = Interval(min(geometry.per_block), max(geometry.per_block))
    figures = _figures(least, most, blocks, question.then)
    for other in ends[1:]:
        figures = {n: v.hull(figures[n]) for n, v in _figures(*other, blocks, question.then).items()}
    stage = _binding_stage(geometry, pools)
    if stage is not None:
        sizes = Interval.exactly(dict(zip(geometry.stages, geometry.per_block, strict=True))[stage])
    pool = pools[stage or 0]
    rows = _rows(question, {**figures, "bytes_per_block": sizes, "kv_pool_memory": pool.pool}, per_block, pool)
    refusals = [high.refusal or low.refusal for low, high in ends]
    refusal = next(filter(None, refusals), "")
    fitting = functools.reduce(Interval.hull, (_ends(*pair, "longest_request") for pair in ends))
    known = blocks.low is not None and blocks.high is not None
    left = () if known else ("num_blocks: M is not known after the change",)
    surely = all(high.refusal for _, high in ends)
    return Pool(rows, refusal, surely, fitting, stage, left, bool(refusal) or all(low.plan for low, _ in ends))


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


def _concurrency(least: Planned, most: Planned) -> Interval:
    """Give the concurrency at both ends; where the length fits itself to the pool it is no longer the higher with more blocks."""
    ends = _ends(least, most, "max_concurrency")
    if least.plan is None or most.plan is None or least.plan.max_model_len == most.plan.max_model_len:
        return ends
    told = stated(least.plan.max_concurrency), stated(most.plan.max_concurrency)
    if not told[0] or not told[1]:
        return ends
    fewest, longest_request = least.plan.num_blocks, most.plan.num_blocks / told[1]
    largest, shortest_request = most.plan.num_blocks, least.plan.num_blocks / told[0]
    return Interval(fewest / longest_request * (1 - 1e-15), largest / shortest_request * (1 + 1e-15))


def _figures(least: Planned, most: Planned, blocks: Interval, then: Setup) -> dict[str, Interval]:
    """Give the plan's figures at both ends; settings as they are asked for where neither end has a plan."""
    found = {"kv_cache_tokens": _ends(least, most, "kv_cache_tokens"), "max_concurrency": _concurrency(least, most)}
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
    groups = groups_today(question)
    for era in then.eras:
        box = solved(question, era, blocks, groups)
        for name in ("num_blocks", "kv_cache_tokens", "max_concurrency"):
            value = box.get(Term(name), ANYTHING)
            figures[name] = figures[name].hull(value) if name in figures else value
    figures["kv_cache_tokens"] = scaled_tokens(question, figures)
    figures["max_model_len"], figures["block_size"] = then.max_model_len, then.block_size
    figures["bytes_per_block"] = scaled(per_block, share)
    pool = _stage_pool(question, 0)
    figures["kv_pool_memory"] = pool.pool
    rows = _rows(question, figures, per_block, pool)
    refusal, surely, checked = one_request(question, figures, then, groups)
    left = []
    if share.why and share.low is None:
        left.append(f"bytes_per_block: {share.why}")
    if figures["kv_cache_tokens"] == ANYTHING and not then.all_eras("tokens", "none"):
        left.append("kv_cache_tokens: the model's cache groups are not known (--config tells)")
    return Pool(rows, refusal, surely, longest(figures, then, groups), None, tuple(left), checked)


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
