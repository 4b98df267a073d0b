"""The cached cosines and sines of rotary embeddings, which vLLM counts with the weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconstruct.planner.models.view import as_mapping

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconstruct.predict.shape import Shape

_WITHOUT = frozenset("OPTForCausalLM GPT2LMHeadModel GPTBigCodeForCausalLM BloomForCausalLM MPTForCausalLM".split())


def cache_sizes(shape: Shape, width: int) -> tuple[int, ...]:
    """Bytes of each cache: positions times rotated dimensions, in the model's dtype (float32 for DeepSeek's YaRN).

    Positions are the config's, not --max-model-len's. Source: 0.19.1 model_executor/layers/rotary_embedding
    (get_rope and the class of each rope type); layers that share parameters share one cache.
    """
    if shape.architecture in _WITHOUT:
        return ()
    head = shape.head_size
    if shape.trait.mixer == "latent":
        head = shape.view.whole_number("qk_rope_head_dim")
    parameters = _parameters(shape)
    share = parameters.get("partial_rotary_factor") or shape.view.get("partial_rotary_factor") or 1.0
    rotated = int(head * float(share)) if isinstance(share, int | float) else head
    kind = str(parameters.get("rope_type") or parameters.get("type") or "default")
    if shape.trait.mixer == "latent" and kind in {"yarn", "deepseek_yarn"}:
        width = 4
    main = _positions(shape, parameters, kind) * rotated * width
    if shape.architecture.startswith("Gemma3"):
        return main, shape.positions * rotated * width  # sliding layers have a base, and so a cache, of their own
    return (main,)


def _parameters(shape: Shape) -> Mapping[str, object]:
    found = shape.view.get("rope_parameters") or shape.view.get("rope_scaling") or {}
    parameters = as_mapping(found, "rope_scaling")
    inner = parameters.get("full_attention")
    return as_mapping(inner, "rope_parameters") if isinstance(inner, dict) else parameters


def _positions(shape: Shape, parameters: Mapping[str, object], kind: str) -> int:
    factor = parameters.get("factor")
    times = float(factor) if isinstance(factor, int | float) else 1.0
    original = parameters.get("original_max_position_embeddings")
    base = original if isinstance(original, int) else shape.positions
    if "mrope_section" in parameters and kind in {"default", "mrope"}:
        return shape.positions * 4
    if kind in {"yarn", "deepseek_yarn"}:
        return int(base * times)
    if kind in {"linear", "dynamic"}:
        return int(shape.positions * times)
    if kind in {"longrope", "su"}:
        stated = shape.view.maybe_number("original_max_position_embeddings")
        return shape.positions + (stated or base)
    return shape.positions
