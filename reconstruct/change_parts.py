"""The difference between two start-ups, split over what moved it: M, the pool, blocks and tokens, each added up exactly.

The split is the mean of both orders of change. With P the pool, b the bytes of a block, f the part of a block that P leaves
over and k the tokens of a block as the release counts them: N = P/b - f + override, tokens = N x k, and

    P2/b2 - P1/b1 = (P2 - P1) x (1/b1 + 1/b2)/2 + (1/b2 - 1/b1) x (P1 + P2)/2
    N2 x k2 - N1 x k1 = (N2 - N1) x (k1 + k2)/2 + (k2 - k1) x (N1 + N2)/2

so that no part is left over, whatever changed together.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.interval import ANYTHING, Interval
from reconstruct.relations import Sum, Term
from reconstruct.solver import Evidence, solve

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from reconstruct.ledger import Account, EngineLedger, RankLedger, StartUpLedger

M, POOL, BLOCKS, TOKENS = "available_kv_cache_memory", "kv_pool_memory", "num_blocks", "kv_cache_tokens"
COLUMNS = (M, POOL, BLOCKS, TOKENS)
"""The quantities whose change is split."""
TERMS = {
    "requested_memory": 1, "total_consumed": -1, "transient_peak_headroom": -1, "cudagraph_memory_applied": -1,
}  # fmt: skip
"""M's terms and their signs."""
PARTS = (*TERMS, "pool", "bytes_per_block", "rounding", "override", "formula")
"""`pool`: from M to the pool that was divided; `rounding`: the rest that fills no block; `formula`: tokens of a block."""
ZERO = Interval.exactly(0)
ONE_BLOCK = Interval(0, 1)


class Side(NamedTuple):
    """One of the two start-ups, and whose figures of it count."""

    startup: StartUpLedger
    engine: EngineLedger
    rank: RankLedger | None
    overridden: bool = False
    explicit: bool = False
    """Whether the pool was given in bytes."""

    def interval(self, name: str) -> Interval:
        """Give a figure: the engine's, else the rank's."""
        held: tuple[Account, ...] = (self.engine.capacity, *((self.rank.account,) if self.rank else ()))
        return next((a.interval(name) for a in held if a.get(name)), ANYTHING)

    @property
    def rank_m(self) -> Interval:
        """M of the rank compared."""
        return self.rank.account.interval(M) if self.rank else ANYTHING


class Part(NamedTuple):
    """What one term adds to each column."""

    name: str
    shares: Mapping[str, Interval]


class Split(NamedTuple):
    """All parts, and the change of each column that they add up to."""

    parts: tuple[Part, ...]
    change: Mapping[str, Interval]


def split(before: Side, after: Side, *, same_blocks: bool) -> Split:
    """Split the change between two start-ups.

    same_blocks: whether model, cache dtype, ranks and release are the same, so that a block is the same to the byte.
    """
    pools = (before.interval(POOL), after.interval(POOL))
    change = {M: after.rank_m.minus(before.rank_m), POOL: pools[1].minus(pools[0])}
    change |= {name: after.interval(name).minus(before.interval(name)) for name in (BLOCKS, TOKENS)}
    sizes = _per_block(before, after, same_blocks=same_blocks)
    of_m = _terms_of_m(before, after, change[M])
    of_pool = _terms_of_pool(before, after, of_m, change)
    of_blocks = _terms_of_blocks(before, after, of_pool, sizes, change[BLOCKS])
    of_tokens = _terms_of_tokens(before, after, of_blocks, change[TOKENS])
    columns = {M: of_m, POOL: of_pool, BLOCKS: of_blocks, TOKENS: of_tokens}
    parts = tuple(Part(name, {c: columns[c].get(name, ZERO) for c in COLUMNS}) for name in PARTS)
    return Split(parts, change)


def _per_block(before: Side, after: Side, *, same_blocks: bool) -> tuple[Interval, Interval]:
    first, second = before.interval("bytes_per_block"), after.interval("bytes_per_block")
    if same_blocks and (met := first.meet(second)) is not None:
        return met, met
    return first, second


def _terms_of_m(before: Side, after: Side, change: Interval) -> dict[str, Interval]:
    """Give what R, C, H and G add to M: each moves M by its own change; the sum narrows every one of them.

    R's share takes in the byte that a float budget loses when M is cut to a whole number.
    """
    if before.explicit or after.explicit:
        return dict.fromkeys(TERMS, ANYTHING)
    found = {}
    for name, sign in TERMS.items():
        moved = _of_rank(after, name).minus(_of_rank(before, name))
        found[name] = moved if sign > 0 else moved.negated()
    found["requested_memory"] = found["requested_memory"].plus(Interval(-1, 1))
    taken = _of_rank(after, "non_kv_cache_memory").minus(_of_rank(before, "non_kv_cache_memory")).negated()
    return _narrowed(found, change, {("total_consumed", "transient_peak_headroom"): taken})


def _of_rank(side: Side, name: str) -> Interval:
    return side.rank.account.interval(name) if side.rank else ANYTHING


def _terms_of_pool(
    before: Side, after: Side, of_m: Mapping[str, Interval], change: Mapping[str, Interval]
) -> dict[str, Interval]:
    """Give what each term adds to the pool: M's terms as in M, and all between M and the pool.

    A pool that was given in bytes owes nothing to M's terms: then the whole change is the gift's.
    """
    if before.explicit or after.explicit:
        return {**dict.fromkeys(TERMS, ZERO), "pool": change[POOL]}
    between = [side.interval(POOL).minus(side.rank_m) for side in (before, after)]
    if all(b.contains(0) and not s.startup.log.of("mm_reservation") and _same_rank(s) for b, s in zip(
        between, (before, after), strict=True,
    )):  # fmt: skip
        between = [ZERO, ZERO]
    return _narrowed({**of_m, "pool": between[1].minus(between[0])}, change[POOL])


