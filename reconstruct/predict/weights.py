"""W: what "Model loading took" will say, rank by rank, from the config alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.interval import Interval
from reconstruct.planner.config_stages import stage_sizes
from reconstruct.planner.models.view import architecture_of
from reconstruct.predict.allocation import SPLIT_LIMIT, Tensor, charged_in_all
from reconstruct.predict.attention import ABSORBED, attention_layer, is_recurrent
from reconstruct.predict.constants import constant
from reconstruct.predict.feed_forward import EXPERTS, feed_forward_layer, has_experts
from reconstruct.predict.parts import Plain
from reconstruct.predict.rotary import cache_of, has_own_cache, made_before
from reconstruct.predict.storage import tensors
from reconstruct.predict.vision import tower_of
from reconstruct.rounding import MIB

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from reconstruct.predict.constants import Constant
    from reconstruct.predict.parts import Split
    from reconstruct.predict.scheme import Scheme
    from reconstruct.predict.shape import Shape

_Named = tuple[str, tuple[Tensor, ...]]
"""A part's name, and its tensors in the order in which they are made."""


class Weights(NamedTuple):
    """Weights of one pipeline stage's ranks.

    nominal: sum over tensors as the allocator charges them; likely: the same with the usual excess of repacked kernels.
    interval: what the load may print. parts: bytes by part, unrounded. reasons: what is not exact, and why.
    """

    nominal: int
    likely: int
    interval: Interval
    parts: tuple[tuple[str, int], ...]
    reasons: tuple[str, ...]


class Placement(NamedTuple):
    """How weights are spread: sizes of the split, pipeline stages, bytes of the model's dtype, the release.

    pooling: embedding and reward models run without an output layer. marlin: mxfp4 experts take Marlin's padding.
    adapters: LoRA buffers stand beside the weights. rocm: AMD's kernels pad rows.
    """

    split: Split
    stages: int
    width: int
    release: tuple[int, ...]
    pooling: bool = False
    marlin: bool = False
    adapters: bool = False
    rocm: bool = False


def stage_weights(config: Mapping[str, object], shape: Shape, scheme: Scheme, place: Placement) -> tuple[Weights, ...]:
    """Weights of each pipeline stage.

    The first stage holds the embedding, the last the final norm and the output layer (0.19.1 models/llama.py); tied
    embeddings exist once where first and last are the same, and on both ends where they are not. Raises Unsupported.
    """
    sizes = stage_sizes(shape.layers, place.stages, place.release)
    found, start = [], 0
    known: dict[tuple[bool, int], tuple[list[_Named], list[_Named]]] = {}
    for stage, count in enumerate(sizes):
        named, last = _edges(config, shape, place, first=stage == 0, last=stage == len(sizes) - 1)
        rotating: set[bool] = set()
        for layer in range(start, start + count):
            alike = _likeness(shape, scheme, layer)
            if alike not in known:
                known[alike] = _layer(shape, scheme, place, layer)
            attention, rest = known[alike]
            windowed, recurrent = has_own_cache(shape, layer), is_recurrent(shape, layer)
            if windowed not in rotating and not recurrent:  # the first of its kind makes what all share
                rotating.add(windowed)
                before, cache = made_before(shape, len(attention)), cache_of(shape, place.width, windowed=windowed)
                named += [*attention[:before], *([("rotary cache", cache)] if cache else ())]
                attention = attention[before:]
            named += attention + rest
        start += count
        named = sorted(named + last, key=lambda entry: _is_derived(entry[0], scheme))
        found.append(_summed(named, config, shape, scheme, place))
    return tuple(found)


def _likeness(shape: Shape, scheme: Scheme, layer: int) -> tuple[bool, int]:
    """Give what layers with the same tensors have in common: their kind, and their number where mixer or scheme look at it."""
    numbered = shape.trait.mixer == "delta" or any(entry != "lm_head" for entry in scheme.ignore)
    return has_experts(shape, layer), layer if numbered else 0


