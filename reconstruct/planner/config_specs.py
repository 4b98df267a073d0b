"""Cache layers made into the specs that a release's workers report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.planner.config_backends import backend_of, needs_packed_rows
from reconstruct.planner.config_blocks import window_block
from reconstruct.planner.config_dtype import STORED_AS, quant_mode
from reconstruct.planner.errors import Unsupported, WouldNotStart
from reconstruct.planner.models.latents import index_bytes
from reconstruct.planner.models.layers import V4, Attention, Index, Latent, State
from reconstruct.planner.pages import DS_MLA_BYTES, DS_V4_BYTES, cdiv
from reconstruct.planner.spec import (
    CHUNKED,
    CROSS,
    FULL,
    MAMBA,
    MLA,
    SLIDING,
    SLIDING_MLA,
    KernelBlocks,
    LayerSpec,
    dtype_size,
)

if TYPE_CHECKING:
    from reconstruct.planner.config_backends import Backend, Setting
    from reconstruct.planner.config_blocks import Blocks
    from reconstruct.planner.models.layers import CacheLayer

_PACKED_ROW = {"fp8_ds_mla": DS_MLA_BYTES, "nvfp4_ds_mla": 352}
"""Bytes per token of FlashMLA's packed rows (0.32.0 mla_attention.py MLAAttention.get_kv_cache_spec)."""
_V4_ALIGNMENT, _V4_WINDOW_BLOCK = 576, 64
"""The multiple that DeepSeek-V4's pages are rounded to, and the block of its window cache (sparse_swa.py)."""

_TURBOQUANT = {
    "turboquant_k8v4": (8, 4),
    "turboquant_4bit_nc": (4, 4),
    "turboquant_k3v4_nc": (3, 4),
    "turboquant_3bit_nc": (3, 3),
}
"""Bits of a key and of a value (quantization/turboquant/config.py TQ_PRESETS); 8 bits are plain fp8."""


class Scene(NamedTuple):
    """All that a layer's spec depends on besides the layer itself.

    tensor_parallel_size as in the launch; model_dtype and cache_dtype resolved; blocks in force; setting for backends;
    ssm_dtype of the recurrent state; mamba_mode; speculative: state slots per request for draft tokens.
    """

    tensor_parallel_size: int
    model_dtype: str
    cache_dtype: str
    blocks: Blocks
    setting: Setting
    ssm_dtype: str
    mamba_mode: str
    speculative: int


def specs_of(layer: CacheLayer, scene: Scene, *, skipped: bool = False) -> tuple[LayerSpec, ...]:
    """Specs of one cache layer, in registration order. skipped: the layer keeps the model's dtype."""
    if isinstance(layer, Attention):
        return (_attention(layer, scene, skipped=skipped),)
    if isinstance(layer, Latent):
        return (_latent(layer, scene),)
    if isinstance(layer, Index):
        return (_index(layer, scene),)
    if isinstance(layer, V4):
        return _v4(layer, scene)
    return (_state(layer, scene),)


