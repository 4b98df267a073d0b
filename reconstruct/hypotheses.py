"""What a log allows of bytes per block, and which layouts fit in: other dtypes, block sizes, managers, drafts, splits.

A hypothesis is excluded only where the log's own figures leave no room for it; one that fits is not thereby true.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.equations import equations
from reconstruct.geometry import Layout
from reconstruct.interval import ANYTHING, Interval
from reconstruct.quantities import sure_bounds
from reconstruct.relations import Term
from reconstruct.solver import Evidence, agreed, solve

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconstruct.equations import Shape
    from reconstruct.eras import Era
    from reconstruct.geometry import Planner
    from reconstruct.releases import Span
    from reconstruct.solver import Solution

STATED = "as the log states"
BLOCK_SIZES = (16, 32, 64, 128)
"""Block sizes that the backends of every release take."""
PRODUCTS_SHOWN = 12
HEAD_SIZES = (128, 64, 256, 96, 80, 192, 112, 160)
"""Head sizes of plain decoders, the common ones first."""
KV_HEADS = (8, 4, 2, 1, 16, 32, 5, 6, 10, 12, 24, 40, 48, 64)
"""Key heads of one rank."""
MOST_LAYERS = 160

_READ_BACK = frozenset(
    (
        "checked_kv_cache_memory", "computed_num_blocks", "kv_cache_tokens", "max_concurrency", "max_model_len",
        "needed_kv_cache_memory", "num_blocks", "block_size", "storable_tokens",
    )
)  # fmt: skip
"""The engine's own figures that a hypothesis has to live with."""


class Hypothesis(NamedTuple):
    """One way in which the cache could be laid out."""

    name: str
    stated: bool
    """Whether this is what the log states, rather than something else that was asked about."""
    bytes_per_block: Interval
    """By the planner."""
    allowed: Interval
    """What the log allows, given this hypothesis' own groups and block size."""
    fits: bool
    clash: str = ""
    """The equation that cannot hold under it, where one fails whatever the bytes."""


class Product(NamedTuple):
    """A plain decoder whose blocks have a size that the log allows: layers x 2 x heads x head size x element x block."""

    layers: int
    kv_heads: int
    head_size: int
    element_bytes: int
    bytes_per_block: int


class Products(NamedTuple):
    """The plain decoders that fit; `total` counts those left out too."""

    allowed: Interval
    shown: tuple[Product, ...]
    total: int


def allowed_bytes(layout: Layout, base: Solution, era: Era, shape: Shape) -> tuple[Interval, str]:
    """Give the bytes per block that the log allows under a layout's groups and block size, and which equation fails.

    `base` is the solution without any geometry.
    """
    evidence = [claim for name in _READ_BACK for claim in _claims(name, base, shape)]
    pool = Term("kv_pool_memory")
    evidence.append(Evidence(pool, base.values.get(pool, ANYTHING), "derived"))
    if layout.block_size is not None:
        evidence.append(Evidence(Term("block_size"), Interval.exactly(layout.block_size), "derived"))
    if era.concurrency == "requests":
        evidence.append(Evidence(Term("blocks_per_request"), layout.blocks_per_request, "derived"))
    alone = shape._replace(
        ranks=(), pooled=(), stages=1, workers_tokens=(), cache_groups=layout.groups, whole_length=layout.whole_length
    )
    relations = equations(era, alone)
    solution = solve(evidence, relations, sure_bounds(t for r in relations for t in r.terms))
    clash = solution.clashes[0].note.partition(": ")[0] if solution.clashes else ""
    return solution.values.get(Term("bytes_per_block"), ANYTHING), clash


def _claims(name: str, base: Solution, shape: Shape) -> list[Evidence]:
    """Give what the engine says of one of its figures; where each worker has its own, the smallest."""
    own = [c for c in base.evidence.get(Term(name), ()) if c.origin in {"printed", "given"}]
    workers = [base.evidence.get(Term(name, r), ()) for r in shape.workers_tokens]
    counts = [agreed(claims) for claims in workers if claims]
    if own or not counts:
        return own
    least = min(counts, key=lambda count: count.low or 0)
    return [Evidence(Term(name), least if shape.all_workers else Interval(None, least.high), "printed")]


