"""The attention backend of each cache layer, and the block sizes that its kernels take.

Selection: vLLM 0.32.0 platforms/cuda.py _get_backend_priorities and the validate_configuration of each backend under
v1/attention/backends. Only what decides a block size or the stored bytes is kept. FlashAttention 2 to 4, FlashMLA and
DeepGEMM count as present, FlashInfer as present on Blackwell only: elsewhere its place in the order never changes a
block size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.planner.errors import Unsupported, WouldNotStart
from reconstruct.planner.models.layers import V4, Attention, Index, Latent
from reconstruct.planner.spec import KernelBlocks

if TYPE_CHECKING:
    from reconstruct.planner.models.layers import CacheLayer

Size = int | KernelBlocks

_PLAIN = frozenset({"auto", "float16", "bfloat16"})
_E4M3 = frozenset({"fp8", "fp8_e4m3"})
_PER_TOKEN_HEAD = frozenset({"int4_per_token_head", "int8_per_token_head", "fp8_per_token_head"})

_MAJORS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("9", ("H100", "H200", "H800", "H20", "GH200", "HOPPER")),
    ("10", ("B100", "B200", "B300", "GB200", "GB300", "BLACKWELL")),
    ("12", ("RTX 50", "RTX PRO 6000", "GB10")),
    ("8", ("A100", "A800", "A10", "A30", "A40", "A6000", "RTX A", "RTX 30", "RTX 40", "L4", "L20", "L40", "RTX 6000")),
    ("7", ("T4", "V100", "RTX 20")),
    ("cpu", ("CPU",)),
)


class Backend(NamedTuple):
    """A backend: its name, the kernel block sizes it takes, and what it makes of a spec.

    rows: an MLA block must hold whole groups of this many rows (0: no such rule). stride: tokens that a block's stride
    must hold whole kernel blocks of (0: the largest fixed size, where all sizes are fixed). exact: only a listed size
    itself will do, no multiple. least: the smallest block the backend prefers.
    """

    name: str
    sizes: tuple[Size, ...]
    rows: int = 0
    stride: int = 0
    exact: bool = False
    least: int = 0

    def takes(self, block_size: int) -> bool:
        """Whether a block can be cut into kernel blocks. `least` speaks for the config as a whole, before any layer."""
        if self.exact:
            return block_size in self.sizes
        sizes = (self.least,) if self.least else self.sizes
        return any(block_size % _base(size) == 0 for size in sizes)

    def smallest(self) -> int:
        """Smallest kernel block."""
        return min(_base(size) for size in self.sizes)


class Setting(NamedTuple):
    """What backend selection looks at besides the layer.

    major: compute capability ("7" to "10", "12", "cpu"). asked: the user's block size. heads, kv_heads: of one rank,
    from the config as a whole. widest: the config's largest head size. nope: qk_nope_head_dim.
    """

    release: tuple[int, ...]
    major: str
    asked: int | None
    cache_dtype: str
    heads: int
    kv_heads: int
    widest: int
    mm_prefix: bool
    dcp: int
    nope: int


def capability(device: str) -> str:
    """Compute capability's major number of a named card, or "cpu". Raises Unsupported for a card outside the table."""
    name = device.upper().removeprefix("NVIDIA ").removeprefix("GEFORCE ")
    for major, prefixes in _MAJORS:
        if name.startswith(prefixes):
            return major
    raise Unsupported(f"device {device!r} is not known; its compute capability decides the attention backend")


def backend_of(layer: CacheLayer, setting: Setting) -> Backend:
    """Backend that serves a layer. Raises WouldNotStart where no backend takes the combination."""
    if isinstance(layer, Index):
        return _index(layer, setting)
    if isinstance(layer, V4):
        raise Unsupported("DeepSeek-V4 layers are served by several backends; ask for each cache apart")
    if isinstance(layer, Latent):
        chosen = _sparse_latent(setting) if layer.sparse else _latent(layer, setting)
    elif isinstance(layer, Attention):
        chosen = Backend("MINIMAX_M3_SPARSE", (128,)) if layer.sparse else _attention(layer, setting)
    else:
        raise Unsupported("recurrent layers have no attention backend")
    if chosen is None:
        raise WouldNotStart(
            f"no attention backend of this release takes cache dtype {setting.cache_dtype!r} with these layers "
            "on this device; choose another --kv-cache-dtype"
        )
    return chosen


