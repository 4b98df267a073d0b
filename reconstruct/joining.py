"""A geometry's figures set against what was solved without them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.geometry import Layout, NoGeometry
from reconstruct.geometry_ledger import EngineGeometry, GeometryLedger, PoolVerdict
from reconstruct.interval import ANYTHING, Interval
from reconstruct.ledger import Claim, Conflict
from reconstruct.relations import Term

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from parsers.launch_settings import Settings
    from reconstruct.equations import Shape
    from reconstruct.eras import Era
    from reconstruct.geometry import Geometry, Planner
    from reconstruct.releases import Span
    from reconstruct.solver import Solution

OPEN = PoolVerdict("open", "the log bounds blocks, bytes or pool too little to compare them")
CLOSES = PoolVerdict("closes", "blocks x bytes fill the smallest printed pool but for less than a block")
CONTRADICTED = PoolVerdict("withdrawn", "the geometry's bytes per block contradict the log")
UNASKED = PoolVerdict("open", "no geometry gives the bytes of a block")
BYTES = Term("bytes_per_block")
COARSE = 0.01
"""Blocks known worse than this share of themselves say nothing of a pool."""


class Solved(NamedTuple):
    """One engine solved under one era."""

    era: Era
    span: Span
    shape: Shape
    solution: Solution
    layout: Layout | NoGeometry
    """What the geometry says under this era, whether or not it took part."""


class Joined(NamedTuple):
    """One engine's solutions, one for each era left open, with the geometry's figures where these fit."""

    dp: int
    kept: list[Solved]
    base: Solved
    """The first era's solution without them."""
    withdrawn: Solved | None = None
    """The first solution with them, where they contradict the log under every era."""


def pool_verdict(solution: Solution, base: Solution, shape: Shape) -> PoolVerdict:
    """Compare blocks x bytes with the pools that the workers printed; `base` was solved without the geometry."""
    blocks, size = solution.values.get(Term("num_blocks"), ANYTHING), solution.values.get(BYTES, ANYTHING)
    pools = [base.values.get(Term("rank_pool_memory", r), ANYTHING) for r in shape.pooled]
    printed = [pool for pool in pools if pool.low is not None and pool.high is not None]
    if shape.overridden:
        return PoolVerdict("override", "the number of blocks was asked for, whatever the pool holds")
    if blocks.low is None or blocks.high is None or size.low is None or size.high is None:
        return OPEN
    if blocks.high - blocks.low > COARSE * blocks.high:
        return OPEN
    if not printed:
        return OPEN
    filled = Interval(blocks.low * size.low, (blocks.high + 1) * size.high - 1)
    least = min(printed, key=lambda pool: pool.low or 0)
    if least.meet(filled) is not None:
        return CLOSES
    if (least.low or 0) > (filled.high or 0):
        text = "the blocks fill less than any printed pool: a rank that printed none has the smallest"
        return PoolVerdict("poorer-rank", text, least.minus(filled))
    return OPEN


def geometry_ledger(
    geometry: Geometry | NoGeometry,
    planner: Planner | NoGeometry,
    found: Sequence[Joined],
    withdrawn: Sequence[Conflict],
    settings: Settings,
) -> GeometryLedger:
    """Give what the geometry came to, engine by engine."""
    engines = tuple(engine_geometry(joined, planner, settings) for joined in found)
    if isinstance(geometry, NoGeometry):
        return GeometryLedger("none", "", "", "", geometry.reason, engines)
    if withdrawn:
        status, reason = "withdrawn", "; ".join(conflict.note for conflict in withdrawn)
    else:
        layouts = [s.layout for joined in found for s in joined.kept]
        status = "used" if any(isinstance(layout, Layout) for layout in layouts) else "none"
        reason = planner.reason if isinstance(planner, NoGeometry) else reasons(layouts)
    return GeometryLedger(status, geometry.model, geometry.source, geometry.place, reason, engines)


def engine_geometry(joined: Joined, planner: Planner | NoGeometry, settings: Settings) -> EngineGeometry:
    """Give the verdicts on one engine: on its pool, and on what else could have been."""
    from reconstruct.hypotheses import hypotheses, plain_products

    shown, base = joined.withdrawn or joined.kept[0], joined.base
    if isinstance(shown.layout, Layout) and not isinstance(planner, NoGeometry):
        verdict = CONTRADICTED if joined.withdrawn else pool_verdict(shown.solution, base.solution, shown.shape)
        judged = hypotheses(planner, shown.layout, base.solution, base.era, base.span, base.shape)
        return EngineGeometry(joined.dp, shown.layout, verdict, judged)
    allowed = base.solution.values.get(BYTES, ANYTHING)
    size = base.solution.values.get(Term("block_size"), ANYTHING)
    return EngineGeometry(joined.dp, None, UNASKED, (), plain_products(allowed, size, element_bytes(settings)))


def element_bytes(settings: Settings) -> tuple[int, ...]:
    """Give the bytes of one cached element that the settings leave open."""
    cache, dtype = settings.text("kv_cache_dtype"), settings.text("dtype")
    if cache is not None and cache.startswith("fp8"):
        return (1,)
    if cache not in {None, "auto"} or dtype in {None, "auto"}:
        return (2, 1)
    return (4,) if dtype in {"float", "float32"} else (2,)


def withdrawal(dp: int, joined: Solved, base: Solved, origin: str) -> Conflict:
    """Name a geometry that contradicts the log: its claim, what the log alone allows, and which equation fails."""
    claims = []
    if isinstance(joined.layout, Layout):
        claims.append(Claim(joined.layout.bytes_per_block, origin, ()))
    allowed = base.solution.values.get(BYTES, ANYTHING)
    if allowed != ANYTHING:
        claims.append(Claim(allowed, "derived", base.solution.lines(BYTES)))
    before = {clash.note for clash in base.solution.clashes}
    why = next((clash.note for clash in joined.solution.clashes if clash.note not in before), "")
    return Conflict("bytes_per_block", tuple(claims), f"engine {dp} does not follow the model's geometry: {why}")


def reasons(layouts: Iterable[Layout | NoGeometry]) -> str:
    """Give why there is no layout, each reason once."""
    return "; ".join(dict.fromkeys(layout.reason for layout in layouts if isinstance(layout, NoGeometry)))
