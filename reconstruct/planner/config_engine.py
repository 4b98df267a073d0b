"""Which engine a release runs a launch on where the user does not say: V1, or the older V0."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconstruct.planner.models.layers import State

if TYPE_CHECKING:
    from reconstruct.planner.config_specs import Scene
    from reconstruct.planner.launch import Launch
    from reconstruct.planner.models.layers import Geometry


def runs_v0(geometry: Geometry, scene: Scene, launch: Launch) -> bool:
    """Whether V0 runs the launch: before 0.8.0 always, later where V1 could not do it yet.

    Source: envs.py VLLM_USE_V1 of 0.7.3 and 0.8.5; engine/arg_utils.py _is_v1_supported_oracle of 0.8.3, 0.8.5, 0.9.1,
    0.9.2, 0.10.1 and 0.10.2, from which on V1 runs everything. Loading formats, old options and what the attention
    backend's variable names are not followed.
    """
    release = scene.setting.release
    if release < (0, 8) or release >= (0, 10, 2):
        return release < (0, 8)
    parts = {type(part) for layer in geometry.layers for part in layer}
    if State in parts or geometry.encoder_decoder or scene.setting.major == "7":
        return True
    if release < (0, 9) and launch.pipeline_parallel_size > 1:
        return True
    if release < (0, 9, 2) and (launch.runner == "pooling" or scene.model_dtype == "float32"):
        return True
    return scene.cache_dtype != "auto" and not _caches(scene, release)


def _caches(scene: Scene, release: tuple[int, ...]) -> bool:
    """Whether V1 takes the cache dtype: fp8 with FlashAttention 3 from 0.8.4, any on data-centre Blackwell from 0.10.0."""
    major = scene.setting.major
    fp8 = scene.cache_dtype.startswith("fp8") and major == "9"
    return (fp8 and release >= (0, 8, 4)) or (major == "10" and release >= (0, 10))
