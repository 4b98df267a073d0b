"""The cached cosines and sines of rotary embeddings, which vLLM counts with the weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconstruct.planner.errors import Unsupported
from reconstruct.planner.models.view import as_mapping
from reconstruct.planner.models.windows import FULL, SLIDING, layer_types
from reconstruct.predict.allocation import Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconstruct.predict.shape import Shape

_WIDE = 4
"""Bytes of float32, in which every cache is computed."""
_WITHOUT = frozenset("OPTForCausalLM GPT2LMHeadModel GPTBigCodeForCausalLM BloomForCausalLM MPTForCausalLM".split())

_SHARES = ("partial_rotary_factor", "rotary_pct", "rotary_emb_fraction")
_PROJECTIONS_BEFORE = {"GptOssForCausalLM": 0, "OlmoForCausalLM": 1, "Olmo2ForCausalLM": 1, "Olmo3ForCausalLM": 1}
"""How many projections of the attention are made before the cache, where not all are (0.21.0 models/gpt_oss.py, olmo2.py)."""


def made_before(shape: Shape, parts: int) -> int:
    """Give how many of the `parts` of the first attention layer are there when the cache is made."""
    return _PROJECTIONS_BEFORE.get(shape.architecture, parts)


def has_own_cache(shape: Shape, layer: int) -> bool:
    """Whether a layer with a window rotates by a base, and so a cache, of its own (0.8.5 and 0.32.0 models/gemma3.py)."""
    if not shape.architecture.startswith("Gemma3"):
        return False
    types = layer_types(shape.view)
    return types is not None and types[layer] == SLIDING


def cache_of(shape: Shape, width: int, *, windowed: bool = False) -> tuple[Tensor, ...]:
    """Give a layer's cache with what it is made from: positions times rotated dimensions, in the model's dtype.

    windowed: of a layer that has its own, of the default type whatever the config scales. Nothing where none rotates.
    Positions are the config's, not --max-model-len's. Source: 0.8.5, 0.21.0 and 0.33.0 model_executor/layers/
    rotary_embedding (get_rope and the class of each rope type); layers that share parameters share one cache. The steps
    are also live_probe/parameters.py's (`_rope`): tests/live_probe/test_agreement.py holds the two equal.
    """
    if shape.architecture in _WITHOUT:
        return ()
    head = shape.head_size
    if shape.trait.mixer == "latent":
        head = shape.view.whole_number("qk_rope_head_dim")
    parameters = _parameters(shape, windowed=windowed)
    rotated = int(head * _share(shape, parameters))
    kind = str(parameters.get("rope_type") or parameters.get("type") or "default")
    if shape.trait.mixer == "latent" and kind in {"yarn", "deepseek_yarn"}:
        width = _WIDE
    rows = _positions(shape, parameters, kind)
    if kind in {"longrope", "su"}:
        return (_long_and_short(shape.positions, rows - shape.positions, rotated, width),)
    return (_served(_made(rows, rotated, kind), width),)


def _share(shape: Shape, parameters: Mapping[str, object]) -> float:
    """Give the part of a head that rotates: the config's own field outranks its rope parameters.

    Source: 0.19.0 transformers_utils/config.py patch_rope_parameters. Raises Unsupported for what is no share.
    """
    stated = (*map(shape.view.get, _SHARES), parameters.get("partial_rotary_factor"))
    share = next((value for value in stated if value is not None), 1.0)
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise Unsupported(f"partial_rotary_factor is {share!r}, not a share of a head")
    return float(share)


def _made(rows: int, rotated: int, kind: str) -> Tensor:
    """Give cosines and sines of `rows` positions in float32 (`_compute_cos_sin_cache`)."""
    positions, half = Tensor(rows * _WIDE), Tensor(rows * (rotated // 2) * _WIDE)
    both = 2 * half.nbytes
    if kind in {"yarn", "deepseek_yarn", "longrope", "su"}:  # both halves are scaled, each into a tensor of its own
        scaled = half._replace(made_from=(half,))
        return Tensor(both, (positions, half, scaled, scaled))
    if kind == "linear":  # one cache for each factor, joined once more
        divided = positions._replace(made_from=(positions,))
        return Tensor(both, (divided, half, half, half, Tensor(both)))
    return Tensor(both, (positions, half, half, half))


def _served(made: Tensor, width: int) -> Tensor:
    """Give the cache in the dtype that is served: a copy, unless that is float32."""
    return made if width == _WIDE else Tensor(made.nbytes * width // _WIDE, (made,))


def _long_and_short(long: int, short: int, rotated: int, width: int) -> Tensor:
    """Both caches one after the other (Phi3LongRoPEScaledRotaryEmbedding)."""
    parts = tuple(_served(_made(rows, rotated, "longrope"), width) for rows in (short, long))
    return Tensor(sum(part.nbytes for part in parts), parts)


def _parameters(shape: Shape, *, windowed: bool) -> Mapping[str, object]:
    found = shape.view.get("rope_parameters") or shape.view.get("rope_scaling") or {}
    parameters = as_mapping(found, "rope_scaling")
    inner = parameters.get(SLIDING if windowed else FULL)
    if isinstance(inner, dict):
        return as_mapping(inner, "rope_parameters")
    return {} if windowed else parameters


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
