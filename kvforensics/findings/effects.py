"""What a change would do to the pool, as far as arithmetic alone tells; everything else is left unsaid.

dM = T x du holds in every release that takes its budget as T x u, because nothing else in M's equation depends on u.
"""

from __future__ import annotations

import math
from fractions import Fraction

from kvforensics.findings.finding import Effect
from parsers.tuples import NamedTuple
from reconstruct.interval import ANYTHING, Interval

SCALE = 10_000
"""Utilisations are proposed to four decimals, as vLLM itself proposes them."""


def pool_after(pool: Interval, total: Interval, step: float) -> Interval:
    """Give M after u grew by `step`: M + T x du, a byte either side for the rounding of R."""
    if total.low is None or total.high is None:
        return ANYTHING
    ends = sorted((total.low * step, total.high * step))  # a step down turns them round
    change = Interval(math.floor(ends[0]) - 1, math.ceil(ends[1]) + 1)
    return pool.plus(change)


def utilization_step(wanted: Interval, total: Interval) -> float | None:
    """Give the least du, to four decimals, that surely yields the wanted bytes; None where T is not known."""
    if wanted.high is None or not total.low:
        return None
    return float(Fraction(math.ceil(Fraction(int(wanted.high) * SCALE, int(total.low))), SCALE))


def highest_utilization(free: Interval, total: Interval) -> float | None:
    """Give the highest u, to four decimals, whose budget surely lies within the free memory: floor of F.low / T.high."""
    if free.low is None or not total.high:
        return None
    return float(Fraction(int(free.low) * SCALE // int(total.high), SCALE))


class Rate(NamedTuple):
    """How many tokens this start's pool holds, and how coarsely."""

    tokens: Interval
    pool: Interval
    """The bytes that hold them."""
    block: int | None
    """Tokens that one block adds at most; None where the block size is not known."""


def tokens_for(size: Interval, rate: Rate) -> Interval:
    """Give the tokens that `size` bytes of pool hold at this start's own rate, two blocks' rounding either side.

    Unbounded where the pool or the block size is not known.
    """
    tokens, pool = rate.tokens, rate.pool
    if tokens.low is None or tokens.high is None or pool.low is None or pool.low <= 0 or pool.high is None:
        return ANYTHING
    if size.low is None or size.high is None or rate.block is None or rate.block < 1:
        return ANYTHING
    products = [
        Fraction(int(s) * int(t), int(p))
        for s in (size.low, size.high)
        for t in (tokens.low, tokens.high)
        for p in (pool.low, pool.high)
    ]
    return Interval(math.floor(min(products)) - 2 * rate.block, math.ceil(max(products)) + 2 * rate.block)


def resized(pool: Interval, total: Interval, step: float, rate: Rate) -> tuple[Effect, ...]:
    """Give pool and tokens after u grew by `step`, each where it can be bounded."""
    after = pool_after(pool, total, step)
    if after == ANYTHING:
        return ()
    held = tokens_for(after, rate)
    found = (Effect("available_kv_cache_memory", after),)
    return found if held == ANYTHING else (*found, Effect("kv_cache_tokens", held))
