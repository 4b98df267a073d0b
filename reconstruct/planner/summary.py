"""A settled plan as the values that reports show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconstruct.planner.capacity import request_blocks
from reconstruct.planner.pages import page_sizes, unpadded_page_size_bytes
from reconstruct.planner.requests import grows_with_length, length_share
from reconstruct.planner.result import GroupPlan, NotStated
from reconstruct.planner.spec import CIRCULAR

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconstruct.planner.capacity import Planning
    from reconstruct.planner.group import Group
    from reconstruct.planner.stages import Stage


def group_plans(stage: Stage, length: int, planning: Planning) -> tuple[GroupPlan, ...]:
    """Each of the stage's groups, with its pages, its padding and the blocks of one request of `length` tokens."""
    return tuple(_group_plan(group, stage, length, planning) for group in stage.groups)


def _group_plan(group: Group, stage: Stage, length: int, planning: Planning) -> GroupPlan:
    rules = planning.rules
    # A mixed group that was not cut (0.11.0 to 0.16.0) still lists every stage's pages.
    whole = group.mixed and len(group.specs) != len(group.layers)
    specs = tuple(stage.layers[layer] for layer in group.layers) if whole else group.layer_specs()
    pages = tuple(page_sizes(specs, rules))
    return GroupPlan(
        kind="UniformTypeKVCacheSpecs" if group.mixed else group.specs[0].kind,
        layers=group.layers,
        pages=pages,
        block_size=group.block_size,
        page_padding_bytes=sum(pages) - sum(unpadded_page_size_bytes(spec, rules) for spec in specs),
        padding_bytes=stage.block_bytes - sum(pages),
        blocks_per_request=request_blocks(group, length, planning),
        grows=_grows(group, planning),
    )


def _grows(group: Group, planning: Planning) -> bool:
    return grows_with_length(group.specs[0], planning.scope, planning.rules)


def final_block_size(groups: Sequence[Group], cache_block: int | None, planning: Planning) -> int | NotStated:
    """Give the engine's own block size after planning.

    `cache_block`: the configured one, which stays to 0.17.1; then the smallest of any group, from 0.30.0 of any group
    that takes part in prefix caching (0.18.0, 0.30.0 v1/engine/core.py _initialize_kv_caches).
    """
    kept = planning.rules.final_block == "configured"
    if cache_block is not None and (kept or not groups):
        return cache_block
    sizes = [group.block_size for group in groups]
    if planning.rules.final_block == "cacheable":
        sizes = [group.block_size for group in groups if _is_cacheable(group)] or sizes
    return min(sizes, default=0) or NotStated("the model has no cache layers and no block size is configured")


def _is_cacheable(group: Group) -> bool:
    return all(spec.kind != CIRCULAR and not spec.bounded_replay for spec in group.specs)


def request_parts(stage: Stage, length: int, planning: Planning) -> tuple[int, float]:
    """Bytes that a request of `length` tokens takes whatever its length, and bytes that each token adds."""
    fixed, per_token = 0, 0.0
    for group in stage.groups:
        if _grows(group, planning):
            tokens = group.block_size * length_share(group.specs[0], planning.scope, planning.rules)
            per_token += stage.block_bytes / tokens
        else:
            fixed += stage.block_bytes * request_blocks(group, length, planning)
    return fixed, per_token
