"""The longest request a model takes: stated, or derived from the config and its rope scaling by release."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconstruct.planner.errors import WouldNotStart
from reconstruct.planner.launch import AUTO_FIT

if TYPE_CHECKING:
    from reconstruct.planner.launch import Launch
    from reconstruct.planner.models.layers import Geometry
    from reconstruct.planner.models.view import View

_KEYS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "model_max_length",
    "max_target_positions",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)
DEFAULT_LENGTH = 2048


def max_model_len(geometry: Geometry, launch: Launch, release: tuple[int, ...]) -> int:
    """max_model_len before any fitting to memory.

    Source: vllm 0.32.0 config/model.py _get_and_verify_max_len and model_arch_config_convertor.py
    derive_max_model_len_and_key; rope rules of older releases from the same function. Raises WouldNotStart where the
    user asks for more than the model supports.
    """
    view = geometry.view
    derived, stated = _derived(view, release)
    asked = launch.max_model_len
    if asked is None or asked == AUTO_FIT:
        return _default(view, derived, release)
    if stated and asked > derived and not launch.allow_long_max_model_len:
        longest = view.whole.get("model_max_length")
        if not isinstance(longest, int) or asked > longest:
            raise WouldNotStart(
                f"max_model_len {asked} is more than the model's {int(derived)}; "
                "ask for less, or set VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 at your own risk"
            )
    return asked


def _derived(view: View, release: tuple[int, ...]) -> tuple[float, bool]:
    """Limit of the model itself, and whether the config states one."""
    stated = [length for key in _KEYS if (length := view.maybe_number(key)) is not None]
    if (longest := view.maybe_number("model_max_length")) is not None and release >= (0, 3):
        limit: float = longest
    elif stated:
        limit = min(stated)
    else:
        return DEFAULT_LENGTH, False
    return _scaled(view, limit, release), True


def rope_settings(view: View) -> tuple[dict[str, object], ...]:
    """Rope parameters, one set per layer type where the config has several."""
    for key in ("rope_parameters", "rope_scaling"):
        value = view.get(key)
        if isinstance(value, dict) and value:
            nested = [part for part in value.values() if isinstance(part, dict)]
            return tuple(nested) if nested and len(nested) == len(value) else (value,)
    return ()


def _kind(rope: dict[str, object]) -> str:
    kind = rope.get("rope_type", rope.get("type", "default"))
    return str(kind)


def _unscaled(release: tuple[int, ...]) -> frozenset[str]:
    """Rope kinds whose factor the release does not apply to max_position_embeddings."""
    if release < (0, 4):
        return frozenset()
    if release < (0, 5, 4):
        return frozenset({"su"})
    if release < (0, 30):
        return frozenset({"su", "longrope", "llama3"})
    return frozenset({"su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling"})


def _scaled(view: View, limit: float, release: tuple[int, ...]) -> float:
    if release >= (0, 8) and "gemma3" in str(view.whole.get("model_type")):
        return limit
    factor = 1.0
    for rope in rope_settings(view):
        if _kind(rope) in _unscaled(release) or (_kind(rope) == "mrope" and release < (0, 6, 4)):
            continue
        given = rope.get("factor", factor)
        factor = float(given) if isinstance(given, int | float) else 1.0
        original = rope.get("original_max_position_embeddings")
        if _kind(rope) == "yarn" and isinstance(original, int):
            limit = original
    return limit * factor


def _default(view: View, derived: float, release: tuple[int, ...]) -> int:
    """Length of the model itself; LongRoPE models default to the length before scaling (0.12.0 on)."""
    original = view.whole.get("original_max_position_embeddings")
    if (
        release >= (0, 12)
        and isinstance(original, int)
        and any(_kind(rope) == "longrope" for rope in rope_settings(view))
    ):
        return original
    return int(derived)
