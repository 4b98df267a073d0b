"""Decoders whose layers all keep keys and values: one Attention per decoder layer.

Head counts and sizes: vLLM 0.32.0 transformers_utils/model_arch_config_convertor.py (get_total_num_kv_heads,
get_head_size) and the attention class of each file under model_executor/models. Per-layer windows: the same files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.planner.errors import Unsupported
from reconstruct.planner.models.layers import Attention, Geometry
from reconstruct.planner.models.view import as_mapping
from reconstruct.planner.models.windows import CHUNKED, SLIDING, layer_types, model_window, window_size

if TYPE_CHECKING:
    from reconstruct.planner.models.layers import Shard
    from reconstruct.planner.models.view import View

_KV_NAMES = ("n_head_kv", "num_kv_heads", "num_key_value_heads", "multi_query_group_num", "num_attention_groups")


class Trait(NamedTuple):
    """How a class differs from the common decoder.

    quotient: head size is hidden_size / heads whatever head_dim says. typed: layer types decide the windows.
    extra_window: tokens that the class adds to a window. alibi, sinks, honours, pipelines, mm_prefix: see Attention
    and Geometry. global_window: a layer of no sliding type still takes the model's window, where there is one.
    """

    quotient: bool = False
    typed: bool = False
    extra_window: int = 0
    alibi: bool = False
    sinks: bool = False
    honours: bool = True
    pipelines: bool = True
    mm_prefix: bool = False
    global_window: bool = True


def heads_of(view: View) -> int:
    """Query heads of the whole model."""
    return view.positive("num_attention_heads")


def kv_heads_of(view: View) -> int:
    """Key/value heads of the whole model; one per query head where the config states none."""
    for name in _KV_NAMES:
        if view.maybe_number(name) is not None:
            return view.positive(name)
    return heads_of(view)


def head_size_of(view: View, *, quotient: bool = False) -> int:
    """Width of a key: head_dim or hidden_size_per_head where stated, else hidden_size / heads."""
    stated = None if quotient else view.maybe_number("head_dim") or view.maybe_number("hidden_size_per_head")
    return stated or view.whole_number("hidden_size") // heads_of(view)


def common(view: View, _shard: Shard, trait: Trait) -> Geometry:
    """Build the common decoder: equal heads in every layer, windows by layer type or for the whole model."""
    layer = Attention(
        heads_of(view),
        kv_heads_of(view),
        head_size_of(view, quotient=trait.quotient),
        honours=trait.honours,
        alibi=trait.alibi,
        sinks=trait.sinks,
    )
    windows = layer_windows(view, trait)
    return one_kind(view, tuple((layer._replace(window=window),) for window in windows), trait)


def one_kind(view: View, layers: tuple[tuple[Attention, ...], ...], trait: Trait) -> Geometry:
    """Build a model of attention layers only."""
    return Geometry(
        view,
        layers,
        heads_of(view),
        kv_heads_of(view),
        head_size_of(view),
        pipelines=trait.pipelines,
        mm_prefix=trait.mm_prefix,
    )


def layer_windows(view: View, trait: Trait) -> tuple[int | None, ...]:
    """Window of each layer, None for layers that see everything.

    A layer whose class names no window takes the model's, which only exists where no layer is of another type
    (vLLM 0.32.0 attention.py Attention.__init__).
    """
    count = view.whole_number("num_hidden_layers")
    everywhere = model_window(view) if trait.honours and trait.global_window else None
    types = layer_types(view) if trait.typed else None
    if types is None:
        return (everywhere,) * count
    if len(types) < count:
        raise Unsupported(f"layer_types has {len(types)} entries for {count} layers")
    own = window_size(view)
    if SLIDING in types[:count] and own is None:
        raise Unsupported("layer_types names sliding layers but the config states no sliding_window")
    return tuple((own or 0) + trait.extra_window if kind == SLIDING else everywhere for kind in types[:count])


def cohere2(view: View, shard: Shard, trait: Trait) -> Geometry:
    """Cohere 2: from 0.29.0 a window counts the token itself beside those it looks back on (0.32.0 commandr.py)."""
    return common(view, shard, trait._replace(extra_window=1 if shard.release >= (0, 29) else 0))


def falcon(view: View, shard: Shard, _trait: Trait) -> Geometry:
    """Falcon: one key head with multi_query, unless the new architecture states its own.

    Its layers ignore the cache dtype (0.32.0 models/falcon.py hands them no cache config).
    """
    kv_heads = 1 if view.flag("multi_query") and not view.flag("new_decoder_architecture") else kv_heads_of(view)
    alibi = view.flag("alibi")
    layer = Attention(heads_of(view), kv_heads, head_size_of(view, quotient=True), honours=False, alibi=alibi)
    geometry = one_kind(view, ((layer,),) * view.whole_number("num_hidden_layers"), Trait())
    del shard
    return geometry._replace(kv_heads=kv_heads)


def big_code(view: View, shard: Shard, trait: Trait) -> Geometry:
    """GPTBigCode: one key head with multi_query, else one per query head."""
    kv_heads = 1 if view.flag("multi_query", absent=True) else heads_of(view)
    return _with_heads(common(view, shard, trait), kv_heads)


def one_key_head(view: View, shard: Shard, trait: Trait) -> Geometry:
    """Step3: all query heads share one key head."""
    return _with_heads(common(view, shard, trait), 1)


def per_head_keys(view: View, shard: Shard, trait: Trait) -> Geometry:
    """Classes that keep a key head per query head (GPT-2, GPT-J, OPT, Bloom)."""
    return _with_heads(common(view, shard, trait), heads_of(view))


def _with_heads(geometry: Geometry, kv_heads: int) -> Geometry:
    layers = tuple(
        tuple(part._replace(kv_heads=kv_heads) if isinstance(part, Attention) else part for part in layer)
        for layer in geometry.layers
    )
    return geometry._replace(layers=layers, kv_heads=kv_heads)


def dbrx(view: View, shard: Shard, trait: Trait) -> Geometry:
    """DBRX and MPT state key heads under attn_config; MPT may bias by distance (alibi)."""
    attention = view.part("attn_config")
    kv_heads = attention.get("kv_n_heads")
    alibi = bool(attention.get("alibi"))
    geometry = common(view, shard, trait._replace(alibi=alibi))
    return _with_heads(geometry, kv_heads if isinstance(kv_heads, int) else heads_of(view))


def llama4(view: View, _shard: Shard, trait: Trait) -> Geometry:
    """Llama 4: layers with rotary embedding attend within chunks, if the config states a chunk size.

    Source: 0.32.0 models/llama4.py Llama4Attention.
    """
    chunk = view.maybe_number("attention_chunk_size")
    layer = Attention(heads_of(view), kv_heads_of(view), head_size_of(view))
    layers = tuple((layer._replace(chunk=chunk if kind == CHUNKED else None),) for kind in _type_of_each(view))
    return one_kind(view, layers, trait)


def _type_of_each(view: View) -> tuple[str, ...]:
    """Types of the layers, as many as there are layers. Raises Unsupported where the config lists more or fewer."""
    types, count = layer_types(view) or (), view.whole_number("num_hidden_layers")
    if len(types) != count:
        raise Unsupported(f"{len(types)} layer types for {count} layers")
    return types


def gpt_oss(view: View, _shard: Shard, trait: Trait) -> Geometry:
    """gpt-oss: every other layer slides, counted from the first, whatever layer_types says (0.32.0 gpt_oss.py)."""
    layer = Attention(heads_of(view), kv_heads_of(view), view.whole_number("head_dim"), sinks=True)
    everywhere = model_window(view)
    window = window_size(view)
    layers = tuple(
        (layer._replace(window=everywhere if number % 2 else window),)
        for number in range(view.whole_number("num_hidden_layers"))
    )
    return one_kind(view, layers, trait)


def granite(view: View, shard: Shard, trait: Trait) -> Geometry:
    """Granite: layer types bring windows and, unless attention_sinks denies it, sinks (0.32.0 granite.py)."""
    has_types = view.words("layer_types") is not None or view.model_type in {"granite_swa", "granitemoe_swa"}
    return common(view, shard, trait._replace(typed=True, sinks=view.flag("attention_sinks", absent=has_types)))


def gemma3n(view: View, shard: Shard, trait: Trait) -> Geometry:
    """Gemma 3n: the last num_kv_shared_layers reuse an earlier layer's cache (0.32.0 models/gemma3n.py)."""
    geometry = common(view, shard, trait)
    own = view.whole_number("num_hidden_layers") - (view.maybe_number("num_kv_shared_layers") or 0)
    return geometry._replace(layers=geometry.layers[:own] + ((),) * (len(geometry.layers) - own))


