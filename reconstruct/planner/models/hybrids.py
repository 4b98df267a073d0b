"""Models that mix attention with recurrent layers, or have recurrent layers only.

Layer order and fields: vLLM 0.32.0 model_executor/models/{jamba,granitemoehybrid,nemotron_h,falcon_h1,zamba2,lfm2,
mamba,mamba2,qwen3_next,qwen3_5,olmo_hybrid}.py, each class's get_mamba_state_shape_from_config.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconstruct.planner.errors import Unsupported
from reconstruct.planner.models import states
from reconstruct.planner.models.decoders import Trait, head_size_of, heads_of, kv_heads_of
from reconstruct.planner.models.layers import Attention, Geometry
from reconstruct.planner.models.windows import layer_types, model_window

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconstruct.planner.models.layers import CacheLayer, Shard, State
    from reconstruct.planner.models.view import View

_RECURRENT = frozenset({"mamba", "linear_attention", "conv", "short_conv"})
_ATTENDING = frozenset({"attention", "full_attention"})

_MAMBA2_FIELDS = ("mamba_n_groups", "mamba_n_heads", "mamba_d_head", "mamba_d_state", "mamba_d_conv")
"""Groups, heads, head size, state size and kernel of a Mamba-2 layer as Bamba, Granite 4 and Falcon-H1 name them."""


def _mixed(view: View, layers: Sequence[tuple[CacheLayer, ...]], *, head_size: int, ssm: str = "auto") -> Geometry:
    """Build a hybrid model; one whose types name only attention counts as a plain decoder (config/model.py is_hybrid)."""
    types = layer_types(view) if view.model_type == "granitemoehybrid" else None
    return Geometry(
        view,
        tuple(layers),
        heads_of(view),
        kv_heads_of(view),
        head_size,
        hybrid=types is None or not set(types) <= _ATTENDING,
        ssm_dtype=ssm,
    )


def _by_type(types: Sequence[str], attention: Attention, state: State) -> list[tuple[CacheLayer, ...]]:
    layers: list[tuple[CacheLayer, ...]] = []
    for kind in types:
        if kind in _ATTENDING:
            layers.append((attention,))
        elif kind in _RECURRENT:
            layers.append((state,))
        else:
            raise Unsupported(f"layer type {kind!r} of a hybrid model is not known")
    return layers


def _attention(view: View, *, quotient: bool = False) -> Attention:
    size = head_size_of(view, quotient=quotient)
    return Attention(heads_of(view), kv_heads_of(view), size, window=model_window(view))


def jamba(view: View, shard: Shard, _trait: Trait) -> Geometry:
    """Jamba: attention every attn_layer_period layers, Mamba-1 elsewhere."""
    period, offset = view.positive("attn_layer_period"), view.whole_number("attn_layer_offset")
    count = view.whole_number("num_hidden_layers")
    types = ["attention" if layer % period == offset else "mamba" for layer in range(count)]
    width = _expanded(view)
    state = states.mamba1(
        width, view.whole_number("mamba_d_state"), view.whole_number("mamba_d_conv"), shard.tensor_parallel_size
    )
    attention = _attention(view, quotient=True)
    return _mixed(view, _by_type(types, attention, state), head_size=head_size_of(view))


def _mamba2_state(view: View, shard: Shard, width: int, fields: Sequence[str] = _MAMBA2_FIELDS) -> State:
    """Mamba-2 state of a rank. fields: the config's names in the order of `_MAMBA2_FIELDS`."""
    groups, heads, head_dim, state, kernel = (view.whole_number(name) for name in fields)
    ranks, speculative = shard.tensor_parallel_size, shard.num_speculative_tokens
    return states.mamba2(width, groups, heads, head_dim, state, kernel, ranks, speculative)


def _expanded(view: View, factor: str = "mamba_expand") -> int:
    """Width of a recurrent layer: a multiple of the hidden size."""
    return view.whole_number(factor) * view.whole_number("hidden_size")


