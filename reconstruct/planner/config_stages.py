"""Which pipeline stage holds which decoder layer, and which layers keep the model's dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconstruct.planner.errors import WouldNotStart

if TYPE_CHECKING:
    from reconstruct.planner.launch import Launch
    from reconstruct.planner.models.layers import CacheLayer, Geometry

NumberedLayers = tuple[tuple[int, tuple["CacheLayer", ...]], ...]


def stage_sizes(layers: int, stages: int, release: tuple[int, ...]) -> tuple[int, ...]:
    """Count the decoder layers of each pipeline stage.

    Source: vLLM distributed/utils.py get_pp_indices. Up to 0.7.3 the last stage takes what does not divide; from 0.8.0
    one layer each goes to the stages before the last, from the back. Raises WouldNotStart for more stages than layers.
    """
    if stages > layers:
        raise WouldNotStart(f"{stages} pipeline stages are more than the model's {layers} layers")
    even, rest = divmod(layers, stages)
    sizes = [even] * stages
    if release < (0, 8):
        sizes[-1] += rest
        return tuple(sizes)
    for back in range(2, rest + 2):
        sizes[-back] += 1
    return tuple(sizes)


def split_layers(geometry: Geometry, launch: Launch, release: tuple[int, ...]) -> tuple[NumberedLayers, ...]:
    """Numbered decoder layers of each stage; a draft's layers follow on the last."""
    numbered = tuple(enumerate(geometry.layers))
    stages: list[NumberedLayers] = []
    start = 0
    for size in stage_sizes(len(numbered), launch.pipeline_parallel_size, release):
        stages.append(numbered[start : start + size])
        start += size
    stages[-1] += tuple((len(numbered) + offset, layer) for offset, layer in enumerate(geometry.drafts))
    return tuple(stages)


def skipped_layers(geometry: Geometry, cache_dtype: str) -> frozenset[int]:
    """Layers that TurboQuant leaves in the model's dtype: the first and last two of a model without recurrent layers.

    Source: vLLM 0.32.0 quantization/turboquant/config.py get_boundary_skip_layers.
    """
    count = len(geometry.layers)
    if not cache_dtype.startswith("turboquant") or geometry.hybrid:
        return frozenset()
    edge = min(2, count // 2)
    return frozenset((*range(edge), *range(count - edge, count)))
