"""The cos/sin caches of rotary embeddings as a config.json asks for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from live_probe.families import Family
    from live_probe.shape import JsonObject

_KINDS = ("default", "llama3", "linear", "dynamic", "yarn", "longrope")
_WINDOWED, _WHOLE = "sliding_attention", "full_attention"


class UnknownRopeError(ValueError):
    """Rope parameters that are not written out."""


class RopeShape(NamedTuple):
    """One cache: `rows` positions of `width` numbers; `kind` says how it is made.

    `short_rows`: positions of the second table of longrope, which stands before the first.
    """

    kind: str
    rows: int
    width: int
    short_rows: int = 0


class Ropes(NamedTuple):
    """Every cache of a model, and for each layer the place of its own among them."""

    caches: tuple[RopeShape, ...]
    of_layer: tuple[int, ...]


class _Rotated(NamedTuple):
    """Positions and head size of a model."""

    positions: int
    head_dim: int


def ropes_of(config: JsonObject, family: Family, layers: int, positions: int, head_dim: int) -> Ropes:
    """Read the rope parameters of every layer; layers of equal parameters share a cache (get_rope).

    vLLM 0.8-0.33, vllm/model_executor/layers/rotary_embedding; models/gemma3.py: a layer with a window takes the
    default type whatever the config scales.

    Raises:
        UnknownRopeError: the type is not written out, or a field is no number.

    """
    rotated = _Rotated(positions, head_dim)
    if not family.windows_rotate_apart:
        return Ropes((_cache(config, _parameters(config, _WHOLE), rotated),), (0,) * layers)
    found: dict[str, RopeShape] = {}
    kinds = _layer_kinds(config, layers)
    for kind in kinds:
        if kind not in found:
            found[kind] = _cache(config, _parameters(config, kind), rotated)
    places = list(found)
    return Ropes(tuple(found.values()), tuple(places.index(kind) for kind in kinds))


def _layer_kinds(config: JsonObject, layers: int) -> tuple[str, ...]:
    """Give each layer's type: as stated, else every sixth sees everything (transformers, Gemma3TextConfig)."""
    types = config.get("layer_types")
    if isinstance(types, Sequence) and not isinstance(types, str):
        if len(types) < layers:
            raise UnknownRopeError(f"layer_types lists {len(types)} of {layers} layers")
        return tuple(_WINDOWED if kind == _WINDOWED else _WHOLE for kind in types[:layers])
    period = config.get("sliding_window_pattern") or 6
    if not isinstance(period, int):
        raise UnknownRopeError("sliding_window_pattern is no whole number")
    return tuple(_WHOLE if (layer + 1) % period == 0 else _WINDOWED for layer in range(layers))


def _parameters(config: JsonObject, layer_kind: str) -> JsonObject:
    """Give the rope parameters of one type of layer; a flat object is that of layers that see everything."""
    found = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(found, Mapping):
        raise UnknownRopeError("rope_scaling is no object")
    own = found.get(layer_kind)
    if isinstance(own, Mapping):
        return own
    return found if layer_kind == _WHOLE else {}


def _cache(config: JsonObject, parameters: JsonObject, rotated: _Rotated) -> RopeShape:
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    kind = "longrope" if kind == "su" else kind
    if not isinstance(kind, str) or kind not in _KINDS:
        raise UnknownRopeError(f"rope type {kind!r} is not among {', '.join(_KINDS)}")
    width = _width(config, parameters, rotated.head_dim)
    rows, short = _rows(config, parameters, kind, rotated.positions)
    return RopeShape(kind, rows, width, short)


def _rows(config: JsonObject, parameters: JsonObject, kind: str, positions: int) -> tuple[int, int]:
    """Positions of the cache, and of longrope's table for short requests."""
    factor = parameters.get("factor", 1.0)
    if not isinstance(factor, int | float):
        raise UnknownRopeError("rope_scaling.factor is no number")
    original = parameters.get("original_max_position_embeddings")
    base = original if isinstance(original, int) else positions
    if kind == "longrope":
        stated = config.get("original_max_position_embeddings")
        return positions, stated if isinstance(stated, int) else base
    if kind == "yarn":
        return int(base * factor), 0
    return (int(positions * factor) if kind in ("linear", "dynamic") else positions), 0


def _width(config: JsonObject, parameters: JsonObject, head_dim: int) -> int:
    """Give the rotated part of a head (get_rope, partial_rotary_factor)."""
    factor = config.get("partial_rotary_factor")
    if factor is None:
        factor = parameters.get("partial_rotary_factor")
    if factor is None:
        return head_dim
    if not isinstance(factor, int | float) or not 0 < factor <= 1:
        raise UnknownRopeError(f"partial_rotary_factor is {factor!r}, not a share of a head")
    return int(head_dim * factor)