def granite_hybrid(view: View, shard: Shard, _trait: Trait) -> Geometry:
    """Granite 4: attention or Mamba-2 by layer type."""
    types = view.words("layer_types") or view.words("layers_block_type")
    if types is None:
        raise Unsupported("a Granite hybrid needs layer_types to tell its attention layers")
    attention = _attention(view, quotient=True)
    if set(types) <= _ATTENDING:
        return _mixed(view, [(attention,) for _ in types], head_size=head_size_of(view))
    state = _mamba2_state(view, shard, _expanded(view))
    return _mixed(view, _by_type(types, attention, state), head_size=head_size_of(view))


def bamba(view: View, shard: Shard, _trait: Trait) -> Geometry:
    """Bamba: attention at attn_layer_indices, Mamba-2 elsewhere."""
    attending = set(view.numbers("attn_layer_indices") or ())
    count = view.whole_number("num_hidden_layers")
    types = ["attention" if layer in attending else "mamba" for layer in range(count)]
    state = _mamba2_state(view, shard, _expanded(view))
    return _mixed(view, _by_type(types, _attention(view, quotient=True), state), head_size=head_size_of(view))


def falcon_h1(view: View, shard: Shard, _trait: Trait) -> Geometry:
    """Falcon-H1: every layer has both attention and Mamba-2, the attention registered first."""
    width = view.maybe_number("mamba_d_ssm")
    if width is None:
        width = _expanded(view)
    state = _mamba2_state(view, shard, width)
    attention = _attention(view)
    return _mixed(view, [(attention, state)] * view.whole_number("num_hidden_layers"), head_size=head_size_of(view))


def nemotron_h(view: View, shard: Shard, _trait: Trait) -> Geometry:
    """Nemotron-H: a pattern of Mamba-2 (M), attention (*) and layers without cache (- and E).

    The ssm state follows mamba_ssm_cache_dtype, float32 by default (models/config.py NemotronHForCausalLMConfig, from
    0.13.0; before, the conv state's dtype).
    """
    pattern = view.get("hybrid_override_pattern")
    kinds = list(pattern) if isinstance(pattern, str) else list(view.words("layers_block_type") or ())
    if not kinds:
        raise Unsupported("Nemotron-H needs hybrid_override_pattern to tell its layers")
    width = view.whole_number("mamba_num_heads") * view.whole_number("mamba_head_dim")
    fields = ("n_groups", "mamba_num_heads", "mamba_head_dim", "ssm_state_size", "conv_kernel")
    state = _mamba2_state(view, shard, width, fields)
    attention = _attention(view)
    stated = view.maybe_number("attention_head_dim")
    if view.maybe_number("head_dim") is None and stated is not None:
        attention = attention._replace(head_size=stated)
    layers = [_nemotron_layer(kind, attention, state) for kind in kinds]
    stated_dtype = view.get("mamba_ssm_cache_dtype")
    ssm = stated_dtype if isinstance(stated_dtype, str) else "float32"
    geometry = _mixed(view, layers, head_size=head_size_of(view), ssm=ssm if shard.release >= (0, 13) else "auto")
    return geometry._replace(drafts=_nemotron_drafts(view, attention, state))


def _nemotron_layer(kind: str, attention: Attention, state: State) -> tuple[CacheLayer, ...]:
    if kind in {"*", "attention"}:
        return (attention,)
    if kind in {"M", "mamba"}:
        return (state,)
    if kind in {"-", "E", "mlp", "moe"}:
        return ()
    raise Unsupported(f"Nemotron-H layer kind {kind!r} is not known")


def _nemotron_drafts(view: View, attention: Attention, state: State) -> tuple[tuple[CacheLayer, ...], ...]:
    """Layers of the draft by mtp_hybrid_override_pattern (models/nemotron_h_mtp.py)."""
    pattern = view.get("mtp_hybrid_override_pattern")
    if not isinstance(pattern, str):
        return ()
    return tuple(_nemotron_layer(kind, attention, state) for kind in pattern)


