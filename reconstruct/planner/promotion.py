"""Local attention planned as full attention, when the hybrid cache manager is off or missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconstruct.planner.errors import WouldNotStart
from reconstruct.planner.merging import are_one_type, are_uniform
from reconstruct.planner.pages import is_full, unpadded_page_size_bytes
from reconstruct.planner.spec import CHUNKED, FULL, MAMBA, MLA, SLIDING_LIKE, SLIDING_MLA, LayerSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconstruct.planner.rules import PlannerRules

_SLIDING_MLA_FIELDS = {"cache_dtype_str", "alignment", "tokens_per_state", "states_per_token", "model_version"}
_OWN_FIELDS = {"num_kv_heads", "head_size", "dtype", "num_head_slots", "state_content_bytes"}


def promote(specs: Sequence[LayerSpec], rules: PlannerRules) -> tuple[LayerSpec, ...]:
    """Plan sliding and chunked layers as full attention beside full layers; the attention itself keeps its window.

    Source: KU unify_hybrid_kv_cache_specs, from 0.27.0 _promote_local_kv_cache_specs. Raises WouldNotStart when the
    layers are still of several types, as the engine does.
    """
    if rules.promotes == "always":
        return _promoted(specs, rules)
    if not rules.promotion_splits_replicated:
        return _promote_to_one_type(specs, rules)
    result = list(specs)
    for replicated in (False, True):
        chosen = [i for i, spec in enumerate(specs) if (spec.kind != MAMBA and not spec.dcp_sharded) == replicated]
        for i, spec in zip(chosen, _promote_to_one_type([specs[i] for i in chosen], rules), strict=True):
            result[i] = spec
    return tuple(result)


def _promote_to_one_type(specs: Sequence[LayerSpec], rules: PlannerRules) -> tuple[LayerSpec, ...]:
    if not specs or _is_one_group(specs, rules):
        return tuple(specs)
    promoted = _promoted(specs, rules)
    if not _is_one_group(promoted, rules):
        raise WouldNotStart(f"{rules.promotion_failure}; do not disable the hybrid KV cache manager for this model")
    return promoted


def _is_one_group(specs: Sequence[LayerSpec], rules: PlannerRules) -> bool:
    return are_uniform(specs, rules) or are_one_type(specs, rules)


def _promoted(specs: Sequence[LayerSpec], rules: PlannerRules) -> tuple[LayerSpec, ...]:
    full_blocks = [spec.block_size for spec in specs if is_full(spec)]
    if not full_blocks:
        return tuple(specs)
    cache: dict[LayerSpec, LayerSpec] = {}
    for spec in dict.fromkeys(specs):
        local = spec.kind in SLIDING_LIKE or spec.kind == CHUNKED
        cache[spec] = _as_full(spec, _promoted_block(spec, full_blocks, rules), rules) if local else spec
    return tuple(cache[spec] for spec in specs)


def _promoted_block(spec: LayerSpec, full_blocks: list[int], rules: PlannerRules) -> int:
    if rules.promotion_takes_full_block:
        return full_blocks[0] if len(set(full_blocks)) == 1 else spec.block_size
    return full_blocks[0] if spec.kind == SLIDING_MLA else spec.block_size


def _as_full(spec: LayerSpec, block_size: int, rules: PlannerRules) -> LayerSpec:
    padded = _promoted_padding(spec, block_size, rules)
    kind = MLA if spec.kind == SLIDING_MLA else FULL
    if rules.promotion_keeps_all:
        if kind == MLA and "bounded_replay" in rules.fields:
            raise WouldNotStart("this release cannot promote sliding MLA layers: full MLA has no bounded_replay field")
        return spec._replace(kind=kind, block_size=block_size, page_size_padded=padded, extra_retained_tokens=0)
    if kind == MLA:
        kept = _SLIDING_MLA_FIELDS
    elif spec.kind == CHUNKED:
        kept = {"attention_chunk_size"}
    else:
        kept = set(rules.promotion_keeps)
    fields: dict[str, object] = {name: getattr(spec, name) for name in kept | _OWN_FIELDS}
    fields.setdefault("head_size_v", 0 if kind == MLA else spec.head_size)
    return LayerSpec(kind=kind, block_size=block_size, page_size_padded=padded, **fields)  # type: ignore[arg-type]


def _promoted_padding(spec: LayerSpec, block_size: int, rules: PlannerRules) -> int | None:
    if spec.page_size_padded is None or rules.promotion_padding == "drop":
        return None
    if rules.promotion_padding == "keep":
        return spec.page_size_padded
    return max(spec.page_size_padded, unpadded_page_size_bytes(spec, rules) * block_size // spec.block_size)