def _base(size: Size) -> int:
    return size.base if isinstance(size, KernelBlocks) else size


def _takes_asked(backend: Backend, setting: Setting) -> bool:
    return setting.asked is None or backend.takes(setting.asked)


def _index(layer: Index, setting: Setting) -> Backend:
    if layer.in_model_dtype:
        return Backend("MINIMAX_M3_INDEXER", (128,))
    return Backend("DEEPSEEK_V32_INDEXER", (64,)) if setting.major != "cpu" else Backend("CPU", (KernelBlocks(32),))


def _attention(layer: Attention, setting: Setting) -> Backend | None:
    if setting.major == "cpu":
        return Backend("CPU_ATTN", (KernelBlocks(32),))
    dtype = setting.cache_dtype if layer.honours else "auto"
    if dtype.startswith("turboquant"):
        if layer.window is not None or layer.sinks or layer.cross or setting.mm_prefix:
            return None
        chosen = Backend("TURBOQUANT", (16, 32, 64, 128))
        return chosen if _takes_asked(chosen, setting) else None
    if layer.head_size_v not in {None, layer.head_size}:
        return Backend("FLASH_ATTN_DIFFKV", (KernelBlocks(16),)) if dtype in _PLAIN | _E4M3 else None
    for candidate in _attention_candidates(layer, setting, dtype):
        if candidate is not None and _takes_asked(candidate, setting):
            return candidate
    return None


def _attention_candidates(layer: Attention, setting: Setting, dtype: str) -> tuple[Backend | None, ...]:
    blackwell = setting.major == "10"
    flash, infer = _flash(layer, setting, dtype), _flash_infer(layer, setting, dtype)
    mixed = _mixed(layer, setting, dtype)
    order = (mixed, infer, flash) if blackwell else (mixed, flash, infer)
    return (*order, _triton(layer, dtype))


def _mixed(layer: Attention, setting: Setting, dtype: str) -> Backend | None:
    """Backends that send image tokens to Triton and the rest elsewhere (triton_flash_attn.py, triton_flashinfer.py)."""
    if not setting.mm_prefix or layer.head_size not in {256, 512} or layer.sinks or setting.release < (0, 31):
        return None
    if setting.major == "9" and dtype in _PLAIN | _E4M3:
        return Backend("TRITON_FLASH_ATTN", _flash_sizes(layer.head_size, setting, dtype), least=_least(setting))
    if setting.major == "10" and dtype in _PLAIN | _E4M3:
        return Backend("TRITON_FLASHINFER", (64,))
    return None


def _least(setting: Setting) -> int:
    """Block that FlashAttention 4 prefers for the config as a whole: 64 with fp8 heads of 512 on Hopper."""
    return 64 if setting.major == "9" and setting.cache_dtype in _E4M3 and setting.widest == 512 else 0


def _flash_sizes(head_size: int, setting: Setting, dtype: str) -> tuple[Size, ...]:
    if setting.major == "9" and dtype in _E4M3 and head_size == 512 and setting.release >= (0, 31):
        return (64,)
    return (KernelBlocks(16),)


def _flash(layer: Attention, setting: Setting, dtype: str) -> Backend | None:
    """FlashAttention: fp8 on Hopper only; alibi needs version 2, which has no fp8 (flash_attn.py)."""
    if setting.major == "7":
        return None
    if setting.major == "12" and dtype not in _PLAIN:
        return None
    if layer.head_size % 8 or layer.head_size > 512 or dtype not in _PLAIN | _E4M3:
        return None
    if dtype in _E4M3 and setting.major not in {"9", "10"}:
        return None
    if layer.sinks and setting.major not in {"9", "10"}:
        return None
    if dtype in _E4M3 and setting.major == "9" and layer.alibi:
        raise WouldNotStart(
            "distance bias (alibi) needs FlashAttention 2, which has no fp8 cache; use --kv-cache-dtype auto"
        )
    if setting.mm_prefix and (dtype in _E4M3 or (layer.head_size > 256 and setting.major != "9")):
        return None
    if layer.head_size > 256 and setting.major != "9":
        return None
    return Backend("FLASH_ATTN", _flash_sizes(layer.head_size, setting, dtype), least=_least(setting))