def _layer(shape: Shape, scheme: Scheme, place: Placement, layer: int) -> tuple[list[_Named], list[_Named]]:
    """Give a layer's tensors in the order in which they are made: its attention's, then all others."""
    norms: list[Plain] = []
    for _ in range(shape.trait.norms):
        norms += [Plain("norms", shape.hidden)] * (2 if shape.trait.norm_bias else 1)
    groups = (
        attention_layer(shape, place.split, layer, place.release),
        feed_forward_layer(shape, place.split, layer) + tuple(norms),
    )
    first, second = (
        [_named(part.part, tensors(part, scheme, place.width, layer, marlin=place.marlin)) for part in group]
        for group in groups
    )
    return first, second


def _is_derived(part: str, scheme: Scheme) -> bool:
    """Whether a part is made anew once everything is loaded (process_weights_after_loading)."""
    return part == ABSORBED or (part == EXPERTS and scheme.kind == "mxfp4")


def _named(part: str, sizes: Iterable[int]) -> _Named:
    return part, tuple(Tensor(size) for size in sizes)


def _edges(
    config: Mapping[str, object], shape: Shape, place: Placement, *, first: bool, last: bool
) -> tuple[list[_Named], list[_Named]]:
    """Give what is made before the layers (vision tower, embedding) and after them (final norm, output layer)."""
    width, rows = place.width, place.split.of(shape.vocabulary)
    before, after = [], []
    if first:
        tower = tower_of(shape, architecture_of(config) or "", place.split.tensor)
        before.append(_named("vision", (elements * width for elements in tower.tensors)))
    if first or (shape.tied and last):
        before.append(_named("embedding", (rows * shape.hidden * width,)))
    if first and shape.trait.positions is not None:
        before.append(_named("embedding", ((shape.positions + shape.trait.positions) * shape.hidden * width,)))
    if last:
        if shape.trait.final_norm:
            after.append(_named("norms", (shape.hidden * width,) * (2 if shape.trait.norm_bias else 1)))
        if shape.trait.scaled_embedding:
            after.append(_named("embedding", (width,)))
        if not shape.tied and not place.pooling:
            after.append(_named("output", (rows * shape.hidden * width,)))
        if shape.trait.lm_head_bias:
            after.append(_named("output", (rows * width,)))
    return before, after


def _summed(
    named: list[_Named],
    config: Mapping[str, object],
    shape: Shape,
    scheme: Scheme,
    place: Placement,
) -> Weights:
    limit = SPLIT_LIMIT if place.release >= (0, 21) else None
    nominal = charged_in_all((tensor for _, made in named for tensor in made), limit)
    parts: dict[str, int] = {}
    for part, made in named:
        parts[part] = parts.get(part, 0) + sum(tensor.nbytes for tensor in made)
    bands, reasons = bands_of(config, shape, scheme, place)
    low = int(nominal * (1 + sum(band.low for band in bands)))
    high = int(nominal * (1 + sum(band.high for band in bands)))
    edge = constant("weights.edge")
    interval = Interval(max(0, low + int(edge.low * MIB)), high + int(edge.high * MIB))
    likely = int(nominal * (1 + sum(band.value for band in bands)))
    return Weights(nominal, likely, interval, tuple(sorted(parts.items())), reasons)


def bands_of(
    config: Mapping[str, object], shape: Shape, scheme: Scheme, place: Placement
) -> tuple[list[Constant], tuple[str, ...]]:
    """Give the errors that apply to a model's weights, as shares of them, and in words what is not exact."""
    bands, reasons = [constant("weights.dense")], []
    if shape.experts:
        bands.append(constant("weights.experts"))
    if scheme.kind != "none":
        bands.append(constant(f"weights.{scheme.kind}"))
        if not scheme.exact:
            reasons.append(f"{scheme.kind} kernels repack weights after loading: padding is known only roughly")
    if shape.trait.mixer != "mha":
        bands.append(constant(f"weights.{shape.trait.mixer}"))
        reasons.append("the attention keeps derived copies beside its weights; their dtype and padding vary")
    if place.adapters:
        bands.append(constant("weights.adapters"))
        reasons.append("LoRA buffers count with the weights: only an upper share is known")
    if place.rocm:
        bands.append(constant("weights.rocm"))
    if shape.multimodal:
        known = tower_of(shape, architecture_of(config) or "", 1).known
        bands.append(constant("weights.tower" if known else "weights.unknown_tower"))
        if not known:
            reasons.append("the vision or audio tower's shapes are guessed from its config's common fields")
    return bands, tuple(reasons)
