"""Capacity without a config: the ledger's own relations carry blocks on to tokens, concurrency and the longest request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.cache_groups import CacheGroups, cache_groups
from reconstruct.divisions import CeilDivision, Quotient
from reconstruct.equations import Shape, equations
from reconstruct.interval import ANYTHING, Interval
from reconstruct.quantities import sure_bounds
from reconstruct.relations import Term
from reconstruct.solver import Evidence, solve
from reconstruct.whatif_geometry import of_pool

if TYPE_CHECKING:
    from reconstruct.change import TermChange
    from reconstruct.eras import Era
    from reconstruct.ledger import Account, StartUpLedger
    from reconstruct.whatif_geometry import Geometry
    from reconstruct.whatif_setup import Setup

MOST_GROUPS = 64
"""More cache groups than any model has."""


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


def same_split(question: Question) -> bool:
    """Whether ranks hold the same parts of the model as today."""
    now, then = question.now, question.then
    return (now.tensor, now.pipeline) == (then.tensor, then.pipeline)


def groups_today(question: Question) -> CacheGroups:
    """Give the model's cache groups as the log shows them; not known where the releases left open disagree."""
    startup, capacity = question.startup, question.capacity
    found = {
        cache_groups(
            startup.log, era,
            tokens=capacity.interval("kv_cache_tokens"), concurrency=capacity.interval("max_concurrency"),
            length=capacity.interval("max_model_len"), size=capacity.interval("block_size"),
        )
        for era in startup.eras
    }  # fmt: skip
    return found.pop() if len(found) == 1 else CacheGroups(None, whole_length=False)


def solved(question: Question, era: Era, blocks: Interval, groups: CacheGroups) -> dict[Term, Interval]:
    """Give what the equations of an era make of a block count."""
    then = question.then
    settings = question.startup.settings
    shape = Shape(
        ranks=(), pooled=(), all_ranks=True, stages=1, started=True, charged=None, explicit_pool=False, overridden=True,
        cache_groups=groups.number, context_parallel=settings.number("decode_context_parallel_size") or 1,
        whole_length=groups.whole_length,
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
    return solve(evidence, relations, sure_bounds(t for r in relations for t in r.terms)).values


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


def scaled_tokens(question: Question, figures: dict[str, Interval]) -> Interval:
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


def one_request(
    question: Question, figures: dict[str, Interval], then: Setup, groups: CacheGroups
) -> tuple[str, bool, bool]:
    """Make the one-request check: blocks of a request against those it sees, less the null block from 0.29.0 on."""
    blocks = _checked_blocks(figures, then)
    request = _request_blocks(question)
    if request == ANYTHING and groups.is_plain and then.block_size.is_point:
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


def _checked_blocks(figures: dict[str, Interval], then: Setup) -> Interval:
    """Give the blocks that the check counts on: those that the pool holds where it does not see what the user asked for."""
    given = figures["num_blocks"]
    if then.fixes_blocks is False or then.checks_override:
        return given
    fitting = of_pool(figures["kv_pool_memory"], figures["bytes_per_block"])
    return fitting if then.checks_override is False else fitting.hull(given)


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
    same = now.max_model_len == then.max_model_len and now.block_size == then.block_size and same_split(question)
    same = same and now.kv_cache_dtype == then.kv_cache_dtype
    return bool(same and told and held and pool and held > 0 and told * pool / held >= 1.05)


def longest(figures: dict[str, Interval], then: Setup, groups: CacheGroups) -> Interval:
    """Give the longest request that passes the check, where all layers cache alike and whole lengths."""
    blocks = figures["num_blocks"]
    if not groups.is_plain or not then.block_size.is_point:
        return ANYTHING
    held = 1 if then.all_eras("null_block", True) else 0
    size = int(then.block_size.low or 1)
    low, high = (None if end is None else max(0, int(end) - held) * size for end in blocks)
    return Interval(low, high)
