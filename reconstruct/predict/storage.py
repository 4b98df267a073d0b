"""From a rank's parts to the bytes of each tensor, under a quantisation scheme."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconstruct.planner.pages import cdiv, round_up
from reconstruct.predict.parts import Experts, Linear, Plain
from reconstruct.predict.scheme import UNQUANTISED

if TYPE_CHECKING:
    from reconstruct.predict.parts import Part
    from reconstruct.predict.scheme import Scheme

_MXFP4_TRITON, _MXFP4_MARLIN = (256, 64), (256, 128)
"""What an mxfp4 expert's hidden and intermediate size are padded to (0.19.1 layers/fused_moe/oracle/mxfp4.py; Triton's
own layout pads the hidden size once more, which a log of gpt-oss on H100 confirms to 2 %)."""
_BLOCK = 128


def matrix(rows: int, columns: int, scheme: Scheme, width: int, fused: int = 1) -> tuple[int, ...]:
    """Bytes of a matrix's tensors: weight first, then scales and zero points.

    Sources, 0.19.1 model_executor/layers/quantization: fp8.py, compressed_tensors/schemes (w8a8, w8a16, wNa16),
    awq_marlin.py, gptq_marlin.py, modelopt.py (NVFP4), bitsandbytes.py.
    """
    elements = rows * columns
    if scheme.kind == "fp8":
        return elements, 4 * fused
    if scheme.kind in {"fp8_channel", "int8"}:
        return elements, 4 * rows
    if scheme.kind == "fp8_block":
        return elements, 4 * cdiv(rows, _BLOCK) * cdiv(columns, _BLOCK)
    if scheme.kind == "int4":
        groups = cdiv(columns, scheme.group) if scheme.group > 0 else 1
        found = (elements // 2, 2 * rows * groups)
        return (*found, rows * groups // 2) if scheme.zeros else found
    if scheme.kind == "nvfp4":
        return elements // 2, round_up(rows, _BLOCK) * cdiv(columns, scheme.group)
    if scheme.kind == "bnb4":
        return elements // 2, 4 * cdiv(elements, scheme.group)
    return (elements * width,)


def tensors(part: Part, scheme: Scheme, width: int, layer: int | None, *, marlin: bool = False) -> tuple[int, ...]:
    """Bytes of every tensor of one part; `width` is the model dtype's, `marlin` the kernels of mxfp4 experts."""
    if isinstance(part, Plain):
        return (part.elements * (part.width or width),)
    if isinstance(part, Linear):
        bias = (part.rows * width,) if part.bias else ()
        alone = not part.quantised or scheme.kind == "mxfp4" or scheme.skips(part.names, layer)
        return matrix(part.rows, part.columns, UNQUANTISED if alone else scheme, width, len(part.names)) + bias
    if scheme.kind == "mxfp4":
        return _mxfp4(part, _MXFP4_MARLIN if marlin else _MXFP4_TRITON)
    return _experts(part, UNQUANTISED if scheme.skips(part.names, layer) else scheme, width)


def _experts(part: Experts, scheme: Scheme, width: int) -> tuple[int, ...]:
    """Two stacked matrices (0.19.1 layers/fused_moe/layer.py): all first projections, all second ones."""
    middle = part.intermediate
    first = (2 if part.gated else 1) * middle
    stacked = matrix(first, part.hidden, scheme, width), matrix(part.hidden, middle, scheme, width)
    sizes = tuple(part.number * size for one in stacked for size in one)
    if part.bias:
        sizes += (part.number * first * width, part.number * part.hidden * width)
    return sizes


def _mxfp4(part: Experts, grains: tuple[int, int]) -> tuple[int, ...]:
    """Half a byte a weight, one scale byte for 32, biases in float32; both sizes padded."""
    hidden, middle = (
        round_up(size, grain) for size, grain in zip((part.hidden, part.intermediate), grains, strict=True)
    )
    first, second = part.number * 2 * middle * hidden, part.number * middle * hidden
    biases = (part.number * 2 * middle * 4, part.number * hidden * 4) if part.bias else ()
    return first // 2, first // 32, second // 2, second // 32, *biases