def zamba2(view: View, shard: Shard, _trait: Trait) -> Geometry:
    """Zamba2: Mamba-2 in every layer, and shared attention blocks in the hybrid ones, registered block by block."""
    types = view.words("layers_block_type")
    if types is None:
        raise Unsupported("Zamba2 needs layers_block_type to tell its hybrid layers")
    heads = heads_of(view)
    fields = ("mamba_ngroups", "n_mamba_heads", "mamba_headdim", "mamba_d_state", "mamba_d_conv")
    state = _mamba2_state(view, shard, _expanded(view), fields)
    size = view.whole_number("attention_head_dim")
    attention = Attention(heads, heads, size, window=model_window(view))
    hybrids = sum(kind == "hybrid" for kind in types)
    first: tuple[CacheLayer, ...] = (*(attention for _ in range(hybrids)), state)
    layers = [first, *((state,) for _ in types[1:])]
    return _mixed(view, layers, head_size=size)._replace(pipelines=False)


def lfm2(view: View, shard: Shard, _trait: Trait) -> Geometry:
    """LFM2: attention or a short convolution by layer type (older configs list full_attn_idxs)."""
    types = view.words("layer_types")
    if types is None:
        attending = set(view.numbers("full_attn_idxs") or ())
        count = view.whole_number("num_hidden_layers")
        types = tuple("full_attention" if layer in attending or not attending else "conv" for layer in range(count))
    width = view.maybe_number("conv_dim") or view.whole_number("hidden_size")
    state = states.short_convolution(width, view.whole_number("conv_L_cache"), shard.tensor_parallel_size)
    return _mixed(view, _by_type(types, _attention(view, quotient=True), state), head_size=head_size_of(view))


def gated_delta(view: View, shard: Shard, _trait: Trait) -> Geometry:
    """Qwen3-Next, Qwen3.5 and OLMo hybrid: gated delta network, and full attention every few layers."""
    types = layer_types(view)
    if types is None:
        raise Unsupported("a delta-network hybrid needs layer_types to tell its attention layers")
    state = states.gated_delta(
        view.whole_number("linear_num_key_heads"),
        view.whole_number("linear_num_value_heads"),
        view.whole_number("linear_key_head_dim"),
        view.whole_number("linear_value_head_dim"),
        view.whole_number("linear_conv_kernel_dim"),
        shard.tensor_parallel_size,
        shard.num_speculative_tokens,
    )
    attention = _attention(view)
    is_qwen3_5 = view.model_type.startswith("qwen3_5")
    wanted = view.get("mamba_ssm_dtype")
    ssm = wanted if is_qwen3_5 and isinstance(wanted, str) else "auto"
    geometry = _mixed(view, _by_type(types, attention, state), head_size=head_size_of(view), ssm=ssm)
    name = "mtp_num_hidden_layers" if is_qwen3_5 else "num_nextn_predict_layers"
    drafts = view.maybe_number(name)
    return geometry._replace(drafts=((attention,),) * (1 if drafts is None else drafts))


def _recurrent_only(view: View, state: State) -> Geometry:
    layers = ((state,),) * view.whole_number("num_hidden_layers")
    return Geometry(view, layers, 0, 0, 0, attention_free=True)


def mamba(view: View, shard: Shard, _trait: Trait) -> Geometry:
    """Mamba and Falcon-Mamba: Mamba-1 in every layer."""
    width = view.maybe_number("intermediate_size")
    if width is None:
        width = _expanded(view, "expand")
    kernel = view.whole_number("conv_kernel")
    return _recurrent_only(
        view, states.mamba1(width, view.whole_number("state_size"), kernel, shard.tensor_parallel_size)
    )


def mamba2(view: View, shard: Shard, _trait: Trait) -> Geometry:
    """Mamba-2 in every layer."""
    fields = ("n_groups", "num_heads", "head_dim", "state_size", "conv_kernel")
    state = _mamba2_state(view, shard, _expanded(view, "expand"), fields)
    return _recurrent_only(view, state)._replace(pipelines=False)
