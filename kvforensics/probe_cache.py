"""The cache of a start that the torch engine goes through, planned as `blocks` plans it: one arithmetic for both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from live_probe.cache_plan import CachePlan
from live_probe.eras import NEWEST, release_of
from live_probe.launch import batches
from reconstruct.geometry import AMPLE
from reconstruct.planner.config import layer_specs
from reconstruct.planner.launch import Launch
from reconstruct.planner.plan import plan_from_layers
from reconstruct.planner.result import NotStated

if TYPE_CHECKING:
    from live_probe.launch import LaunchOptions
    from live_probe.shape import JsonObject
    from reconstruct.planner.result import KvPlan


def cache_plans(config: JsonObject, version: str, options: LaunchOptions) -> tuple[CachePlan, ...]:
    """Give one rank's cache for each batch that `options` may come to: windows hold tokens that are in flight.

    Raises Unsupported, WouldNotStart and BadSetting as the planner does. Its card stays the default one: where keys and
    values are kept in the model's dtype, the attention kernels of every card take the same blocks.
    """
    return tuple(
        _cache_plan(kv_plan(config, version, options, tokens, AMPLE), tokens) for tokens in batches(options, version)
    )


def kv_plan(config: JsonObject, version: str, options: LaunchOptions, tokens: int, memory: int) -> KvPlan:
    """Plan `memory` bytes of each rank, for batches of `tokens`. Raises as `cache_plans` does."""
    built = layer_specs(config, _launch(version, options, tokens))
    return plan_from_layers(built.stages, built.launch, memory)


def _launch(version: str, options: LaunchOptions, tokens: int) -> Launch:
    known = min(release_of(version), NEWEST)  # a later release starts as the newest one known, and so it plans
    return Launch(
        ".".join(map(str, known)),
        tensor_parallel_size=options.tensor_parallel_size,
        dtype=options.dtype or "auto",
        block_size=options.block_size,
        max_model_len=options.max_model_len,
        max_num_batched_tokens=tokens,
    )


def _cache_plan(plan: KvPlan, tokens: int) -> CachePlan:
    widest = min(plan.groups, key=lambda group: group.padding_bytes)
    smallest = min(group.block_size for group in plan.groups)
    return CachePlan(
        max_num_batched_tokens=tokens,
        max_model_len=plan.max_model_len,
        block_size=smallest if isinstance(plan.block_size, NotStated) else plan.block_size,
        pages=widest.pages,
        least_memory=plan.least_memory,
    )
