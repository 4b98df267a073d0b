"""The tensors of an attention layer, by kind: heads, compressed (multi-head latent), recurrent (gated delta net)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconstruct.predict.parts import Linear, Plain
from reconstruct.predict.shape import has_bias

if TYPE_CHECKING:
    from reconstruct.predict.parts import Layer, Split
    from reconstruct.predict.shape import Shape

PART = "attention"
ABSORBED = "absorbed"
"""Copies that latent attention derives from its weights."""
_SCALARS = (((0, 15), 4), ((0, 8, 5), 7), ((0, 8, 2), 6), ((0, 7, 1), 4))
"""Scales and ranges that a layer has on the card once it is loaded, newest release first: vllm/attention/layer.py, later
vllm/model_executor/layers/attention/attention.py. The twin of live_probe/eras.py's `attention_scalars`."""


def heads_layer(shape: Shape, split: Split) -> Layer:
    """Give queries, keys and values in one matrix, and the output (0.19.1 models/llama.py LlamaAttention)."""
    size, queries, keys = shape.head_size, split.of(shape.heads), split.kv_heads(shape.kv_heads)
    query_rows = queries * size * (2 if shape.trait.gated_query else 1)
    names = tuple(f"self_attn.{n}_proj" for n in "qkv")
    parts: tuple[Linear | Plain, ...] = (
        Linear(PART, names, query_rows + 2 * keys * size, shape.hidden, bias=has_bias(shape, "qkv")),
        Linear(PART, ("self_attn.o_proj",), shape.hidden, queries * size, bias=has_bias(shape, "out")),
    )
    if shape.trait.experts == "gpt_oss":
        parts += (Plain(PART, queries),)  # attention sinks
    return parts + _head_norms(shape, queries, keys)


def _head_norms(shape: Shape, queries: int, keys: int) -> Layer:
    kind = shape.trait.head_norms
    if kind == "stated":
        kind = "head" if shape.view.flag("use_qk_norm") else ""
    if not kind:
        return ()
    if kind == "head":
        return Plain(PART, shape.head_size), Plain(PART, shape.head_size)
    if shape.architecture.startswith("Olmo"):
        queries, keys = shape.heads, shape.kv_heads  # OLMo norms all heads on every rank
    return Plain(PART, queries * shape.head_size), Plain(PART, keys * shape.head_size)


def latent_layer(shape: Shape, split: Split) -> Layer:
    """Compressed keys and values (0.19.1 models/deepseek_v2.py DeepseekV2MLAAttention), with the absorbed copies.

    layers/attention/mla_attention.py process_weights_after_loading keeps W_UK_T and W_UV beside kv_b_proj in the
    model's dtype.
    """
    view = shape.view
    rank, rope = view.whole_number("kv_lora_rank"), view.whole_number("qk_rope_head_dim")
    nope, value = view.whole_number("qk_nope_head_dim"), view.whole_number("v_head_dim")
    heads, query_rank = split.of(shape.heads), view.maybe_number("q_lora_rank")
    parts: list[Linear | Plain] = []
    if query_rank is None:
        parts.append(Linear(PART, ("self_attn.q_proj",), heads * (nope + rope), shape.hidden))
        parts.append(Linear(PART, ("self_attn.kv_a_proj_with_mqa",), rank + rope, shape.hidden))
    else:
        fused = ("self_attn.q_a_proj", "self_attn.kv_a_proj_with_mqa")
        parts.append(Linear(PART, fused, query_rank + rank + rope, shape.hidden))
        parts.append(Plain(PART, query_rank))
        parts.append(Linear(PART, ("self_attn.q_b_proj",), heads * (nope + rope), query_rank))
    parts += [
        Plain(PART, rank),
        Linear(PART, ("self_attn.kv_b_proj",), heads * (nope + value), rank),
        Linear(PART, ("self_attn.o_proj",), shape.hidden, heads * value),
        Plain(ABSORBED, heads * nope * rank),
        Plain(ABSORBED, heads * value * rank),
    ]
    return tuple(parts)


def delta_layer(shape: Shape, split: Split) -> Layer:
    """Give a gated delta net (0.19.1 layers/mamba/gdn_linear_attn.py GatedDeltaNetAttention)."""
    view = shape.view
    key_heads, value_heads = view.whole_number("linear_num_key_heads"), view.whole_number("linear_num_value_heads")
    keys = key_heads * view.whole_number("linear_key_head_dim")
    value_size = view.whole_number("linear_value_head_dim")
    values = value_heads * value_size
    mixed = split.of(2 * keys + values)
    names = ("linear_attn.in_proj_qkv", "linear_attn.in_proj_z")
    return (
        Linear(PART, names, mixed + split.of(values), shape.hidden),
        Linear(PART, ("linear_attn.in_proj_b", "linear_attn.in_proj_a"), split.of(2 * value_heads), shape.hidden),
        Plain(PART, mixed * view.whole_number("linear_conv_kernel_dim")),
        Plain(PART, split.of(value_heads), 4),  # A_log
        Plain(PART, split.of(value_heads)),  # dt_bias
        Plain(PART, value_size),
        Linear(PART, ("linear_attn.out_proj",), shape.hidden, split.of(values)),
    )


def is_recurrent(shape: Shape, layer: int) -> bool:
    """Whether a layer of a delta-net hybrid is recurrent: by layer_types, else all but every fourth."""
    if shape.trait.mixer != "delta":
        return False
    types = shape.view.words("layer_types")
    if types is not None and layer < len(types):
        return types[layer] == "linear_attention"
    return (layer + 1) % (shape.view.maybe_number("full_attention_interval") or 4) != 0


def attention_layer(shape: Shape, split: Split, layer: int, release: tuple[int, ...]) -> Layer:
    """Give the attention tensors of one layer of a rank."""
    if is_recurrent(shape, layer):
        return delta_layer(shape, split)
    found = latent_layer(shape, split) if shape.trait.mixer == "latent" else heads_layer(shape, split)
    return found + (Plain(PART, 1, 4),) * next((count for first, count in _SCALARS if release >= first), 0)
