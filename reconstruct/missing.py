"""Why a figure is not in the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconstruct.eras import describe

if TYPE_CHECKING:
    from reconstruct.equations import Shape
    from reconstruct.eras import Era
    from reconstruct.releases import Span


def reason(name: str, era: Era, span: Span, shape: Shape) -> str:
    """Give one clause that says why nothing bounds `name`, and where to get it if that helps."""
    release = describe(span)
    if name == "external_weight_memory":
        return "no line speaks of weights held by another process (0.32+)"
    if name in {"cudagraph_memory_estimate", "cudagraph_memory_applied"} and era.estimate == "none":
        return f"{release} makes no graph estimate"
    if name in {"cudagraph_memory_estimate", "cudagraph_memory_actual"}:
        return "no graph line of this rank (eager mode, or the log ends before capture)"
    if name == "available_kv_cache_memory" and shape.explicit_pool:
        return "the pool was given in bytes, so nothing was profiled"
    if name == "available_kv_cache_memory" and era.charge in {"device", "opaque"}:
        return f"not printed by {release}"
    if name in {"bytes_per_block", "kv_cache_bytes", "unused_kv_memory"}:
        return "neither blocks and pool nor a model config bound it (--config gives the geometry)"
    if name == "num_blocks":
        return "not printed, and the model's cache groups or block size are not known (--config tells)"
    if name == "block_size":
        return "no line states it, and the default is sure to rule only where arguments and the cache's size are in the log"
    if name == "kv_cache_tokens" and era.tokens == "none":
        return f"{release} prints blocks, not tokens"
    if name in {"kv_cache_tokens", "max_concurrency", "kv_pool_memory"}:
        return "no capacity line: the start ended before it, or the log does"
    if name == "gpu_memory_utilization":
        return "no arguments line (--set gpu_memory_utilization=0.9 adds it)"
    if name == "total_memory" and era.total_level != "INFO":
        return _level(era, release) + " (--gpu or --total-memory adds it)"
    return _level(era, release)


def _level(era: Era, release: str) -> str:
    if era.usage_level == "DEBUG":
        return f"printed only at DEBUG by {release}"
    if era.usage_level == "INFO":
        return "its line is not in the log"
    return f"not printed by {release}"
