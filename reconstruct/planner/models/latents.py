"""Multi-head latent attention: one compressed vector per token, sparse kinds with an indexer beside it.

Source: vLLM 0.32.0 model_executor/models/deepseek_v2.py, models/deepseek_v32/attention.py, models/kimi_k3,
models/deepseek_v4, models/minimax_m3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconstruct.planner.errors import Unsupported
from reconstruct.planner.models import states
from reconstruct.planner.models.decoders import Trait, common, heads_of, kv_heads_of
from reconstruct.planner.models.layers import V4, Attention, Geometry, Index, Latent
from reconstruct.planner.models.view import as_mapping

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconstruct.planner.models.layers import CacheLayer, Shard
    from reconstruct.planner.models.view import View

PADDED_HEAD = 256
"""Head size of DeepSeek models before latent attention."""
QUANT_BLOCK = 128
"""Elements that share one float32 scale in an indexer's key (deepseek_v2.py Indexer.quant_block_size)."""


def latent_width(view: View) -> int:
    """Elements stored per token: kv_lora_rank + qk_rope_head_dim."""
    return view.whole_number("kv_lora_rank") + (view.maybe_number("qk_rope_head_dim") or 0)


def index_bytes(width: int) -> int:
    """Bytes per token of an indexer's key of so many elements: fp8 values and a float32 scale per 128 of them."""
    return width + width // QUANT_BLOCK * 4


def _geometry(view: View, layers: Sequence[tuple[CacheLayer, ...]]) -> Geometry:
    return Geometry(view, tuple(layers), heads_of(view), 1, latent_width(view))


def deepseek(view: View, shard: Shard, trait: Trait) -> Geometry:
    """DeepSeek V2, V3 and models of their kind: dense latent attention, or with an indexer where index_topk is set.

    Without kv_lora_rank (DeepSeek-MoE) the layers are ordinary attention. Releases before 0.7.1 keep full keys and
    values, padded to heads of 256 (ModelConfig.get_head_size of 0.5.5 and 0.6.6).
    """
    if not view.has("kv_lora_rank"):
        return common(view, shard, trait)
    if shard.release < (0, 7, 1):
        heads = heads_of(view)
        padded = Attention(heads, heads, PADDED_HEAD)
        layers = ((padded,),) * view.whole_number("num_hidden_layers")
        return Geometry(view, layers, heads, heads, PADDED_HEAD)
    if view.has("index_topk"):
        return _sparse(view)
    layer = (Latent(heads_of(view), latent_width(view)),)
    geometry = _geometry(view, (layer,) * view.whole_number("num_hidden_layers"))
    return geometry._replace(drafts=(layer,) * (view.maybe_number("num_nextn_predict_layers") or 0))


def _sparse(view: View) -> Geometry:
    """DeepSeek V3.2 and GLM-5: latent attention that an indexer narrows; some layers reuse an earlier selection.

    Source: deepseek_v2.py DeepseekV2MLAAttention (index_topk_freq, index_topk_pattern, index_skip_topk_offset).
    """
    attention = Latent(heads_of(view), latent_width(view), sparse=True)
    index = Index(index_bytes(view.whole_number("index_head_dim")))
    count = view.whole_number("num_hidden_layers")
    layers = [(attention,) if _reuses(view, layer) else (index, attention) for layer in range(count)]
    drafts = ((index, attention),) * (view.maybe_number("num_nextn_predict_layers") or 0)
    return _geometry(view, layers)._replace(drafts=drafts)


def _reuses(view: View, layer: int) -> bool:
    """Whether a layer takes the token selection of an earlier one and so has no indexer of its own."""
    pattern = view.get("index_topk_pattern")
    if isinstance(pattern, str | list | tuple):
        return layer < len(pattern) and pattern[layer] == "S"
    offset = view.maybe_number("index_skip_topk_offset")
    return bool(max(layer - (2 if offset is None else offset) + 1, 0) % (view.maybe_number("index_topk_freq") or 1))


def kimi_linear(view: View, shard: Shard, _trait: Trait) -> Geometry:
    """Kimi-Linear and Kimi-K3: Kimi delta attention and, every few layers, latent attention."""
    linear = view.part("linear_attn_config")
    attending = set(_listed(linear.get("full_attn_layers"), "full_attn_layers"))
    recurrent = set(_listed(linear.get("kda_layers"), "kda_layers"))
    heads, head_dim = _stated(linear, "num_heads"), _stated(linear, "head_dim")
    state = states.kimi_delta(
        heads,
        head_dim,
        _stated(linear, "short_conv_kernel_size"),
        shard.tensor_parallel_size,
        joined=shard.release >= (0, 23),
        speculative=shard.num_speculative_tokens if shard.release >= (0, 27) else 0,
    )
    state = state._replace(checkpoints=bool(linear.get("use_full_rank_gate")))
    attention = Latent(heads_of(view), latent_width(view))
    layers: list[tuple[CacheLayer, ...]] = []
    for number in range(1, view.whole_number("num_hidden_layers") + 1):
        if number in recurrent:
            layers.append((state,))
        elif number in attending or not recurrent:
            layers.append((attention,))
        else:
            raise Unsupported(f"linear_attn_config lists layer {number} neither as full attention nor as linear")
    drafts = ((attention,),) * (view.maybe_number("num_nextn_predict_layers") or 0)
    return _geometry(view, layers)._replace(hybrid=True, drafts=drafts)


def _listed(value: object, name: str) -> list[int]:
    if not isinstance(value, list):
        raise Unsupported(f"linear_attn_config states no list {name}")
    return [int(number) for number in value]


def _stated(part: object, name: str) -> int:
    value = as_mapping(part, "linear_attn_config").get(name)
    if not isinstance(value, int):
        raise Unsupported(f"linear_attn_config states no {name}")
    return value


def deepseek_v4(view: View, _shard: Shard, _trait: Trait) -> Geometry:
    """DeepSeek V4: a sliding-window cache in every layer, and compressed caches by compress_ratios."""
    ratios = view.numbers("compress_ratios")
    if ratios is None:
        raise Unsupported("DeepSeek-V4 needs compress_ratios to tell its layers")
    count = view.whole_number("num_hidden_layers")
    size, window = view.whole_number("head_dim"), view.whole_number("sliding_window")
    index = view.whole_number("index_head_dim")
    every = tuple((V4(max(ratio, 1), size, window, index),) for ratio in ratios)
    layers, drafts = every[:count], every[count : count + (view.maybe_number("num_nextn_predict_layers") or 0)]
    return Geometry(view, layers, heads_of(view), 1, size, drafts=drafts)


def minimax_m3(view: View, shard: Shard, trait: Trait) -> Geometry:
    """MiniMax-M3: grouped attention; sparse layers keep an index of one head in the model's dtype beside it."""
    geometry = common(view, shard, trait)
    setting = view.part("sparse_attention_config")
    chosen = setting.get("sparse_attention_freq")
    if not setting.get("use_sparse_attention") or not isinstance(chosen, list):
        return geometry
    width = setting.get("sparse_index_dim")
    if not isinstance(width, int):
        raise Unsupported("sparse_attention_config states no sparse_index_dim")
    dense = Attention(heads_of(view), kv_heads_of(view), geometry.head_size)
    index = Index(width, in_model_dtype=True)
    count = view.whole_number("num_hidden_layers")
    layers: list[tuple[CacheLayer, ...]] = [
        (index, dense._replace(sparse=True)) if selects else (dense,) for selects in chosen[:count]
    ]
    return geometry._replace(layers=tuple(layers))
