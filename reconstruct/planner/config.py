"""From a model's config.json and the launch settings to a plan: geometry, specs by stage, plan.

`plan_kv_cache` is the whole way; `layer_specs` stops at the specs, for those who want to look at them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.planner.config_backends import Setting, capability
from reconstruct.planner.config_blocks import Blocks, Caching, Edges, Pages, blocks_of, state_bytes
from reconstruct.planner.config_dtype import cache_dtype, model_dtype
from reconstruct.planner.config_engine import runs_v0
from reconstruct.planner.config_length import max_model_len
from reconstruct.planner.config_specs import Scene, specs_of, state_dtypes, token_bytes
from reconstruct.planner.config_stages import skipped_layers, split_layers
from reconstruct.planner.errors import Unsupported, WouldNotStart
from reconstruct.planner.launch import AUTO_FIT
from reconstruct.planner.models.drafts import draft_layers
from reconstruct.planner.models.facts import releases_with
from reconstruct.planner.models.families import geometry_of
from reconstruct.planner.models.layers import Attention, Latent, Shard, State
from reconstruct.planner.models.view import architecture_of
from reconstruct.planner.plan import plan_from_layers
from reconstruct.planner.rules import release_of
from reconstruct.planner.spec import dtype_size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from reconstruct.planner.launch import Launch
    from reconstruct.planner.models.layers import CacheLayer, Geometry
    from reconstruct.planner.result import KvPlan
    from reconstruct.planner.spec import LayerSpec


class ConfigSpecs(NamedTuple):
    """Specs of each pipeline stage, and the launch with what the model settles: its length, engine and manager."""

    stages: tuple[tuple[LayerSpec, ...], ...]
    launch: Launch


def plan_kv_cache(config: Mapping[str, object], launch: Launch, available_memory: int | Sequence[int]) -> KvPlan:
    """Plan the KV cache as the stated release does.

    config: a Hugging Face config.json. available_memory: bytes for the cache, one number for all ranks, one per stage,
    or one per rank (pipeline stage outer, tensor-parallel rank inner). Raises WouldNotStart where the engine refuses
    the start, Unsupported where the answer is not known, both naming the reason.
    """
    built = layer_specs(config, launch)
    return plan_from_layers(built.stages, built.launch, available_memory)


def specs_as_started(config: Mapping[str, object], launch: Launch) -> ConfigSpecs:
    """Give the specs of a launch that did start: a length beyond the model's own was then allowed (by a variable).

    Raises WouldNotStart and Unsupported as `plan_kv_cache` does.
    """
    try:
        return layer_specs(config, launch)
    except WouldNotStart:
        if launch.max_model_len is None:
            raise
        return layer_specs(config, launch._replace(allow_long_max_model_len=True))


def layer_specs(config: Mapping[str, object], launch: Launch) -> ConfigSpecs:
    """Cache specs of every pipeline stage, in the order in which the model class registers its layers.

    Raises WouldNotStart and Unsupported as `plan_kv_cache` does.
    """
    release = release_of(launch.engine_version)
    _check_release(config, launch.engine_version, release)
    speculation = launch.speculative_config
    shard = Shard(
        launch.tensor_parallel_size, release, 0 if speculation is None else speculation.num_speculative_tokens
    )
    geometry = geometry_of(config, shard)
    drafts = () if speculation is None else draft_layers(config, speculation, geometry, shard)
    geometry = geometry._replace(drafts=drafts)
    _check_split(geometry, launch)
    length = max_model_len(geometry, launch, release)
    scene = _scene(config, launch, geometry, release, length)
    skipped = skipped_layers(geometry, scene.cache_dtype)
    made: dict[tuple[CacheLayer, bool], tuple[LayerSpec, ...]] = {}
    stages = tuple(
        tuple(
            spec
            for number, layer in stage
            for part in layer
            for spec in _specs_once(part, scene, made, skipped=number in skipped)
        )
        for stage in split_layers(geometry, launch, release)
    )
    settled = launch._replace(
        max_model_len=length,
        autofit=launch.autofit or launch.max_model_len == AUTO_FIT,
        use_v1=not runs_v0(geometry, scene, launch) if launch.use_v1 is None else launch.use_v1,
        disable_hybrid_kv_cache_manager=launch.disable_hybrid_kv_cache_manager or _without_groups(geometry, launch),
    )
    return ConfigSpecs(stages, settled)


def _without_groups(geometry: Geometry, launch: Launch) -> bool:
    """Whether chunked attention turns the hybrid cache manager off.

    Source: 0.32.0 config/vllm.py (with EAGLE-like drafts); 0.10.1 to 0.13 always, unless
    VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE is set.
    """
    if geometry.view.maybe_number("attention_chunk_size") is None or geometry.view.model_type.startswith("mimo"):
        return False
    release = release_of(launch.engine_version)
    drafts = launch.speculative_config is not None and bool(geometry.drafts)
    return drafts or (0, 10, 1) <= release < (0, 14)


def _specs_once(
    part: CacheLayer, scene: Scene, made: dict[tuple[CacheLayer, bool], tuple[LayerSpec, ...]], *, skipped: bool
) -> tuple[LayerSpec, ...]:
    """Specs of a layer, worked out once for all layers that are alike."""
    if (part, skipped) not in made:
        made[part, skipped] = specs_of(part, scene, skipped=skipped)
    return made[part, skipped]


def _check_release(config: Mapping[str, object], version: str, release: tuple[int, ...]) -> None:
    """Refuse an architecture that the release does not have yet, or no longer."""
    architecture = architecture_of(config)
    known = None if architecture is None else releases_with(architecture)
    if known is None:
        if release < (0, 8):
            raise Unsupported(f"architecture {architecture!r} stands in no vLLM registry that is known here")
        return
    first, last = known
    if release[:2] < release_of(first)[:2]:
        raise Unsupported(f"{architecture} came to vLLM after {version}: the first release known to have it is {first}")
    if last is not None and release[:2] > release_of(last)[:2]:
        raise Unsupported(f"{architecture} left vLLM before {version}: the last release known to have it is {last}")


def _check_split(geometry: Geometry, launch: Launch) -> None:
    """Refuse a split that the engine refuses.

    Source: 0.32.0 config/model.py verify_with_parallel_config.
    """
    ranks = launch.tensor_parallel_size
    if geometry.heads % ranks:
        raise WouldNotStart(f"the {geometry.heads} attention heads must be divisible by tensor_parallel_size ({ranks})")
    if launch.pipeline_parallel_size > 1 and not geometry.pipelines:
        raise WouldNotStart("this model does not support pipeline parallelism; use tensor parallelism")
    dcp = launch.decode_context_parallel_size
    if dcp == 1:
        return
    if ranks % dcp:
        raise WouldNotStart(f"tensor_parallel_size ({ranks}) must be divisible by decode_context_parallel_size ({dcp})")
    latent = any(isinstance(part, Latent) for layer in geometry.layers for part in layer)
    if latent:
        return
    if ranks <= geometry.kv_heads:
        raise WouldNotStart(
            f"decode context parallelism needs tensor_parallel_size ({ranks}) above the {geometry.kv_heads} key heads"
        )
    if dcp > ranks // geometry.kv_heads or (geometry.heads // geometry.kv_heads) % dcp:
        raise WouldNotStart(f"decode_context_parallel_size {dcp} does not divide the queries that share a key head")


def _scene(
    config: Mapping[str, object], launch: Launch, geometry: Geometry, release: tuple[int, ...], length: int
) -> Scene:
    dtype = model_dtype(config, launch, release)
    cached = cache_dtype(config, launch, release)
    ranks = launch.tensor_parallel_size
    setting = Setting(
        release=release,
        major=capability(launch.device),
        asked=launch.block_size,
        cache_dtype=cached,
        heads=max(geometry.heads // ranks, 1),
        kv_heads=max(geometry.kv_heads // ranks, 1),
        widest=geometry.head_size,
        mm_prefix=geometry.mm_prefix,
        dcp=launch.decode_context_parallel_size,
        nope=geometry.view.maybe_number("qk_nope_head_dim") or 0,
    )
    caching = _caching(geometry, launch, release)
    speculative = 0 if launch.speculative_config is None else launch.speculative_config.num_speculative_tokens
    scene = Scene(
        ranks, dtype, cached, Blocks(16, length, None), setting, geometry.ssm_dtype, caching.mode, speculative
    )
    blocks = blocks_of(geometry, setting, _pages(geometry, scene), caching, length, _edges(geometry, scene))
    return scene._replace(blocks=blocks)


def _caching(geometry: Geometry, launch: Launch, release: tuple[int, ...]) -> Caching:
    """Prefix caching and the mamba cache mode in force.

    Source: 0.32.0 engine/arg_utils.py and config/model.py is_prefix_caching_supported (on by default for hybrid models
    from 0.26.0, never for models of recurrent layers only), models/config.py MambaModelConfig (mode "all" for the
    classes that supported it, up to 0.27).
    """
    default = not geometry.attention_free and not geometry.encoder_decoder
    if geometry.hybrid:
        default = release >= (0, 26)
    on = default if launch.enable_prefix_caching is None else launch.enable_prefix_caching
    chunk = geometry.view.maybe_number("mamba_chunk_size") or geometry.view.maybe_number("chunk_size") or 2048
    if not (geometry.hybrid or geometry.attention_free) or not on or release < (0, 15):
        return Caching("none", on, chunk)
    if launch.mamba_cache_mode is not None:
        return Caching(launch.mamba_cache_mode, on, chunk)
    states = {part.kind for layer in geometry.layers for part in layer if isinstance(part, State)}
    everywhere = release < (0, 28) and states <= {"MAMBA1", "MAMBA2"}
    return Caching("all" if everywhere else "align", on, chunk)


def _pages(geometry: Geometry, scene: Scene) -> Pages:
    """Bytes of a token of attention and of a recurrent layer's state, as block alignment counts them."""
    parts: list[CacheLayer] = [part for layer in geometry.layers for part in layer]
    states = {part for part in parts if isinstance(part, State)}
    attending = [part for part in parts if isinstance(part, Attention | Latent)]
    if not states or not attending or not geometry.hybrid:
        return Pages(0, 0)
    first = attending[0]
    if isinstance(first, Attention):
        first = first._replace(kv_heads=geometry.kv_heads, head_size=geometry.head_size, head_size_v=None)
    widest = max(_state_bytes(state, scene) for state in states)
    return Pages(token_bytes(first, scene), widest)


def _edges(geometry: Geometry, scene: Scene) -> Edges | None:
    """Bytes of a token in quantised and in kept layers, where the cache dtype keeps some."""
    if not skipped_layers(geometry, scene.cache_dtype):
        return None
    elements = max(geometry.kv_heads // scene.tensor_parallel_size, 1) * 2 * geometry.head_size
    return Edges(elements, elements * dtype_size(scene.model_dtype))


def _state_bytes(state: State, scene: Scene) -> int:
    dtypes = state_dtypes(state, scene.model_dtype, scene.ssm_dtype)
    return state_bytes(state, [dtype_size(dtype) for dtype in dtypes])