def gemma4(view: View, _shard: Shard, trait: Trait) -> Geometry:
    """Gemma 4: full layers have their own head size and key heads; trailing layers share caches.

    Source: 0.32.0 models/gemma4.py Gemma4DecoderLayer; transformers 5.19 gemma4 per_layer_config (a full layer takes
    global_head_dim, and num_global_key_value_heads only where keys equal values).
    """
    heads, kv_heads = heads_of(view), kv_heads_of(view)
    head_size = view.maybe_number("head_dim") or 256
    wide = view.maybe_number("global_head_dim") or 512
    equal = view.flag("attention_k_eq_v")
    wide_heads = (view.maybe_number("num_global_key_value_heads") or kv_heads) if equal else kv_heads
    local = Attention(heads, kv_heads, head_size, window=window_size(view))
    layers: list[tuple[Attention, ...]] = [
        (local if kind == SLIDING else Attention(heads, wide_heads, wide),) for kind in _type_of_each(view)
    ]
    own = len(layers) - (view.maybe_number("num_kv_shared_layers") or 0)
    layers[own:] = [()] * (len(layers) - own)
    images = view.get("use_bidirectional_attention") == "vision" and view.nested
    geometry = one_kind(view, tuple(layers), trait)
    widest = max((layer[0].head_size for layer in layers if layer), default=head_size)
    return geometry._replace(mm_prefix=images, head_size=widest, kv_heads=max(kv_heads, wide_heads))


