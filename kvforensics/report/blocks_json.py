"""The answer to `blocks` as JSON, schema `kvforensics.blocks/1`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kvforensics.report.json import interval_object, quantity_object

if TYPE_CHECKING:
    from kvforensics.blocks import Blocks, LikeLayers
    from kvforensics.report.json import JsonObject
    from reconstruct.planner.result import GroupPlan, RankPlan

BLOCKS_SCHEMA = "kvforensics.blocks/1"
SHOWN = frozenset(("kind", "block_size", "num_kv_heads", "head_size", "head_size_v", "dtype"))
"""Fields of a layer spec that are always written."""


def blocks_object(found: Blocks, engines: int) -> JsonObject:
    """Give the whole answer; `engines` is the data-parallel size, each with a cache like this."""
    plan, account = found.plan, found.account
    stages = {rank.stage: rank for rank in plan.ranks} if plan else {}
    return {
        "schema": BLOCKS_SCHEMA,
        "model": found.model,
        "source": {"kind": found.found.source, "place": found.found.place},
        "launch": _launch(found, engines),
        "memory": interval_object(found.memory) if found.memory else None,
        "outcome": found.outcome,
        "reason": found.reason or None,
        "layers": [_layers(like) for like in found.layers],
        "stages": [_stage(number, stages[number]) for number in sorted(stages)],
        "binding_rank": plan.binding_rank if plan else None,
        "quantities": {name: quantity_object(q) for name, q in account.quantities.items()},
        "missing": {name: m.reason for name, m in account.missing.items()},
    }


def _launch(found: Blocks, engines: int) -> JsonObject:
    launch = found.launch
    draft = launch.speculative_config
    stated = {name: value for name, value in launch._asdict().items() if name != "speculative_config"}
    return {
        **stated,
        "data_parallel_size": engines,
        "speculative_config": draft
        and {"method": draft.method, "num_speculative_tokens": draft.num_speculative_tokens},
    }


def _layers(like: LikeLayers) -> JsonObject:
    """Give like layers; of the spec what every kind has, and what is not as unset."""
    unset = like.spec._field_defaults
    spec = {name: value for name, value in like.spec._asdict().items() if name in SHOWN or value != unset[name]}
    if like.spec.block_stride_alignment is not None:
        spec["block_stride_alignment"] = str(like.spec.block_stride_alignment)
    return {"stage": like.stage, "count": len(like.layers), "layers": list(like.layers), "spec": spec}


def _stage(number: int, rank: RankPlan) -> JsonObject:
    return {
        "stage": number,
        "bytes_per_block": rank.bytes_per_block,
        "groups": [_group(group) for group in rank.groups],
    }


def _group(group: GroupPlan) -> JsonObject:
    return {
        "kind": group.kind,
        "layers": list(group.layers),
        "page_bytes": list(group.pages),
        "block_size": group.block_size,
        "padding_bytes": group.padding_bytes + group.page_padding_bytes,
        "padding_share": group.padding_share,
        "blocks_per_request": group.blocks_per_request,
        "grows": group.grows,
    }


def render(found: Blocks, engines: int) -> str:
    """Give the answer as one JSON document on one line."""
    return json.dumps(blocks_object(found, engines), ensure_ascii=False)
