"""What one layer asks of the KV cache, as vLLM's workers report it to the planner.

The field names and kinds are those of `vllm/v1/kv_cache_interface.py` (0.32.0); an older release knows a subset of
them. A spec carries no layer name: layers with equal specs are interchangeable to the planner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.planner.errors import BadSetting, Unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping

FULL = "FullAttentionSpec"
MLA = "MLAAttentionSpec"
SLIDING = "SlidingWindowSpec"
SLIDING_MLA = "SlidingWindowMLASpec"
CHUNKED = "ChunkedLocalAttentionSpec"
CROSS = "CrossAttentionSpec"
MAMBA = "MambaSpec"
SINK = "SinkFullAttentionSpec"
RSWA = "RSWASpec"
HIDDEN = "HiddenStateCacheSpec"
CIRCULAR = "CircularBufferSpec"

KINDS = (FULL, MLA, SLIDING, SLIDING_MLA, CHUNKED, CROSS, MAMBA, SINK, RSWA, HIDDEN, CIRCULAR)

FULL_LIKE = frozenset({FULL, MLA, SINK, RSWA, HIDDEN})
"""Kinds that derive from full attention: blocks for every token of a request."""
MLA_LIKE = frozenset({MLA, HIDDEN})
SLIDING_LIKE = frozenset({SLIDING, SLIDING_MLA})

_DTYPE_BYTES = {"float32": 4, "float": 4, "half": 2, "float16": 2, "bfloat16": 2, "int8": 1, "uint8": 1}


def dtype_size(dtype: str) -> int:
    """Bytes of one element of a cache dtype, by its torch name.

    Source: vllm 0.32.0, utils/torch_utils.py STR_DTYPE_TO_TORCH_DTYPE: every eight-bit cache format is stored as uint8
    or as a one-byte torch type. Raises Unsupported for a name outside it.
    """
    size = _DTYPE_BYTES.get(dtype)
    if size is not None:
        return size
    if dtype.startswith("float8"):
        return 1
    raise Unsupported(f"the element size of dtype {dtype!r} is not known; give a torch dtype name such as 'bfloat16'")


class KernelBlocks(NamedTuple):
    """A block stride that must hold whole kernel blocks of up to `base` tokens (vLLM: `MultipleOf(base)`)."""

    base: int


class LayerSpec(NamedTuple):
    """One layer's cache spec. Fields that a kind does not have keep their default.

    Sizes are those of one tensor-parallel rank. `head_size_v` defaults to `head_size` (0 for MLA kinds). None stands
    for "not set", as in vLLM, never for an unknown number. `states_per_token` > 1 is vLLM's fractional
    `tokens_per_state`.
    """

    kind: str
    block_size: int
    num_kv_heads: int = 1
    head_size: int = 0
    head_size_v: int = 0
    dtype: str = "bfloat16"
    kv_quant_mode: str = "NONE"
    sliding_window: int | None = None
    attention_chunk_size: int | None = None
    extra_retained_tokens: int = 0
    cache_dtype_str: str | None = None
    model_version: str | None = None
    cache_role: str = "sparse"
    alignment: int | None = None
    page_size_padded: int | None = None
    num_head_slots: int | None = None
    state_content_bytes: int | None = None
    tokens_per_state: int = 1
    states_per_token: int = 1
    block_stride_alignment: int | KernelBlocks | None = None
    dcp_sharded: bool = True
    max_tp_shards: int | None = None
    bounded_replay: bool = False
    sink_len: int | None = None
    rswa_window: int | None = None
    shapes: tuple[tuple[int, ...], ...] = ()
    dtypes: tuple[str, ...] = ()
    mamba_type: str = "MAMBA2"
    mamba_cache_mode: str = "none"
    num_speculative_blocks: int = 0
    num_prefill_checkpoint_blocks: int = 0
    tp_replicated: bool = False

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, object]) -> LayerSpec:
        """Read a spec from plain values: strings, numbers and lists under vLLM's own field names.

        `mla` (true for one stored vector per token) restates the kind. Raises BadSetting (a ValueError) for an
        unknown key or a value of the wrong type, Unsupported for a kind that is not planned here.
        """
        unknown = sorted(set(mapping) - set(_READERS) - {"kind", "mla", "tokens_per_state"})
        if unknown:
            raise BadSetting(f"unknown layer spec keys {', '.join(unknown)}; known are {', '.join(sorted(_READERS))}")
        kind = mapping.get("kind")
        if kind not in KINDS:
            raise Unsupported(f"cache spec kind {kind!r} is not planned here; known are {', '.join(KINDS)}")
        if mapping.get("mla", kind in MLA_LIKE) not in (kind in MLA_LIKE, kind in {SLIDING_MLA, *MLA_LIKE}):
            raise BadSetting(f"mla={mapping['mla']!r} contradicts kind {kind}")
        given = {key: _READERS[key](key, mapping[key]) for key in mapping if key in _READERS}
        given.update(_tokens_per_state(mapping.get("tokens_per_state", 1)))
        if "head_size_v" not in given and kind not in MLA_LIKE and kind != SLIDING_MLA:
            given["head_size_v"] = given.get("head_size", 0)
        if kind == MAMBA:
            given.setdefault("dcp_sharded", False)
        return cls(kind=kind, **given)  # type: ignore[arg-type]  # each reader above returns its field's type


def _whole(key: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise BadSetting(f"layer spec {key} must be a whole number, got {value!r}")
    return value


def _whole_or_unset(key: str, value: object) -> int | None:
    return None if value is None else _whole(key, value)


def _text(key: str, value: object) -> str:
    if not isinstance(value, str):
        raise BadSetting(f"layer spec {key} must be a string, got {value!r}")
    return value


def _text_or_unset(key: str, value: object) -> str | None:
    return None if value is None else _text(key, value)


def _flag(key: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise BadSetting(f"layer spec {key} must be true or false, got {value!r}")
    return value


def _listed(key: str, value: object) -> tuple[object, ...]:
    if not isinstance(value, list | tuple):
        raise BadSetting(f"layer spec {key} must be a list, got {value!r}")
    return tuple(value)


def _shapes(key: str, value: object) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(_whole(key, size) for size in _listed(key, shape)) for shape in _listed(key, value))


def _dtypes(key: str, value: object) -> tuple[str, ...]:
    return tuple(_text(key, name) for name in _listed(key, value))


def _stride_alignment(key: str, value: object) -> int | KernelBlocks | None:
    if isinstance(value, KernelBlocks):
        return value
    if isinstance(value, str):
        inner = value.removeprefix("MultipleOf(").removesuffix(")")
        if not inner.isdigit():
            raise BadSetting(f"layer spec {key} must be bytes or MultipleOf(tokens), got {value!r}")
        return int(inner) if inner == value else KernelBlocks(int(inner))
    return _whole_or_unset(key, value)


def _tokens_per_state(value: object) -> dict[str, int]:
    tokens, _, states = str(value).partition("/")
    if not tokens.isdigit() or not (states or "1").isdigit() or "0" in (tokens, states):
        raise BadSetting(f"layer spec tokens_per_state must be a positive number or fraction, got {value!r}")
    return {"tokens_per_state": int(tokens), "states_per_token": int(states or 1)}


_READERS = {
    "block_size": _whole,
    "num_kv_heads": _whole,
    "head_size": _whole,
    "head_size_v": _whole,
    "dtype": _text,
    "kv_quant_mode": _text,
    "sliding_window": _whole_or_unset,
    "attention_chunk_size": _whole_or_unset,
    "extra_retained_tokens": _whole,
    "cache_dtype_str": _text_or_unset,
    "model_version": _text_or_unset,
    "cache_role": _text,
    "alignment": _whole_or_unset,
    "page_size_padded": _whole_or_unset,
    "num_head_slots": _whole_or_unset,
    "state_content_bytes": _whole_or_unset,
    "block_stride_alignment": _stride_alignment,
    "dcp_sharded": _flag,
    "max_tp_shards": _whole_or_unset,
    "bounded_replay": _flag,
    "sink_len": _whole_or_unset,
    "rswa_window": _whole_or_unset,
    "shapes": _shapes,
    "dtypes": _dtypes,
    "mamba_type": _text,
    "mamba_cache_mode": _text,
    "num_speculative_blocks": _whole,
    "num_prefill_checkpoint_blocks": _whole,
    "tp_replicated": _flag,
}