def mimo_v2(view: View, _shard: Shard, trait: Trait) -> Geometry:
    """MiMo-V2: window layers have their own heads and widths (0.32.0 models/mimo_v2.py MiMoV2FlashDecoderLayer)."""
    pattern = view.numbers("hybrid_layer_pattern")
    if pattern is None:
        raise Unsupported("MiMo-V2 needs hybrid_layer_pattern to tell its window layers")
    far = Attention(heads_of(view), kv_heads_of(view), head_size_of(view), view.maybe_number("v_head_dim"))
    far = far._replace(sinks=view.flag("add_full_attention_sink_bias"))
    near = mimo_v2_window(view)
    layers = tuple((near if slides else far,) for slides in pattern[: view.whole_number("num_hidden_layers")])
    return one_kind(view, layers, trait)


def mimo_v2_window(view: View) -> Attention:
    """Build a window layer of MiMo-V2."""
    window = view.maybe_number("sliding_window_size") or view.whole_number("sliding_window")
    return Attention(
        view.whole_number("swa_num_attention_heads"),
        view.positive("swa_num_key_value_heads"),
        view.whole_number("swa_head_dim"),
        view.maybe_number("swa_v_head_dim"),
        window=window,
        sinks=view.flag("add_swa_attention_sink_bias"),
    )


def nemotron_nas(view: View, _shard: Shard, trait: Trait) -> Geometry:
    """Llama-Nemotron (DeciLM): each block states its queries per key head, or has no attention at all."""
    blocks = view.get("block_configs")
    if not isinstance(blocks, list):
        raise Unsupported("DeciLM needs block_configs to tell which blocks have attention")
    heads, size = heads_of(view), head_size_of(view)
    layers = tuple(_deci_block(as_mapping(block, "block_configs"), heads, size) for block in blocks)
    geometry = one_kind(view, layers[: view.whole_number("num_hidden_layers")], trait)
    first = next((layer[0].kv_heads for layer in layers if layer), heads)
    return geometry._replace(kv_heads=first)


def _deci_block(block: object, heads: int, head_size: int) -> tuple[Attention, ...]:
    attention = as_mapping(as_mapping(block, "block_configs").get("attention"), "attention")
    if attention.get("no_op"):
        return ()
    if attention.get("replace_with_linear"):
        raise Unsupported("a DeciLM block replaces attention with a linear layer; vLLM has no such block")
    per_key = attention.get("n_heads_in_group")
    if not isinstance(per_key, int) or per_key < 1:
        raise Unsupported("a DeciLM block states no n_heads_in_group")
    return (Attention(heads, heads // per_key, head_size),)


def step3p5(view: View, _shard: Shard, trait: Trait) -> Geometry:
    """Step 3.5: layers of the other attention type have their own heads (0.32.0 models/step3p5.py)."""
    types = layer_types(view)
    count = view.whole_number("num_hidden_layers")
    window = window_size(view)
    base = Attention(heads_of(view), view.positive("num_attention_groups"), head_size_of(view))
    other = view.part("attention_other_setting")
    layers = []
    for number in range(count):
        kind = types[number] if types else (SLIDING if number % 2 == 0 else "full_attention")
        layer = base
        if other and kind == other.get("attention_type"):
            layer = _other_heads(other)
        layers.append((layer._replace(window=window if kind == SLIDING else None),))
    return one_kind(view, tuple(layers), trait)


def _other_heads(other: object) -> Attention:
    setting = as_mapping(other, "attention_other_setting")
    values = [setting.get(name) for name in ("num_attention_heads", "num_attention_groups", "head_dim")]
    heads, kv_heads, head_size = (value if isinstance(value, int) else 0 for value in values)
    if not (heads and kv_heads and head_size):
        raise Unsupported("attention_other_setting lacks num_attention_heads, num_attention_groups or head_dim")
    return Attention(heads, kv_heads, head_size)


def chat_glm(view: View, _shard: Shard, trait: Trait) -> Geometry:
    """ChatGLM: multi_query_group_num key heads if multi_query_attention is set (0.32.0 models/chatglm.py)."""
    count = view.maybe_number("num_layers") or view.whole_number("num_hidden_layers")
    heads = heads_of(view)
    grouped = view.flag("multi_query_attention")
    kv_heads = view.positive("multi_query_group_num") if grouped else heads
    size = view.maybe_number("kv_channels") or head_size_of(view, quotient=True)
    layer = Attention(heads, kv_heads, view.whole_number("hidden_size") // heads)
    return one_kind(view, ((layer,),) * count, trait)._replace(kv_heads=kv_heads, head_size=size)


def baichuan(view: View, shard: Shard, trait: Trait) -> Geometry:
    """Baichuan: the wider model (hidden_size above 4096) biases by distance (models/baichuan.py)."""
    return per_head_keys(view, shard, trait._replace(alibi=view.whole_number("hidden_size") != 4096))