def _same_rank(side: Side) -> bool:
    """Whether the rank compared is the one whose pool was divided."""
    return side.rank is not None and side.rank.name == side.engine.binding_rank


def _terms_of_blocks(
    before: Side, after: Side, of_pool: Mapping[str, Interval], sizes: tuple[Interval, Interval], change: Interval
) -> dict[str, Interval]:
    inverse = [_inverse(size) for size in sizes]
    mean = _times(inverse[0].plus(inverse[1]), Interval.exactly(Fraction(1, 2)))  # type: ignore[arg-type]  # a rational end
    pools = [side.interval(POOL) for side in (before, after)]
    between = _times(pools[0].plus(pools[1]), Interval.exactly(Fraction(1, 2)))  # type: ignore[arg-type]  # a rational end
    found = {name: _times(share, mean) for name, share in of_pool.items()}
    same = sizes[0] == sizes[1] and sizes[0].is_point
    found["bytes_per_block"] = ZERO if same else _times(inverse[1].minus(inverse[0]), between)
    rests = [_rest(side, pool, one) for side, pool, one in zip((before, after), pools, inverse, strict=True)]
    found["rounding"] = rests[0].minus(rests[1])
    forced = [_forced(side, pool, one) for side, pool, one in zip((before, after), pools, inverse, strict=True)]
    found["override"] = forced[1].minus(forced[0])
    return _narrowed({name: _outwards(share) for name, share in found.items()}, change)


def _rest(side: Side, pool: Interval, inverse: Interval) -> Interval:
    """Give the part of a block that the pool leaves over; below one, and with no pool at all what lies below nothing."""
    if pool.high is not None and pool.high < 0:
        return _times(pool, inverse)
    if side.overridden:
        return ONE_BLOCK
    left = _times(pool, inverse).minus(side.interval(BLOCKS))
    return left.meet(ONE_BLOCK) or ONE_BLOCK


def _forced(side: Side, pool: Interval, inverse: Interval) -> Interval:
    """Give how many blocks an override adds to those that fit."""
    if not side.overridden:
        return ZERO
    fitting = _times(pool, inverse)
    low = None if fitting.low is None else max(0, math.floor(fitting.low))
    high = None if fitting.high is None else max(0, math.floor(fitting.high))
    return side.interval(BLOCKS).minus(Interval(low, high))


def _terms_of_tokens(
    before: Side, after: Side, of_blocks: Mapping[str, Interval], change: Interval
) -> dict[str, Interval]:
    rates = [_rate(side) for side in (before, after)]
    half = Interval.exactly(Fraction(1, 2))  # type: ignore[arg-type]  # a rational end
    mean = _times(rates[0].plus(rates[1]), half)
    blocks = _times(before.interval(BLOCKS).plus(after.interval(BLOCKS)), half)
    found = {name: _times(share, mean) for name, share in of_blocks.items()}
    found["formula"] = _times(rates[1].minus(rates[0]), blocks)
    return _narrowed({name: _outwards(share) for name, share in found.items()}, change)


def _rate(side: Side) -> Interval:
    """Give the printed tokens for each block."""
    return _times(side.interval(TOKENS), _inverse(side.interval(BLOCKS)))


def _inverse(interval: Interval) -> Interval:
    """Give 1/x of positive values."""
    low = None if not interval.high else Fraction(1) / Fraction(interval.high)
    high = None if interval.low is None or interval.low <= 0 else Fraction(1) / Fraction(interval.low)
    return Interval(low, high)  # type: ignore[arg-type]  # rational ends until they are rounded outwards


def _times(left: Interval, right: Interval) -> Interval:
    """Give every product; unbounded as soon as one factor is, but for an exact nothing."""
    if ZERO in (left, right):
        return ZERO
    if left.low is None or left.high is None or right.low is None or right.high is None:
        return ANYTHING
    corners = [Fraction(a) * Fraction(b) for a in left for b in right]  # type: ignore[arg-type]  # None was excluded
    return Interval(min(corners), max(corners))  # type: ignore[arg-type]  # rational ends


def _outwards(interval: Interval) -> Interval:
    """Give whole ends that leave nothing out."""
    low = None if interval.low is None else math.floor(interval.low)
    return Interval(low, None if interval.high is None else math.ceil(interval.high))


def _narrowed(
    shares: Mapping[str, Interval], change: Interval, sums: Mapping[tuple[str, ...], Interval] | None = None
) -> dict[str, Interval]:
    """Let the known sum, and known sums of some, narrow each share; a sum that contradicts them narrows nothing."""
    terms = {name: Term(name) for name in shares}
    whole = Term("change")
    relations = [Sum("the parts add up to the change", whole, tuple(terms.values()))]
    evidence = [Evidence(whole, change, "derived"), *(Evidence(terms[n], s, "derived") for n, s in shares.items())]
    for i, (names, value) in enumerate((sums or {}).items()):
        of_some = Term("sum", i)
        relations.append(Sum("known together", of_some, tuple(terms[n] for n in names)))
        evidence.append(Evidence(of_some, value, "derived"))
    found = solve(evidence, relations, {})
    if found.clashes:
        return dict(shares)
    return {name: found.values[term] for name, term in terms.items()}


def added(intervals: Iterable[Interval]) -> Interval:
    """Give the sum of intervals."""
    total = ZERO
    for interval in intervals:
        total = total.plus(interval)
    return total
