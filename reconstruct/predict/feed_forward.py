"""The tensors of a feed-forward layer: dense, or experts with their router and shared expert."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconstruct.planner.pages import cdiv
from reconstruct.predict.parts import Experts, Linear, Plain
from reconstruct.predict.shape import has_bias

if TYPE_CHECKING:
    from reconstruct.predict.parts import Layer, Split
    from reconstruct.predict.shape import Shape

MLP, EXPERTS = "feed-forward", "experts"


def dense_layer(shape: Shape, split: Split, intermediate: int, prefix: str = "mlp") -> Layer:
    """Gate and up in one matrix (0.19.1 models/llama.py LlamaMLP), or up alone, and down."""
    width, bias = split.of(intermediate), has_bias(shape, "mlp")
    gated = shape.gated
    names = (f"{prefix}.gate_proj", f"{prefix}.up_proj") if gated else (f"{prefix}.up_proj",)
    return (
        Linear(MLP, names, (2 if gated else 1) * width, shape.hidden, bias=bias),
        Linear(MLP, (f"{prefix}.down_proj",), shape.hidden, width, bias=bias),
    )


def has_experts(shape: Shape, layer: int) -> bool:
    """Whether a layer has experts instead of one dense network, by the rule of its model class."""
    view, rule = shape.view, shape.trait.experts
    if not shape.experts:
        return False
    if rule == "qwen":
        step = view.maybe_number("decoder_sparse_step") or 1
        return layer not in (view.numbers("mlp_only_layers") or ()) and (layer + 1) % step == 0
    if rule == "deepseek":
        first, every = view.maybe_number("first_k_dense_replace") or 0, view.maybe_number("moe_layer_freq") or 1
        return layer >= first and layer % every == 0
    if rule == "llama4":
        step = view.maybe_number("interleave_moe_layer_step") or 1
        return (layer + 1) % step == 0
    return True


def expert_layer(shape: Shape, split: Split) -> Layer:
    """Router, shared expert and experts of one layer on a rank, in the order in which they are made.

    Source: 0.19.1 layers/fused_moe/layer.py (expert parallel: whole experts on each rank) and the model classes.
    """
    view, rule, bias = shape.view, shape.trait.experts, shape.trait.experts == "gpt_oss"
    whole = split.expert > 1
    width = shape.expert_intermediate if whole else split.of(shape.expert_intermediate)
    count = cdiv(shape.experts, split.expert)
    prefix = "block_sparse_moe" if rule == "mixtral" else "feed_forward" if rule == "llama4" else "mlp"
    gate = Linear(
        EXPERTS, (f"{prefix}.gate", f"{prefix}.router"), shape.experts, shape.hidden, bias=bias, quantised=False
    )
    parts: Layer = (gate,)
    if rule == "deepseek" and (view.get("topk_method") == "noaux_tc" or shape.architecture.startswith("Glm4")):
        parts += (Plain(EXPERTS, shape.experts, 4),)
    shared = shared_intermediate(shape)
    if shared:
        name = "shared_experts" if rule == "deepseek" else "shared_expert"
        if rule == "qwen":
            parts += (Plain(EXPERTS, shape.hidden),)  # the shared expert's own gate
        parts += dense_layer(shape, split, shared, f"{prefix}.{name}")
    return (*parts, Experts(EXPERTS, (f"{prefix}.experts",), count, shape.hidden, width, bias=bias))


def shared_intermediate(shape: Shape) -> int:
    """Give the width of the expert that every token takes; 0 where there is none."""
    if shape.trait.experts == "deepseek":
        return (shape.view.maybe_number("n_shared_experts") or 0) * shape.expert_intermediate
    if shape.trait.experts == "llama4":
        return shape.expert_intermediate
    if shape.trait.experts == "qwen":
        return shape.view.maybe_number("shared_expert_intermediate_size") or 0
    return 0


def feed_forward_layer(shape: Shape, split: Split, layer: int) -> Layer:
    """Give the feed-forward tensors of one layer of a rank."""
    if has_experts(shape, layer):
        return expert_layer(shape, split)
    return dense_layer(shape, split, shape.intermediate)
