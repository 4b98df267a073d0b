"""Which layers may share one group: equal specs, mergeable specs, or one type with several page sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconstruct.planner.errors import WouldNotStart
from reconstruct.planner.pages import is_full, page_size_bytes
from reconstruct.planner.spec import CHUNKED, CIRCULAR, CROSS, FULL, MAMBA, MLA_LIKE, RSWA, SINK, SLIDING, SLIDING_MLA

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconstruct.planner.rules import PlannerRules
    from reconstruct.planner.spec import LayerSpec


class WindowsDiffer(WouldNotStart):
    """Full layers of one group carry different windows; the engine's merge raises ValueError."""


def type_text(spec: LayerSpec, rules: PlannerRules) -> str:
    """Name the coarse identity of a layer before 0.10.1: kind, window, block size and page.

    Source: 0.7.3 to 0.10.0 KI `type_id` of each kind.
    """
    if spec.kind == MAMBA:
        return f"mamba_{spec.shapes}_torch.{spec.dtypes[0]}"
    names = {SLIDING: f"sliding_window_{spec.sliding_window}", CHUNKED: f"local_attention_{spec.attention_chunk_size}"}
    return f"{names.get(spec.kind, 'full_attention')}_{spec.block_size}_{page_size_bytes(spec, rules)}"


def are_uniform(specs: Sequence[LayerSpec], rules: PlannerRules) -> bool:
    """Whether all layers make one group with one spec.

    Source: KU is_kv_cache_type_uniform, from 0.10.1 is_kv_cache_spec_uniform. Raises WindowsDiffer where the engine's
    merge does.
    """
    distinct = tuple(dict.fromkeys(specs))
    if rules.uniform_by == "type_id":
        return len({type_text(spec, rules) for spec in distinct}) == 1
    return mergeable(distinct, rules)


def mergeable(specs: Sequence[LayerSpec], rules: PlannerRules) -> bool:
    """Whether vLLM's `merge` of the first spec's class accepts all of them (KI, `merge` of each kind)."""
    first = specs[0]
    if first.kind in MLA_LIKE and rules.mla_merge != "as_full":
        return _merge_mla(specs, rules)
    if first.kind == SLIDING_MLA:
        return _agree(specs, _SLIDING_MLA_FIELDS)
    if first.kind == RSWA:
        return _agree(specs, ("kind", "rswa_window")) and _merge_full(specs, rules)
    if is_full(first):
        return _merge_full(specs, rules)
    return all(spec == first for spec in specs)


_SLIDING_MLA_FIELDS = (
    "kind",
    "cache_dtype_str",
    "tokens_per_state",
    "states_per_token",
    "model_version",
    "sliding_window",
    "extra_retained_tokens",
    "bounded_replay",
    "block_stride_alignment",
    "dcp_sharded",
    "max_tp_shards",
)
_GEOMETRY = (
    "block_size",
    "num_kv_heads",
    "head_size",
    "dtype",
    "kv_quant_mode",
    "page_size_padded",
    "num_head_slots",
    "state_content_bytes",
    "tokens_per_state",
    "states_per_token",
    "block_stride_alignment",
    "dcp_sharded",
    "max_tp_shards",
)


def _agree(specs: Sequence[LayerSpec], names: Sequence[str]) -> bool:
    first = specs[0]
    return all(getattr(spec, name) == getattr(first, name) for spec in specs[1:] for name in names)


def _merge_full(specs: Sequence[LayerSpec], rules: PlannerRules) -> bool:
    as_full = rules.mla_merge == "as_full"
    if not all(spec.kind in {FULL, SINK, RSWA} or (as_full and is_full(spec)) for spec in specs):
        return False
    windows = {spec.sliding_window for spec in specs} - {None}
    chunks = {spec.attention_chunk_size for spec in specs} - {None}
    if max(len(windows), len(chunks)) > 1:
        raise WindowsDiffer("all attention layers of one group must have the same window size")
    names = _GEOMETRY + (("head_size_v",) if rules.merge_compares_value_width else ())
    if as_full and len({spec.kind in MLA_LIKE for spec in specs}) > 1:
        return False
    return _agree(specs, names) and not (windows and chunks)


def _merge_mla(specs: Sequence[LayerSpec], rules: PlannerRules) -> bool:
    if not all(spec.kind in MLA_LIKE for spec in specs):
        return False
    names: tuple[str, ...] = ("cache_dtype_str", "tokens_per_state", "states_per_token", "model_version")
    if rules.mla_merge_roles:
        names += ("cache_role",)
    if rules.mla_merge == "by_fields":
        names += (*_GEOMETRY, "head_size_v")
    return _agree(specs, names)


def are_one_type(specs: Sequence[LayerSpec], rules: PlannerRules) -> bool:
    """Whether all layers need the same number of token slots, so that one group may hold several page sizes.

    Source: 0.11.0 KI UniformTypeKVCacheSpecs.is_uniform_type; 0.23.0 is_uniform_with_collection of each kind.
    """
    if not rules.uniform_type or not _agree(specs, ("block_size", "dcp_sharded")):
        return False
    first = specs[0]
    if is_full(first):
        return all(is_full(spec) for spec in specs)
    if first.kind == SLIDING_MLA:
        return _agree(specs, ("kind", "sliding_window", "bounded_replay"))
    if first.kind == SLIDING:
        return all(spec.kind in {SLIDING, SLIDING_MLA} for spec in specs) and _agree(specs, ("sliding_window",))
    if first.kind == CHUNKED:
        return _agree(specs, ("kind", "attention_chunk_size"))
    if first.kind == MAMBA:
        return _agree(specs, ("kind",)) and _same_states(specs, rules)
    return first.kind in {CROSS, CIRCULAR} and _agree(specs, ("kind",))


def _same_states(specs: Sequence[LayerSpec], rules: PlannerRules) -> bool:
    names = tuple(name for name in rules.mamba_type_compares if name != "page_size_bytes")
    if not _agree(specs, names):
        return False
    return "page_size_bytes" not in rules.mamba_type_compares or len({page_size_bytes(s, rules) for s in specs}) == 1
