"""The weights of a vision tower and its projector, where the config gives their shapes.

Sources, vLLM 0.19.1 model_executor/models: siglip.py, clip.py, pixtral.py and mistral3.py, mllama4.py, moonvit.py,
qwen2_5_vl.py, qwen2_vl.py, qwen3_vl.py, gemma3_mm.py, llava_next.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.planner.models.view import as_mapping

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from reconstruct.predict.shape import Shape


class Tower(NamedTuple):
    """Elements of each tensor of the tower; `known` is False where the shapes are a guess from common fields."""

    tensors: tuple[int, ...]
    known: bool


class _Sizes(NamedTuple):
    hidden: int
    intermediate: int
    layers: int
    patch: int
    channels: int


def _number(config: Mapping[str, object], *names: str, absent: int = 0) -> int:
    for name in names:
        value = config.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return absent


def _sizes(config: Mapping[str, object]) -> _Sizes:
    hidden = _number(config, "embed_dim", "hidden_size", "width", absent=1024)  # qwen2_vl's hidden_size is the text's
    ratio = _number(config, "mlp_ratio", absent=4)
    intermediate = _number(config, "intermediate_size", absent=hidden * ratio)
    layers = _number(config, "num_hidden_layers", "depth", "layers", absent=24)
    return _Sizes(hidden, intermediate, layers, _number(config, "patch_size", absent=14), 3)


def _encoder(s: _Sizes, *, bias: bool = True, gated: bool = False, norm_bias: bool = True, cut: int = 1) -> list[int]:
    """Layers of a plain vision transformer: attention, two or three projections, two norms."""
    h, i = s.hidden, s.intermediate
    matrices = [3 * h * h, h * h, (2 if gated else 1) * i * h, i * h]
    vectors = [3 * h, h, (2 if gated else 1) * i, h] if bias else []
    norms = [h, h] * (2 if norm_bias else 1)
    return ([-(-m // cut) for m in matrices] + vectors + norms) * s.layers


def _siglip(config: Mapping[str, object], cut: int) -> list[int]:
    s = _sizes(config)
    side = _number(config, "image_size", absent=384) // s.patch
    embed = [s.hidden * s.channels * s.patch**2, s.hidden, side * side * s.hidden, s.hidden, s.hidden]
    return embed + _encoder(s, cut=cut)


def _gemma3(config: Mapping[str, object], shape: Shape, cut: int) -> list[int]:
    s = _sizes(config)
    return [*_siglip(config, cut), s.hidden * shape.hidden, s.hidden]


def _llava(config: Mapping[str, object], shape: Shape, cut: int) -> list[int]:
    s = _sizes(config)
    chosen = shape.view.whole.get("vision_feature_layer")
    width = s.hidden * (len(chosen) if isinstance(chosen, list | tuple) else 1)
    h = shape.hidden
    return [*_siglip(config, cut), width * h, h, h * h, h, h]


def _pixtral(config: Mapping[str, object], shape: Shape, cut: int) -> list[int]:
    s, h = _sizes(config), shape.hidden
    merge = _number(shape.view.whole, "spatial_merge_size", absent=2) ** 2
    tower = [s.hidden * s.channels * s.patch**2, s.hidden]
    tower += _encoder(s, bias=False, gated=True, norm_bias=False, cut=cut)
    return [*tower, s.hidden, merge * s.hidden * s.hidden, s.hidden * h, h * h]


def _llama4(config: Mapping[str, object], shape: Shape, cut: int) -> list[int]:
    s = _sizes(config)
    side = _number(config, "image_size", absent=336) // s.patch
    inner = _number(config, "projector_input_dim", absent=4096)
    outer = _number(config, "projector_output_dim", absent=4096)
    tower = [s.hidden * s.channels * s.patch**2, s.hidden, (side * side + 1) * s.hidden]
    tower += _encoder(s, cut=cut)
    return [*tower, s.intermediate * inner // cut, inner * outer // cut, outer * shape.hidden // cut]


def _moon(config: Mapping[str, object], shape: Shape, cut: int) -> list[int]:
    s, h = _sizes(config), shape.hidden
    wide = 4 * s.hidden
    table = _number(config, "init_pos_emb_height", absent=64) * _number(config, "init_pos_emb_width", absent=64)
    tower = [s.hidden * s.channels * s.patch**2, s.hidden, table * s.hidden]
    tower += _encoder(s, cut=cut)
    heads = _number(config, "num_attention_heads", absent=16)
    turns = 512 * 512 * (s.hidden // heads // 2) * 4  # a complex64 table of positions, counted in two-byte elements
    return [*tower, turns, wide * wide, wide, wide * h, h]


def _qwen(config: Mapping[str, object], shape: Shape, cut: int) -> list[int]:
    s = _sizes(config)
    kind = str(config.get("model_type", ""))
    out = _number(config, "out_hidden_size", absent=shape.hidden)
    wide = s.hidden * _number(config, "spatial_merge_size", absent=2) ** 2
    gated = "2_5" in kind
    patches = _number(config, "temporal_patch_size", absent=2) * s.channels * s.patch**2
    tower = [s.hidden * patches, s.hidden]
    tower += _encoder(s, gated=gated, norm_bias=not gated, cut=cut)
    merger = [wide * wide // cut, wide, wide * out // cut, out, s.hidden]
    deep = config.get("deepstack_visual_indexes")
    mergers = 1 + (len(deep) if isinstance(deep, list | tuple) else 0)
    tower += [_number(config, "num_position_embeddings") * s.hidden]
    return tower + merger * mergers


_KINDS: tuple[tuple[str, Callable[[Mapping[str, object], Shape, int], list[int]]], ...] = (
    ("Gemma3ForConditionalGeneration", _gemma3),
    ("LlavaNextForConditionalGeneration", _llava),
    ("LlavaForConditionalGeneration", _llava),
    ("Mistral3ForConditionalGeneration", _pixtral),
    ("Llama4ForConditionalGeneration", _llama4),
    ("KimiVLForConditionalGeneration", _moon),
    ("Qwen2VLForConditionalGeneration", _qwen),
    ("Qwen2_5_VLForConditionalGeneration", _qwen),
    ("Qwen3VLForConditionalGeneration", _qwen),
    ("Qwen3VLMoeForConditionalGeneration", _qwen),
    ("Qwen3_5ForConditionalGeneration", _qwen),
    ("Qwen3_5MoeForConditionalGeneration", _qwen),
)


def tower_of(shape: Shape, architecture: str, cut: int) -> Tower:
    """Give the tower of a multimodal model, cut over `cut` tensor-parallel ranks; nothing for a text model."""
    stated = shape.view.whole.get("vision_config")
    if not shape.multimodal or stated is None:
        return Tower((), known=not shape.multimodal)
    config = as_mapping(stated, "vision_config")
    for name, build in _KINDS:
        if name == architecture:
            return Tower(tuple(build(config, shape, cut)), known=True)
    return Tower(tuple(_siglip(config, 1)), known=False)