def _flash_infer(layer: Attention, setting: Setting, dtype: str) -> Backend | None:
    """FlashInfer on Blackwell; pages above 64 only where several query heads share a key head (flashinfer.py)."""
    if setting.major != "10" or layer.head_size not in {64, 128, 256, 512} or layer.cross or setting.mm_prefix:
        return None
    if dtype not in _PLAIN | _E4M3 | {"fp8_e5m2", "nvfp4"}:
        return None
    grouped = setting.kv_heads > 0 and setting.heads // setting.kv_heads > 1 and setting.heads % setting.kv_heads == 0
    if grouped and setting.release >= (0, 26):
        return Backend("FLASHINFER", (16, 32, 64, 128, 256, 512, 1024))
    return Backend("FLASHINFER", (16, 32, 64))


def _triton(layer: Attention, dtype: str) -> Backend | None:
    if layer.head_size < 32 or dtype not in _PLAIN | _E4M3 | _PER_TOKEN_HEAD | {"fp8_e5m2"}:
        return None
    return Backend("TRITON_ATTN", (KernelBlocks(16),))


def _latent(layer: Latent, setting: Setting) -> Backend | None:
    dtype = setting.cache_dtype
    if setting.major == "cpu":
        return Backend("CPU_MLA", (16,), exact=True)
    plain, fp8 = dtype in _PLAIN, dtype in _E4M3
    candidates: list[Backend] = []
    if setting.major == "9":
        if plain and layer.width in {320, 512, 576}:
            candidates.append(Backend("FLASH_ATTN_MLA", (KernelBlocks(16),)))
        if (plain or fp8) and layer.width in {320, 512, 576}:
            candidates.append(Backend("FLASHMLA", (64,)))
    if setting.major == "10" and (plain or fp8):
        if setting.nope in {64, 128, 192}:
            candidates.append(Backend("FLASHINFER_MLA", (32, 64)))
        candidates.append(Backend("CUTLASS_MLA", (128,)))
    if plain or fp8:
        candidates.append(Backend("TRITON_MLA", (KernelBlocks(16),)))
    return next((candidate for candidate in candidates if _takes_asked(candidate, setting)), None)


def _sparse_latent(setting: Setting) -> Backend | None:
    """Sparse MLA: bf16 rows, or the packed fp8 rows of FlashMLA; on Blackwell FlashInfer takes fp8 rows.

    FlashMLA shares a context among ranks only with packed rows (flashmla_sparse.py FlashMLASparseImpl).
    """
    dtype = setting.cache_dtype
    if setting.dcp > 1 and setting.major == "9" and dtype in _PLAIN:
        raise WouldNotStart("decode context parallelism of sparse attention needs --kv-cache-dtype fp8 on this device")
    flash_mla = dtype in {"auto", "bfloat16", "fp8", "fp8_ds_mla"} or (
        dtype == "nvfp4_ds_mla" and setting.major == "10"
    )
    infer = dtype in _PLAIN | _E4M3 and setting.nope in {128, 192}
    packed = dtype in {"fp8", "fp8_ds_mla", "nvfp4_ds_mla"}
    candidates: list[Backend] = []
    if setting.major == "9":
        if dtype in _PLAIN and setting.dcp == 1:
            candidates.append(Backend("FLASH_ATTN_MLA_SPARSE", (KernelBlocks(64),), rows=1))
        if flash_mla:
            candidates.append(
                Backend("FLASHMLA_SPARSE", (KernelBlocks(64),), rows=0 if packed else 1, stride=64 if packed else 0)
            )
    if setting.major == "10":
        first = Backend("FLASHINFER_MLA_SPARSE", (KernelBlocks(32),), rows=32) if infer else None
        second = Backend("FLASHMLA_SPARSE", (64,) if packed else (KernelBlocks(64),), rows=1) if flash_mla else None
        few = dtype in _E4M3 or setting.heads <= 16
        candidates += [backend for backend in ((first, second) if few else (second, first)) if backend is not None]
    return next((candidate for candidate in candidates if _takes_asked(candidate, setting)), None)


def needs_packed_rows(backend: Backend, dtype: str) -> bool:
    """Whether FlashMLA stores a quantised sparse cache in its own packed rows (mla_attention.py)."""
    return backend.name == "FLASHMLA_SPARSE" and dtype not in _PLAIN
