"""Which layers look back only so far: the layer types that a configuration class derives, and their windows.

Source: the `__post_init__` of each configuration class in transformers 5.19 (derived layer types), vLLM 0.32.0
engine/arg_utils.py create_engine_config (a window for the whole model).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconstruct.planner.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable

    from reconstruct.planner.models.view import View

SLIDING = "sliding_attention"
CHUNKED = "chunked_attention"
FULL = "full_attention"

_GATED = frozenset({"qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "smollm3", "qwen2_5_vl_text", "qwen2_vl_text"})
"""Types whose class forgets sliding_window unless use_sliding_window is set."""


def layer_types(view: View) -> tuple[str, ...] | None:
    """Kind of each decoder layer, as stated or as the configuration class derives it; None where neither exists."""
    stated = view.words("layer_types")
    if stated is not None:
        return _with_last_full(view, stated)
    derive = _DERIVED.get(view.model_type)
    if derive is None:
        return None
    return derive(view, view.whole_number("num_hidden_layers"))


def window_size(view: View) -> int | None:
    """Sliding window of the config; None where there is none, where it is 0, or where the class switches it off."""
    if view.model_type in _GATED and not view.flag("use_sliding_window"):
        return None
    value = view.get("sliding_window")
    if isinstance(value, list | tuple):
        return _single_window(value)
    window = view.maybe_number("sliding_window")
    both_ways = view.get("use_bidirectional_attention")
    if window is not None and view.model_type.startswith("gemma") and (both_ways is True or both_ways == "all"):
        return window // 2 + 1
    return window or None


def model_window(view: View) -> int | None:
    """Window that applies to every layer whose class names none: only if no layer is of another type."""
    types = layer_types(view)
    if types is None and not isinstance(view.get("sliding_window"), list | tuple):
        return window_size(view)
    if types is not None and all(kind == SLIDING for kind in types):
        return window_size(view)
    return None


def _single_window(values: list[object] | tuple[object, ...]) -> int | None:
    sizes = {value for value in values if isinstance(value, int)}
    if len(sizes) > 1:
        raise Unsupported(f"sliding_window lists several sizes {sorted(sizes)}; only one size per model is known")
    return next(iter(sizes), None)


def _with_last_full(view: View, types: tuple[str, ...]) -> tuple[str, ...]:
    if view.model_type in {"gemma4_text", "gemma4_unified_text"} and types:
        return (*types[:-1], FULL)
    if view.model_type == "step3p5":
        return types[: view.whole_number("num_hidden_layers")]
    return types


def _every(period: int, count: int, kind: str = SLIDING) -> tuple[str, ...]:
    if period == 0:
        return (FULL,) * count
    return tuple(kind if (layer + 1) % period else FULL for layer in range(count))


def _alternating(_view: View, count: int) -> tuple[str, ...]:
    return _every(2, count)


def _fifth(_view: View, count: int) -> tuple[str, ...]:
    return _every(5, count)


def _fourth(_view: View, count: int) -> tuple[str, ...]:
    return _every(4, count)


def _gemma3(view: View, count: int) -> tuple[str, ...]:
    return _every(view.maybe_number("sliding_window_pattern") or 6, count)


def _gemma4(_view: View, count: int) -> tuple[str, ...]:
    return (*_every(6, count)[:-1], FULL)


def _cohere2(view: View, count: int) -> tuple[str, ...]:
    return _every(view.maybe_number("sliding_window_pattern") or 4, count)


def _exaone4(view: View, count: int) -> tuple[str, ...]:
    if window_size(view) is None:
        return (FULL,) * count
    pattern = view.get("sliding_window_pattern")
    if isinstance(pattern, str):
        return tuple(
            SLIDING if pattern[layer % len(pattern)] == "L" and layer != count - 1 else FULL for layer in range(count)
        )
    return _every(view.maybe_number("sliding_window_pattern") or 4, count)


def _listed_windows(view: View, count: int) -> tuple[str, ...] | None:
    """Layer types of a list of windows (Mistral's own format), repeated over the layers: None entries see everything."""
    value = view.get("sliding_window")
    if not isinstance(value, list | tuple):
        return None
    return tuple(FULL if value[layer % len(value)] is None else SLIDING for layer in range(count))


def _from_max_window_layers(view: View, count: int) -> tuple[str, ...]:
    window = window_size(view)
    first = view.maybe_number("max_window_layers") or 0
    return tuple(SLIDING if window is not None and layer >= first else FULL for layer in range(count))


def _ministral(view: View, count: int) -> tuple[str, ...]:
    return ((FULL if window_size(view) is None else SLIDING),) * count


def _llama4(view: View, count: int) -> tuple[str, ...]:
    return tuple(CHUNKED if rotary else FULL for rotary in no_rope_layers(view, count))


def no_rope_layers(view: View, count: int) -> tuple[int, ...]:
    """1 for each layer with rotary embedding, 0 without: as stated (an empty list counts as unstated), or by interval."""
    stated = view.numbers("no_rope_layers")
    if stated:
        return stated
    interval = view.maybe_number("no_rope_layer_interval") or 4
    return tuple(int((layer + 1) % interval != 0) for layer in range(count))


def _smollm3(view: View, count: int) -> tuple[str, ...]:
    window = window_size(view)
    rotary = no_rope_layers(view, count)
    return tuple(SLIDING if window is not None and not rotary[layer] else FULL for layer in range(count))


def _linear(view: View, count: int) -> tuple[str, ...]:
    return _every(view.maybe_number("full_attention_interval") or 4, count, "linear_attention")


def _afmoe(view: View, count: int) -> tuple[str, ...]:
    return _every(view.maybe_number("global_attn_every_n_layers") or 4, count)


_DERIVED: dict[str, Callable[[View, int], tuple[str, ...] | None]] = {
    "afmoe": _afmoe,
    "cohere2": _cohere2,
    "cohere2_moe": _cohere2,
    "exaone4": _exaone4,
    "exaone_moe": _exaone4,
    "gemma2": _alternating,
    "gemma3_text": _gemma3,
    "gemma3n_text": _fifth,
    "gemma4_text": _gemma4,
    "gemma4_unified_text": _gemma4,
    "gpt_oss": _alternating,
    "llama4_text": _llama4,
    "ministral": _ministral,
    "mistral": _listed_windows,
    "olmo3": _fourth,
    "qwen2": _from_max_window_layers,
    "qwen2_5_vl_text": _from_max_window_layers,
    "qwen2_moe": _from_max_window_layers,
    "qwen2_vl_text": _from_max_window_layers,
    "qwen3": _from_max_window_layers,
    "qwen3_5_moe_text": _linear,
    "qwen3_5_text": _linear,
    "qwen3_next": _linear,
    "smollm3": _smollm3,
    "vaultgemma": _alternating,
}