def weighed(name: str, layout: Layout, base: Solution, era: Era, shape: Shape, *, stated: bool = False) -> Hypothesis:
    """Judge one layout."""
    allowed, clash = allowed_bytes(layout, base, era, shape)
    fits = not clash and layout.bytes_per_block.meet(allowed) is not None
    return Hypothesis(name, stated, layout.bytes_per_block, allowed, fits, clash)


def _tells(allowed: Interval) -> bool:
    """Whether an interval of bytes says more than that there are some."""
    return allowed.high is not None or (allowed.low or 0) > 1


def hypotheses(
    planner: Planner, stated: Layout, base: Solution, era: Era, span: Span, shape: Shape
) -> tuple[Hypothesis, ...]:
    """Judge what the log states and what else could be; ways to the same layout stand in one hypothesis.

    Empty where the log says nothing of the bytes of a block, so that everything would fit.
    """
    first = weighed(STATED, stated, base, era, shape, stated=True)
    if first.fits and not _tells(first.allowed):
        return ()
    ways: dict[Layout, list[str]] = {}
    for name, changes in _alternatives(planner):
        layout = planner.layout(era, span, **changes)
        if isinstance(layout, Layout) and layout != stated:
            ways.setdefault(layout, []).append(name)
    others = [weighed(" or ".join(names), layout, base, era, shape) for layout, names in ways.items()]
    return (first, *others)


def _alternatives(planner: Planner) -> Iterator[tuple[str, dict[str, object]]]:
    launch = planner.stated.launch
    if launch.kv_cache_dtype == "auto":
        yield "fp8 cache", {"kv_cache_dtype": "fp8"}
    else:
        yield "cache in the model's dtype", {"kv_cache_dtype": "auto"}
    for size in BLOCK_SIZES:
        if size != launch.block_size:
            yield f"block size {size}", {"block_size": size}
    off = launch.disable_hybrid_kv_cache_manager
    yield (
        "hybrid manager on" if off else "hybrid manager off",
        {"disable_hybrid_kv_cache_manager": not off},
    )
    yield from _drafts(planner)
    ranks = launch.tensor_parallel_size
    for size in (ranks // 2, 2 * ranks):
        if size:
            yield f"tensor parallel {size}", {"tensor_parallel_size": size}


def _drafts(planner: Planner) -> Iterator[tuple[str, dict[str, object]]]:
    from reconstruct.planner.launch import Speculation

    if planner.stated.launch.speculative_config is not None:
        yield "without draft layers", {"speculative_config": None}
    else:
        yield "with the model's own draft layers (mtp)", {"speculative_config": Speculation("mtp", 1)}


def plain_products(allowed: Interval, block_size: Interval, element_bytes: tuple[int, ...]) -> Products | None:
    """List the plain decoders inside an interval of bytes per block; None where it or the block size is open.

    One layer's page holds keys and values: 2 x block x heads x head size x element
    (vllm 0.33.0 v1/kv_cache_interface.py FullAttentionSpec.page_size_bytes).
    """
    if not allowed.low or allowed.high is None or not block_size.is_point or not block_size.low:
        return None
    shown: list[Product] = []
    total = 0
    for element in element_bytes:
        for head in HEAD_SIZES:
            for heads in KV_HEADS:
                page = 2 * int(block_size.low) * heads * head * element
                fewest, most = -(-int(allowed.low) // page), min(int(allowed.high) // page, MOST_LAYERS)
                total += max(0, most - max(fewest, 1) + 1)
                for layers in range(max(fewest, 1), most + 1):
                    if len(shown) == PRODUCTS_SHOWN:
                        break
                    shown.append(Product(layers, heads, head, element, layers * page))
    return Products(allowed, tuple(shown), total)
