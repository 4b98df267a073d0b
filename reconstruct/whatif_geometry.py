"""The cache's geometry before and after a change: from a config by the planner, or as a share of what the log implies."""

from __future__ import annotations

from contextlib import suppress
from fractions import Fraction
from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.geometry import AMPLE
from reconstruct.interval import ANYTHING, Interval
from reconstruct.planner.config import layer_specs
from reconstruct.planner.errors import Unsupported, WouldNotStart
from reconstruct.planner.plan import plan_from_layers, rules_of
from reconstruct.planner.result import NotStated

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from reconstruct.planner.config import ConfigSpecs
    from reconstruct.planner.launch import Launch
    from reconstruct.planner.result import KvPlan
    from reconstruct.whatif_setup import Setup

CACHE_BYTES = {"bfloat16": 2, "float16": 2, "half": 2, "float": 4, "float32": 4}
"""Bytes of an element of an unquantised cache; every fp8 spelling takes one."""


class Geometry(NamedTuple):
    """Layers of each stage under one launch, and the bytes of a block on each rank."""

    built: ConfigSpecs
    per_block: tuple[int, ...]
    stages: tuple[int, ...]
    """The stage of each rank."""


class Planned(NamedTuple):
    """What the planner makes of a pool; a sentence where the engine refuses it."""

    plan: KvPlan | None
    refusal: str = ""


def geometry_of(config: Mapping[str, object], launch: Launch) -> Geometry:
    """Plan an ample pool to learn what a block is. Raises Unsupported and WouldNotStart as the planner does."""
    built = layer_specs(config, launch)
    free = built.launch._replace(num_gpu_blocks_override=None)
    plan = plan_from_layers(built.stages, free, AMPLE)
    return Geometry(built, tuple(r.bytes_per_block for r in plan.ranks), tuple(r.stage for r in plan.ranks))


def planned(geometry: Geometry, pools: int | Sequence[int]) -> Planned:
    """Plan pools: one for all ranks, or one for each stage or rank."""
    try:
        return Planned(plan_from_layers(geometry.built.stages, geometry.built.launch, pools))
    except WouldNotStart as refusal:
        return Planned(None, str(refusal))


def ways(geometry: Geometry, releases: Sequence[str]) -> tuple[Geometry, ...]:
    """Give the geometry under each of some releases that plans in its own way; alone where only one can be asked."""
    found: dict[object, Geometry] = {}
    launch = geometry.built.launch
    for release in releases if len(releases) > 1 else ():
        other = launch._replace(engine_version=release)
        with suppress(Unsupported, WouldNotStart):
            plan_from_layers(geometry.built.stages, other._replace(num_gpu_blocks_override=None), AMPLE)
            found.setdefault(rules_of(other), geometry._replace(built=geometry.built._replace(launch=other)))
    return tuple(found.values()) or (geometry,)


def holding(geometry: Geometry, blocks: int) -> Planned:
    """Plan pools that hold just so many blocks on every rank."""
    return planned(geometry, [max(blocks, 0) * size for size in geometry.per_block])


def stated(value: float | NotStated) -> float | None:
    """Give a plan's figure, None where it has none."""
    return None if isinstance(value, NotStated) else value


class Share(NamedTuple):
    """How many times today's bytes per block those after the change are, at least and at most; None: not known."""

    low: Fraction | None
    high: Fraction | None
    why: str = ""

    @property
    def exact(self) -> bool:
        """Whether only one factor is left."""
        return self.low is not None and self.low == self.high


SAME = Share(Fraction(1), Fraction(1))


def share_by_settings(now: Setup, then: Setup, dtype: str | None, *, uniform: bool) -> Share:
    """Give the factor without a config: block sizes and cache dtypes scale a block of layers that are all alike.

    A split over more ranks leaves each at least one key head, so between nothing and all of the block's bytes goes;
    pipeline stages are not known. Source: v1/kv_cache_interface.py FullAttentionSpec page_size_bytes.
    """
    if now.pipeline != then.pipeline:
        return Share(None, None, "layers of a stage are not known without the model's config")
    factor = Fraction(1)
    if now.block_size != then.block_size:
        if not (uniform and now.block_size.is_point and then.block_size.is_point):
            return Share(None, None, "block sizes of unlike layers are not known without the model's config")
        factor *= Fraction(int(then.block_size.low or 1), int(now.block_size.low or 1))
    if now.kv_cache_dtype != then.kv_cache_dtype:
        sizes = [_element(s.kv_cache_dtype, dtype) for s in (now, then)]
        if not uniform or sizes[0] is None or sizes[1] is None:
            return Share(None, None, "the cache dtype of unlike layers is not known without the model's config")
        factor *= Fraction(sizes[1], sizes[0])
    if now.tensor == then.tensor:
        return Share(factor, factor)
    ends = (factor, factor * Fraction(now.tensor, then.tensor))
    return Share(min(ends), max(ends), "how many key heads a rank keeps is not known without the model's config")


def _element(cached: str, dtype: str | None) -> int | None:
    if cached in {"fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc", "int8"}:
        return 1
    return CACHE_BYTES.get(dtype or "" if cached == "auto" else cached)


def share_by_plans(before: int, after: int) -> Share:
    """Give the factor between two planned blocks."""
    return Share(Fraction(after, before), Fraction(after, before))


def blocks_after(blocks: Interval, per_block: Interval, gained: Interval, share: Share) -> Interval:
    """Give num_blocks after the pool gained bytes and a block became `share` times as large.

    The pool is (n + f) blocks with 0 <= f < 1; the gain is counted in today's blocks, so that the pool's own rounding,
    common to both, cancels.
    """
    low = high = None
    if blocks.low is not None and gained.low is not None and share.high is not None:
        more = _in_blocks(gained.low, per_block.high if gained.low >= 0 else per_block.low)
        low = None if more is None else max(0, int((blocks.low + more) // share.high))
    if blocks.high is not None and gained.high is not None and share.low:
        more = _in_blocks(gained.high, per_block.low if gained.high >= 0 else per_block.high)
        high = None if more is None else max(0, -int(-(blocks.high + 1 + more) // share.low) - 1)
    return Interval(low, high)


def _in_blocks(size: float, per_block: float | None) -> Fraction | None:
    if size == 0:
        return Fraction(0)
    return Fraction(int(size), int(per_block)) if per_block else None


def of_pool(pool: Interval, per_block: Interval) -> Interval:
    """Give the blocks that fit into a pool."""
    low = None if pool.low is None or not per_block.high else max(0, int(pool.low) // int(per_block.high))
    high = None if pool.high is None or not per_block.low else max(0, int(pool.high) // int(per_block.low))
    return Interval(low, high)


def scaled(per_block: Interval, share: Share) -> Interval:
    """Give bytes per block after the change; whole bytes."""
    if share == SAME:
        return per_block
    low = None if per_block.low is None or share.low is None else -int(-(per_block.low * share.low) // 1)
    high = None if per_block.high is None or share.high is None else int(per_block.high * share.high // 1)
    found = Interval(low, high)
    return ANYTHING if low is not None and high is not None and low > high else found
