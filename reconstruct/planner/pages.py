"""Bytes of one layer's page: one block of its cache, as the release counts it."""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING

from reconstruct.planner.errors import Unsupported, WouldNotStart
from reconstruct.planner.spec import (
    CHUNKED,
    FULL,
    FULL_LIKE,
    MAMBA,
    MLA,
    MLA_LIKE,
    SLIDING,
    SLIDING_MLA,
    KernelBlocks,
    LayerSpec,
    dtype_size,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconstruct.planner.rules import PlannerRules

_LATER_FIELDS = (
    "kv_quant_mode",
    "extra_retained_tokens",
    "cache_dtype_str",
    "model_version",
    "cache_role",
    "alignment",
    "tokens_per_state",
    "states_per_token",
    "block_stride_alignment",
    "dcp_sharded",
    "max_tp_shards",
    "bounded_replay",
    "sink_len",
    "rswa_window",
    "mamba_type",
    "mamba_cache_mode",
    "num_speculative_blocks",
    "num_prefill_checkpoint_blocks",
    "tp_replicated",
)
"""Fields that not every release has; older ones see the default and so treat such layers as equal."""

DS_MLA_BYTES = 656
"""One fp8_ds_mla token: 512 fp8 values, 16 bytes of scales, 64 bf16 rope values (0.11.0 KI MLAAttentionSpec)."""
DS_V4_BYTES = 584
"""One DeepSeek-V4 state: 448 fp8 values, 64 bf16 values, 8 bytes of scales (0.20.0 KI MLAAttentionSpec)."""


def cdiv(dividend: int, divisor: int) -> int:
    """Ceiling division, vLLM's `cdiv`."""
    return -(-dividend // divisor)


def round_up(value: int, step: int) -> int:
    """Round up to a multiple of step, vLLM's `round_up`."""
    return cdiv(value, step) * step


def as_reported(spec: LayerSpec, rules: PlannerRules) -> LayerSpec:
    """Give the spec as this release's own worker would report the layer.

    Sliding and chunked windows were full attention before their kinds existed (0.8.3, 0.10.0), MLA a full layer with a
    value part (before 0.8.0). Raises Unsupported for a kind or packed format that the release does not have.
    """
    changes: dict[str, object] = {}
    if spec.kind not in rules.kinds:
        if spec.kind not in {SLIDING, CHUNKED, MLA}:
            raise Unsupported(f"this release's planner has no {spec.kind}")
        changes |= {"kind": FULL, "sliding_window": None, "attention_chunk_size": None}
    kind = changes.get("kind", spec.kind)
    if spec.kv_quant_mode not in {"NONE", "FP8_PER_TENSOR"}:
        _check_format(spec, rules)
    for name in _LATER_FIELDS:
        if name not in rules.fields:
            changes[name] = LayerSpec._field_defaults[name]
    if kind == FULL:
        changes |= {name: None for name in ("sliding_window", "attention_chunk_size") if name not in rules.fields}
    if ("page_size_padded" if kind == MAMBA else "attention_page_size_padded") not in rules.fields:
        changes["page_size_padded"] = None
    if kind not in MLA_LIKE and kind not in {MAMBA, SLIDING_MLA} and kind not in rules.value_width_kinds:
        changes["head_size_v"] = spec.head_size
    if kind == MAMBA:
        changes["dcp_sharded"] = False
    return spec._replace(**changes)  # type: ignore[arg-type]  # each value stands for its field


def _check_format(spec: LayerSpec, rules: PlannerRules) -> None:
    known = any(spec.kv_quant_mode.startswith(mode) for mode in rules.quant_modes)
    if not known and spec.state_content_bytes is None:
        raise Unsupported(f"the page of cache format {spec.kv_quant_mode} is not known for this release")
    if spec.kv_quant_mode.startswith(("TURBOQUANT", "ULTRAQUANT", "NVFP4_DS")) and spec.state_content_bytes is None:
        raise Unsupported(f"cache format {spec.kv_quant_mode} needs state_content_bytes: its backend decides the slot")


def page_size_bytes(spec: LayerSpec, rules: PlannerRules) -> int:
    """Bytes that one block of this layer takes, padding included (vLLM: `page_size_bytes`).

    Source: v1/kv_cache_interface.py `page_size_bytes` of each kind. Raises WouldNotStart when the padded size is below
    the real one, which the engine asserts against.
    """
    real = unpadded_page_size_bytes(spec, rules)
    if spec.alignment is not None and (aligned := round_up(real, spec.alignment)) != real:
        return aligned
    if spec.page_size_padded is None:
        return real
    if spec.page_size_padded < real:
        raise WouldNotStart(f"a {spec.kind} page of {real} bytes does not fit its padded size {spec.page_size_padded}")
    return spec.page_size_padded


def page_sizes(specs: Sequence[LayerSpec], rules: PlannerRules) -> list[int]:
    """`page_size_bytes` of each spec, worked out once for those that are equal: most layers of a model are."""
    known = {spec: page_size_bytes(spec, rules) for spec in dict.fromkeys(specs)}
    return [known[spec] for spec in specs]


def unpadded_page_size_bytes(spec: LayerSpec, rules: PlannerRules) -> int:
    """Bytes of one block before padding: head slots x states x bytes of one state; for mamba the sum of its states."""
    if spec.kind == MAMBA:
        return _state_bytes(spec, rules)
    states = spec.block_size // spec.tokens_per_state * spec.states_per_token
    heads = spec.num_head_slots if spec.num_head_slots is not None else spec.num_kv_heads
    if spec.state_content_bytes is not None:
        return heads * states * spec.state_content_bytes
    if spec.cache_dtype_str == "fp8_ds_mla" and spec.kind in MLA_LIKE:
        return states * DS_V4_BYTES if spec.model_version == "deepseek_v4" else spec.block_size * DS_MLA_BYTES
    if spec.kind == SLIDING_MLA and spec.model_version == "deepseek_v4":
        packed = spec.cache_dtype_str == "fp8_ds_mla" or not rules.sliding_v4_by_dtype
        return states * (DS_V4_BYTES if packed else spec.head_size * dtype_size(spec.dtype))
    return heads * states * _content_bytes(spec, rules)


def _content_bytes(spec: LayerSpec, rules: PlannerRules) -> int:
    """Bytes of one token's keys and values in one head, with the scales stored beside them."""
    key, value, extra = spec.head_size, spec.head_size_v, 0
    if spec.kv_quant_mode.endswith("_PER_TOKEN_HEAD"):
        extra = 2 * 4
    if spec.kv_quant_mode == "NVFP4" and spec.kind in rules.nvfp4_kinds:
        key, value = (width // 2 + width // 16 for width in (key, value))
    elif spec.kv_quant_mode == "INT4_PER_TOKEN_HEAD" and spec.kind in rules.int4_kinds:
        key, value = key // 2, value // 2
    return (key + value) * dtype_size(spec.dtype) + extra


def _state_bytes(spec: LayerSpec, rules: PlannerRules) -> int:
    dtypes = spec.dtypes if rules.mamba_state_dtypes == "each" else spec.dtypes[:1] * len(spec.shapes)
    total = 0
    for shape, dtype in zip(spec.shapes, dtypes, strict=True):
        size = dtype_size(dtype)
        for extent in shape:
            size *= extent
        total += size
    return total


def block_stride_alignment(spec: LayerSpec, rules: PlannerRules) -> int:
    """Bytes that the stride between two blocks of this layer must be a multiple of; 1 for none.

    Source: 0.32.0 KI KVCacheSpec.get_block_stride_alignment. A block that is split into kernel blocks is aligned to the
    page of one kernel block.
    """
    alignment = spec.block_stride_alignment
    if not isinstance(alignment, KernelBlocks):
        return alignment or 1
    kernel_block = gcd(alignment.base, spec.block_size)
    if kernel_block == spec.block_size:
        return 1
    return page_size_bytes(spec._replace(block_size=kernel_block), rules)


def is_full(spec: LayerSpec) -> bool:
    """Whether the layer keeps blocks for every token of a request."""
    return spec.kind in FULL_LIKE
