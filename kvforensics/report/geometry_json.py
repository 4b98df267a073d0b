"""A geometry and its verdicts as JSON: the key `geometry` of a start-up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvforensics.report.json import interval_object
from reconstruct.interval import ANYTHING

if TYPE_CHECKING:
    from kvforensics.report.json import JsonObject
    from reconstruct.geometry import Layout
    from reconstruct.geometry_ledger import EngineGeometry, GeometryLedger
    from reconstruct.hypotheses import Hypothesis, Products


def geometry_object(geometry: GeometryLedger) -> JsonObject:
    """Give a start-up's geometry: `status` is `used`, `withdrawn` or `none`; `reason` says why not `used`."""
    return {
        "status": geometry.status,
        "model": geometry.model or None,
        "source": geometry.source or None,
        "place": geometry.place or None,
        "reason": geometry.reason or None,
        "engines": [_engine(engine) for engine in geometry.engines],
    }


def _engine(engine: EngineGeometry) -> JsonObject:
    pool = engine.pool
    return {
        "dp": engine.dp,
        "layout": _layout(engine.layout) if engine.layout else None,
        "pool": {
            "verdict": pool.kind,
            "text": pool.text,
            "shortfall": None if pool.shortfall == ANYTHING else interval_object(pool.shortfall),
        },
        "hypotheses": [_hypothesis(h) for h in engine.hypotheses],
        "plain_decoders": _products(engine.products) if engine.products else None,
    }


def _layout(layout: Layout) -> JsonObject:
    return {
        "bytes_per_block": [interval_object(stage) for stage in layout.stages],
        "groups": layout.groups,
        "block_size": layout.block_size,
        "blocks_per_request": interval_object(layout.blocks_per_request),
    }


def _hypothesis(hypothesis: Hypothesis) -> JsonObject:
    return {
        "name": hypothesis.name,
        "stated": hypothesis.stated,
        "verdict": "fits" if hypothesis.fits else "excluded",
        "bytes_per_block": interval_object(hypothesis.bytes_per_block),
        "allowed": interval_object(hypothesis.allowed),
        "clash": hypothesis.clash or None,
    }


def _products(products: Products) -> JsonObject:
    return {
        "allowed": interval_object(products.allowed),
        "total": products.total,
        "shown": [p._asdict() for p in products.shown],
    }
