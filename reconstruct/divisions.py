"""Contractors of the pool's arithmetic: counts, their products and quotients, none of them negative."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.interval import ANYTHING, Interval, Number

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from reconstruct.relations import Narrowing, Term


class _Natural(NamedTuple):
    """An interval of numbers that cannot be negative."""

    low: Number
    high: Number | None


def _natural(interval: Interval) -> _Natural:
    return _Natural(max(0, interval.low or 0), interval.high if interval.high is None else max(0, interval.high))


class FloorDivision(NamedTuple):
    """`quotient = pool // divisor`, pool not negative.

    Source: v1/core/kv_cache_utils.py get_num_blocks; V0 worker/worker.py determine_num_available_blocks.
    """

    name: str
    quotient: Term
    pool: Term
    divisor: Term
    whole_pool: bool = True
    """False where the count is another rank's: then it is only known not to exceed the quotient."""

    @property
    def terms(self) -> tuple[Term, ...]:
        """Count, pool, divisor."""
        return (self.quotient, self.pool, self.divisor)

    def contract(self, box: Mapping[Term, Interval]) -> Iterator[Narrowing]:
        """Use `count * divisor <= pool < (count + 1) * divisor`; a pool below 0 holds no block, and counts no further."""
        count, divisor = _natural(box.get(self.quotient, ANYTHING)), _natural(box.get(self.divisor, ANYTHING))
        pool = box.get(self.pool, ANYTHING)
        if pool.high is not None:
            if pool.high < 0:
                yield self.quotient, Interval(None, 0)
                return
            if divisor.low > 1:  # 1 is no more than its sign
                yield self.quotient, Interval(None, int(pool.high) // int(divisor.low))
            if count.low:
                yield self.divisor, Interval(None, int(pool.high) // int(count.low))
        if count.low:
            yield self.pool, Interval(int(count.low) * int(divisor.low), None)
        if not self.whole_pool:
            return
        if pool.low is not None and pool.low >= 0:
            if divisor.high:
                yield self.quotient, Interval(int(pool.low) // int(divisor.high), None)
            if count.high is not None:
                yield self.divisor, Interval(int(pool.low) // (int(count.high) + 1) + 1, None)
        if count.high is not None and divisor.high is not None:
            yield self.pool, Interval(None, (int(count.high) + 1) * int(divisor.high) - 1)


class Product(NamedTuple):
    """`product = left * right`, both factors not negative whole numbers."""

    name: str
    product: Term
    left: Term
    right: Term

    @property
    def terms(self) -> tuple[Term, ...]:
        """Product, then the factors."""
        return (self.product, self.left, self.right)

    def contract(self, box: Mapping[Term, Interval]) -> Iterator[Narrowing]:
        """Use that a product of non-negative numbers grows with both."""
        product, left, right = (_natural(box.get(t, ANYTHING)) for t in self.terms)
        high = None if left.high is None or right.high is None else left.high * right.high
        yield self.product, Interval(left.low * right.low, high)
        for this, other in ((self.left, right), (self.right, left)):
            least = -(-int(product.low) // int(other.high)) if other.high else None
            most = None if product.high is None or not other.low else int(product.high) // int(other.low)
            yield this, Interval(least, most)


class Quotient(NamedTuple):
    """`ratio = numerator / denominator` in doubles, all positive: concurrency = blocks / blocks of one request."""

    name: str
    ratio: Term
    numerator: Term
    denominator: Term

    @property
    def terms(self) -> tuple[Term, ...]:
        """Ratio, numerator, denominator."""
        return (self.ratio, self.numerator, self.denominator)

    def contract(self, box: Mapping[Term, Interval]) -> Iterator[Narrowing]:
        """Use monotonicity, with the rounding of one division as margin."""
        ratio, over, under = (_natural(box.get(t, ANYTHING)) for t in self.terms)
        wide, tight = 1 + 4e-16, 1 - 4e-16
        low = over.low / under.high * tight if under.high else None
        high = None if over.high is None or not under.low else over.high / under.low * wide
        yield self.ratio, Interval(low, high)
        most = None if ratio.high is None or under.high is None else math.floor(ratio.high * under.high * wide)
        yield self.numerator, Interval(math.ceil(ratio.low * under.low * tight), most)
        least = math.ceil(over.low / ratio.high * tight) if ratio.high else None
        most = None if over.high is None or not ratio.low else math.floor(over.high / ratio.low * wide)
        yield self.denominator, Interval(least, most)


class TruncatedProduct(NamedTuple):
    """`tokens = int(ratio * length)` in doubles. Source: 0.20.1+ v1/core/kv_cache_utils.py, the logged KV cache size."""

    name: str
    tokens: Term
    ratio: Term
    length: Term

    @property
    def terms(self) -> tuple[Term, ...]:
        """Tokens, ratio, length."""
        return (self.tokens, self.ratio, self.length)

    def contract(self, box: Mapping[Term, Interval]) -> Iterator[Narrowing]:
        """Use `tokens <= ratio * length < tokens + 1`, with the rounding of one product as margin."""
        tokens, ratio, length = (_natural(box.get(t, ANYTHING)) for t in self.terms)
        high = None if ratio.high is None or length.high is None else math.floor(ratio.high * length.high)
        yield self.tokens, Interval(math.floor(ratio.low * length.low), high)
        least = tokens.low / length.high * (1 - 4e-16) if length.high else None
        most = None if tokens.high is None or not length.low else (tokens.high + 1) / length.low * (1 + 4e-16)
        yield self.ratio, Interval(least, most)


class CeilDivision(NamedTuple):
    """`blocks = cdiv(length, size)`. Source: v1/kv_cache_interface.py max_memory_usage_bytes of full attention."""

    name: str
    blocks: Term
    length: Term
    size: Term

    @property
    def terms(self) -> tuple[Term, ...]:
        """Blocks, length, size."""
        return (self.blocks, self.length, self.size)

    def contract(self, box: Mapping[Term, Interval]) -> Iterator[Narrowing]:
        """Bound the quotient, and the length by it."""
        blocks, length, size = (_natural(box.get(t, ANYTHING)) for t in self.terms)
        low = -(-int(length.low) // int(size.high)) if size.high else None
        high = None if length.high is None or not size.low else -(-int(length.high) // int(size.low))
        yield self.blocks, Interval(low, high)
        least = (int(blocks.low) - 1) * int(size.low) + 1 if blocks.low and size.low else None
        most = None if blocks.high is None or size.high is None else int(blocks.high) * int(size.high)
        yield self.length, Interval(least, most)


class Multiple(NamedTuple):
    """`count = (blocks // groups) * size`. Source: 0.9.1-0.20.0 v1/core/kv_cache_utils.py, the logged KV cache size."""

    name: str
    tokens: Term
    blocks: Term
    size: Term
    groups: int
    context_parallel: int = 1

    @property
    def terms(self) -> tuple[Term, ...]:
        """Tokens, blocks, block size."""
        return (self.tokens, self.blocks, self.size)

    def contract(self, box: Mapping[Term, Interval]) -> Iterator[Narrowing]:
        """Bound tokens by blocks and the reverse; a remainder of less than one group hides in the division."""
        tokens, blocks, size = (_natural(box.get(t, ANYTHING)) for t in self.terms)
        g, cp = self.groups, self.context_parallel
        high = None if blocks.high is None or size.high is None else int(blocks.high) // g * int(size.high) * cp
        yield self.tokens, Interval(int(blocks.low) // g * int(size.low) * cp, high)
        least = -(-int(tokens.low) // (int(size.high) * cp)) * g if size.high else None
        most = None if tokens.high is None or not size.low else int(tokens.high) // (int(size.low) * cp) * g + g - 1
        yield self.blocks, Interval(least, most)
