"""The numbers of a decoder that decide its memory, read from config.json once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.planner.errors import Unsupported
from reconstruct.planner.models.view import architecture_of, view_of
from reconstruct.planner.models.wrappers import inner_architecture
from reconstruct.planner.pages import round_up
from reconstruct.predict.traits import STATED, trait_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconstruct.planner.models.view import View
    from reconstruct.predict.traits import Trait

_KEY_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num")
_EXPERT_COUNTS = ("num_local_experts", "num_experts", "n_routed_experts")


class Shape(NamedTuple):
    """A decoder's sizes. `vocabulary` is padded to 64, as the embedding's rows are; `experts` is 0 for a dense model."""

    architecture: str
    view: View
    trait: Trait
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    vocabulary: int
    positions: int
    tied: bool
    experts: int
    experts_per_token: int
    expert_intermediate: int
    multimodal: bool

    @property
    def gated(self) -> bool:
        """Whether feed-forward layers have a gate."""
        return self.trait.gated


def _first(view: View, names: tuple[str, ...]) -> int | None:
    for name in names:
        if (value := view.maybe_number(name)) is not None:
            return value
    return None


def shape_of(config: Mapping[str, object]) -> Shape:
    """Read the sizes. Raises Unsupported for a class whose tensors are not known, or a config that lacks a size.

    Source: vLLM 0.33.0 model_executor/layers/vocab_parallel_embedding.py (padding to 64), the model classes' own
    reading of each field.
    """
    view = view_of(config)
    architecture = architecture_of(config)
    if architecture is None:
        raise Unsupported("the config names no architecture; its model class decides which tensors a rank holds")
    inner = inner_architecture(architecture, view)
    trait = trait_of(inner)
    hidden, heads = view.whole_number("hidden_size"), view.whole_number("num_attention_heads")
    experts = (_first(view, _EXPERT_COUNTS) or 0) if trait.experts else 0
    return Shape(
        architecture=inner,
        view=view,
        trait=trait,
        hidden=hidden,
        intermediate=_intermediate(view, trait, hidden),
        layers=view.whole_number("num_hidden_layers"),
        heads=heads,
        kv_heads=_first(view, _KEY_HEADS) or heads,
        head_size=view.maybe_number("head_dim") or hidden // heads,
        vocabulary=round_up(view.whole_number("vocab_size"), 64),
        positions=view.maybe_number("max_position_embeddings") or 2048,
        tied=_tied(view, trait),
        experts=experts,
        experts_per_token=_first(view, ("num_experts_per_tok", "experts_per_token")) or 0,
        expert_intermediate=_expert_intermediate(view, trait),
        multimodal=is_multimodal(config),
    )


def is_multimodal(config: Mapping[str, object]) -> bool:
    """Whether the model takes images or sound besides text."""
    return any(config.get(name) is not None for name in ("vision_config", "audio_config"))


def _intermediate(view: View, trait: Trait, hidden: int) -> int:
    names = ("intermediate_size_mlp", "intermediate_size", "ffn_dim", "n_inner")
    value = _first(view, names)
    if value is not None:
        return value
    if trait.experts and (inner := _expert_intermediate(view, trait)):
        return inner  # no layer is dense
    if trait.positions is not None:
        return 4 * hidden  # GPT-2's class default: n_inner is null
    raise Unsupported("the config states no intermediate_size; the feed-forward weights need it")


def _expert_intermediate(view: View, trait: Trait) -> int:
    if not trait.experts:
        return 0
    own = view.maybe_number("moe_intermediate_size") if trait.experts in {"qwen", "deepseek"} else None
    return own or view.maybe_number("intermediate_size") or 0


def _tied(view: View, trait: Trait) -> bool:
    """Whether the output layer reuses the embedding; the outer config's word counts where the text part has none."""
    if view.has("tie_word_embeddings"):
        return view.flag("tie_word_embeddings")
    outer = view.whole.get("tie_word_embeddings")
    return bool(outer) if outer is not None and view.nested else trait.tied


def has_bias(shape: Shape, where: str) -> bool:
    """Whether the query/key/value (`qkv`), output (`out`) or feed-forward (`mlp`) layers have biases."""
    rule = {"qkv": shape.trait.qkv_bias, "out": shape.trait.out_bias, "mlp": shape.trait.mlp_bias}[where]
    if rule != STATED:
        return rule == "yes"
    names = ("mlp_bias",) if where == "mlp" else ("attention_bias", "bias", "use_qkv_bias", "use_bias")
    return any(shape.view.flag(name) for name in names)