def rank_heads(heads: int, ranks: int) -> int:
    """Key heads of one rank: split evenly, or one each where ranks outnumber heads.

    Source: ModelConfig.get_num_kv_heads; the model classes assert that one number divides the other.
    """
    if heads % ranks and ranks % heads:
        raise WouldNotStart(f"{heads} key heads cannot be split over or replicated on {ranks} tensor-parallel ranks")
    return max(1, heads // ranks)


def stored_dtype(cache_dtype: str, model_dtype: str) -> str:
    """Torch dtype that a cache is stored in."""
    return model_dtype if cache_dtype == "auto" else STORED_AS[cache_dtype]


def token_bytes(layer: Attention | Latent, scene: Scene) -> int:
    """Bytes of one token in one attention layer, which block alignment counts with."""
    spec = specs_of(layer._replace(window=None) if isinstance(layer, Attention) else layer, scene)[0]
    if spec.state_content_bytes is not None:
        return (spec.num_head_slots or spec.num_kv_heads) * spec.state_content_bytes
    return spec.num_kv_heads * (spec.head_size + spec.head_size_v) * dtype_size(spec.dtype)


def _stride(backend: Backend, spec: LayerSpec, release: tuple[int, ...]) -> LayerSpec:
    """How far apart blocks must lie (0.32.0 worker/utils.py customize_attention_spec, sparse_utils.py)."""
    if release < (0, 31):
        return spec
    if backend.rows:
        content = spec.state_content_bytes or (spec.head_size + spec.head_size_v) * dtype_size(spec.dtype)
        return spec._replace(block_stride_alignment=backend.rows * content)
    if backend.stride:
        return spec._replace(block_stride_alignment=KernelBlocks(backend.stride))
    fixed = [size for size in backend.sizes if isinstance(size, int)]
    if len(fixed) == len(backend.sizes):
        return spec._replace(block_stride_alignment=KernelBlocks(max(fixed)))
    return spec


def _attention(layer: Attention, scene: Scene, *, skipped: bool) -> LayerSpec:
    release = scene.setting.release
    ignores = not layer.honours and release >= (0, 8)
    dtype = "auto" if skipped or ignores else scene.cache_dtype
    setting = scene.setting._replace(cache_dtype=dtype)
    backend = backend_of(layer, setting) if release >= (0, 18) else None
    wide = layer.head_size if layer.head_size_v is None or release < (0, 14) else layer.head_size_v
    spec = LayerSpec(
        FULL,
        scene.blocks.attention,
        rank_heads(layer.kv_heads, scene.tensor_parallel_size),
        layer.head_size,
        wide,
        stored_dtype(dtype, scene.model_dtype),
        quant_mode(dtype) if release >= (0, 20) else "NONE",
    )
    spec = _of_kind(layer, spec, release)
    if backend is None:
        return spec
    if spec.kind == SLIDING and release >= (0, 25):
        spec = spec._replace(block_size=window_block(backend, scene.blocks.attention))
    return _stride(backend, _packed(spec, dtype), release)


def _of_kind(layer: Attention, spec: LayerSpec, release: tuple[int, ...]) -> LayerSpec:
    """Windows, chunks and cross attention, where the release's planner knows them (else full attention)."""
    if layer.cross:
        return spec._replace(kind=CROSS)
    if layer.chunk is not None and release >= (0, 10):
        return spec._replace(kind=CHUNKED, attention_chunk_size=layer.chunk)
    if layer.window is not None and release >= (0, 8, 4):
        return spec._replace(kind=SLIDING, sliding_window=layer.window)
    return spec


def _packed(spec: LayerSpec, dtype: str) -> LayerSpec:
    """Apply what the backends make of formats whose bytes per token are no plain product.

    Source: customize_spec of v1/attention/backends/{triton_attn,flashinfer,turboquant_attn}.py (0.32.0).
    """
    if dtype.endswith("_per_token_head"):
        keys, values = spec.head_size, spec.head_size_v
        if dtype.startswith("int4"):
            keys, values = keys // 2, values // 2
        return spec._replace(state_content_bytes=keys + values + 2 * 4)
    if dtype == "nvfp4":
        slots = 2 * spec.num_kv_heads
        return spec._replace(num_head_slots=slots, state_content_bytes=spec.head_size // 2 + spec.head_size // 16)
    if dtype in _TURBOQUANT:
        return spec._replace(state_content_bytes=_turboquant_slot(spec.head_size, *_TURBOQUANT[dtype]))
    return spec


def _turboquant_slot(head_size: int, key_bits: int, value_bits: int) -> int:
    """Bytes of a key and a value together, rounded up to an even number (TurboQuantConfig.slot_size_aligned)."""
    key = head_size if key_bits == 8 else cdiv(head_size * key_bits, 8) + 2
    slot = key + cdiv(head_size * value_bits, 8) + 4
    return slot + slot % 2


def _latent(layer: Latent, scene: Scene) -> LayerSpec:
    release = scene.setting.release
    dtype = scene.cache_dtype
    backend = backend_of(layer, scene.setting) if release >= (0, 18) else None
    packed = layer.sparse and dtype.startswith(("fp8", "nvfp4"))
    if backend is not None and packed:
        packed = needs_packed_rows(backend, dtype)
    if packed and dtype not in _PACKED_ROW:
        dtype = "fp8_ds_mla"
    spec = LayerSpec(
        MLA,
        scene.blocks.attention,
        1,
        layer.width,
        0,
        stored_dtype(dtype, scene.model_dtype),
        quant_mode(dtype) if release >= (0, 20) else "NONE",
    )
    if release >= (0, 11):
        spec = spec._replace(cache_dtype_str=dtype)
    spec = spec._replace(max_tp_shards=_tp_shards(release))
    if dtype in _PACKED_ROW and release >= (0, 11):
        spec = spec._replace(state_content_bytes=_PACKED_ROW[dtype])
    return spec if backend is None else _stride(backend, spec, release)


def _tp_shards(release: tuple[int, ...]) -> int | None:
    """Ranks that share one stored vector: every rank keeps it whole (0.31.0 on states so)."""
    return 1 if release >= (0, 31) else None


def _index(layer: Index, scene: Scene) -> LayerSpec:
    release = scene.setting.release
    dtype = scene.model_dtype if layer.in_model_dtype else "uint8"
    spec = LayerSpec(MLA, scene.blocks.attention, 1, layer.width, 0, dtype)
    if layer.in_model_dtype or release < (0, 31):
        return spec if release < (0, 18) else _stride(backend_of(layer, scene.setting), spec, release)
    spec = spec._replace(max_tp_shards=_tp_shards(release), cache_role="indexer")
    return _stride(backend_of(layer, scene.setting), spec, release)


def _state(layer: State, scene: Scene) -> LayerSpec:
    release = scene.setting.release
    padded = scene.blocks.mamba_page
    return LayerSpec(
        MAMBA,
        scene.blocks.mamba,
        dtype="bfloat16",
        dcp_sharded=False,
        shapes=layer.shapes,
        dtypes=state_dtypes(layer, scene.model_dtype, scene.ssm_dtype),
        mamba_type=layer.kind,
        page_size_padded=padded,
        mamba_cache_mode=scene.mamba_mode if release >= (0, 15) else "none",
        num_speculative_blocks=scene.speculative if release >= (0, 10, 2) else 0,
        num_prefill_checkpoint_blocks=int(layer.checkpoints and release >= (0, 29)),
    )


def state_dtypes(layer: State, model_dtype: str, ssm_dtype: str) -> tuple[str, ...]:
    """Dtype of each state tensor (0.32.0 mamba_utils.py MambaStateDtypeCalculator)."""
    return tuple(
        role if role == "float32" else model_dtype if role == "conv" or ssm_dtype == "auto" else ssm_dtype
        for role in layer.roles
    )


def _v4(layer: V4, scene: Scene) -> tuple[LayerSpec, ...]:
    """DeepSeek-V4: the window cache, and for compressed layers their cache, compressor states and indexer.

    Source: 0.32.0 models/deepseek_v4/{attention,compressor}.py, v1/attention/backends/mla/sparse_swa.py.
    """
    release = scene.setting.release
    if release < (0, 20):
        raise WouldNotStart("DeepSeek-V4 needs vLLM 0.20.0 or later")
    if scene.setting.major != "9" or scene.cache_dtype in {"bfloat16", "float16"}:
        raise Unsupported("DeepSeek-V4's cache is known here for Hopper cards with the packed fp8 layout only")
    window = _v4_spec(SLIDING_MLA, _V4_WINDOW_BLOCK, layer.head_size, scene)._replace(sliding_window=layer.window)
    if layer.compress <= 1:
        return (window,)
    indexer: tuple[LayerSpec, ...] = ()
    compressed = _v4_spec(MLA, scene.blocks.attention, layer.head_size, scene)
    compressed = compressed._replace(tokens_per_state=layer.compress, block_stride_alignment=_v4_stride(release))
    if layer.compress == 4:
        indexer = (_v4_index(layer, scene), _v4_state(4, layer.index_head, release))
    return (window, *indexer, compressed, _v4_state(layer.compress, layer.head_size, release))


def _v4_stride(release: tuple[int, ...]) -> KernelBlocks | None:
    return KernelBlocks(256) if release >= (0, 31) else None


def _v4_spec(kind: str, block: int, width: int, scene: Scene) -> LayerSpec:
    return LayerSpec(
        kind,
        block,
        1,
        width,
        0,
        "uint8",
        "FP8_PER_TENSOR",
        cache_dtype_str="fp8_ds_mla",
        model_version="deepseek_v4",
        alignment=_V4_ALIGNMENT,
        state_content_bytes=DS_V4_BYTES,
        max_tp_shards=_tp_shards(scene.setting.release),
    )


def _v4_index(layer: V4, scene: Scene) -> LayerSpec:
    release = scene.setting.release
    return LayerSpec(
        MLA,
        scene.blocks.attention,
        1,
        index_bytes(layer.index_head),
        0,
        "uint8",
        alignment=_V4_ALIGNMENT,
        tokens_per_state=layer.compress,
        block_stride_alignment=_v4_stride(release),
        max_tp_shards=_tp_shards(release),
    )


def _v4_state(compress: int, head_size: int, release: tuple[int, ...]) -> LayerSpec:
    """Float32 state of a compressor: two vectors a token of the blocks it still works on, which overlap at ratio 4."""
    overlap = 2 if compress == 4 else 1
    return LayerSpec(
        SLIDING_MLA,
        4 if compress == 4 else 8,
        1,
        overlap * 2 * head_size,
        0,
        "float32",
        sliding_window=overlap * compress,
        alignment=_V4_ALIGNMENT,
        max_tp_shards=_tp_shards(release),
    )
