"""Block sizes by release: the user's, the backend's, and the one that lets attention and recurrent state share pages."""

from __future__ import annotations

from itertools import product
from math import lcm, prod
from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.planner.config_backends import Backend, backend_of
from reconstruct.planner.errors import Unsupported, WouldNotStart
from reconstruct.planner.models.layers import V4, Index, Latent, State
from reconstruct.planner.pages import cdiv

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconstruct.planner.config_backends import Setting
    from reconstruct.planner.models.layers import CacheLayer, Geometry

DEFAULT = 16
_CPU_DEFAULT = 128
V4_BLOCK = 256


class Blocks(NamedTuple):
    """Block sizes in force: attention, mamba, and the page that mamba layers are padded to (None: not padded)."""

    attention: int
    mamba: int
    mamba_page: int | None


class Pages(NamedTuple):
    """Bytes that alignment compares: one token of attention, and all states of one recurrent layer."""

    token: int
    state: int


class Edges(NamedTuple):
    """Layers at the ends of a model that keep its dtype while the others are quantised: bytes of a token in either."""

    quantised: int
    kept: int


class Caching(NamedTuple):
    """Prefix caching as it bears on recurrent layers: the cache mode, and the model's own chunk of tokens."""

    mode: str
    prefix_caching: bool
    chunk: int


def blocks_of(
    geometry: Geometry, setting: Setting, pages: Pages, caching: Caching, longest: int, edges: Edges | None
) -> Blocks:
    """Block sizes of a model. edges: bytes of a token where some layers keep the model's dtype, None where none does.

    Source: vLLM 0.32.0 platforms/interface.py update_block_size_for_backend (0.18.0 on), before it platforms/cuda.py
    check_and_update_config. Raises WouldNotStart where the backends share no size.
    """
    parts = [part for layer in (*geometry.layers, *geometry.drafts) for part in layer]
    attending = list(dict.fromkeys(part for part in parts if not isinstance(part, State)))
    block = attention_block(attending, setting)
    if edges is not None and setting.release >= (0, 25):
        block = max(block, _covering(block, edges))
    if not geometry.hybrid or not attending:
        mamba = block if caching.prefix_caching and caching.mode != "none" else longest
        return Blocks(block, mamba, None)
    if not pages.state:
        raise Unsupported("a hybrid model none of whose layers is recurrent; its block size follows from such a state")
    return _aligned(block, attending, setting, pages, caching, longest)


def _covering(block: int, edges: Edges) -> int:
    """Block whose quantised page covers a page of the smallest kernel block in the model's dtype.

    Source: 0.32.0 platforms/interface.py _align_heterogeneous_kv_block_size (0.25.0 on), where the first layer's
    backend counts a quantised token: one byte per element.
    """
    unit = max(DEFAULT, block)
    return unit * cdiv(edges.kept * DEFAULT, unit * edges.quantised) if edges.kept > edges.quantised else block


def attention_block(parts: Sequence[CacheLayer], setting: Setting) -> int:
    """Tokens of a block before any alignment to recurrent layers."""
    if any(isinstance(part, V4) for part in parts):
        if setting.asked is not None and setting.asked % V4_BLOCK:
            raise WouldNotStart(f"DeepSeek-V4 needs a block size that is a multiple of {V4_BLOCK}")
        return setting.asked or V4_BLOCK
    if setting.major == "cpu":
        return _cpu_block(parts, setting)
    if setting.release < (0, 18):
        return _forced(parts, setting)
    if setting.asked is not None:
        for part in parts:
            backend_of(part, setting)
        return setting.asked
    backends = list(dict.fromkeys(backend_of(part, setting) for part in parts))
    if not backends:
        return DEFAULT
    if setting.release < (0, 31):
        backends = backends[:1]
    return _preferred(backends)


def _preferred(backends: Sequence[Backend]) -> int:
    """16 where every backend takes it, else the smallest size that all of them take."""
    if len(backends) == 1:
        only = backends[0]
        return DEFAULT if only.takes(DEFAULT) else only.least or only.smallest()
    if all(backend.takes(DEFAULT) for backend in backends):
        return DEFAULT
    choices = [{backend.least or size for size in _bases(backend)} for backend in backends]
    for candidate in sorted({lcm(*sizes) for sizes in product(*choices)}):
        if all(backend.takes(candidate) for backend in backends):
            return candidate
    names = ", ".join(backend.name for backend in backends)
    raise WouldNotStart(f"the attention backends {names} share no block size")


def _bases(backend: Backend) -> tuple[int, ...]:
    return tuple(size if isinstance(size, int) else size.base for size in backend.sizes)


def _cpu_block(parts: Sequence[CacheLayer], setting: Setting) -> int:
    """Blocks of the CPU backend: 128, or 16 for MLA (platforms/cpu.py; 16 without its extension up to 0.11.0)."""
    if any(isinstance(part, Latent) for part in parts) and setting.release >= (0, 31):
        return DEFAULT
    return setting.asked or (_CPU_DEFAULT if setting.release >= (0, 11, 2) else DEFAULT)


def _forced(parts: Sequence[CacheLayer], setting: Setting) -> int:
    """Releases before 0.18 start from 16 and force what the default MLA backend needs.

    0.8.3 to 0.17: FlashMLA 64 (Hopper). Blackwell: CUTLASS_MLA 128 from 0.10.0, FlashInfer-MLA 64 from 0.15.0. Sparse
    MLA 64 from 0.11.0. Up to 0.11.0 any other size is replaced, later only one that is no multiple.
    """
    block = setting.asked or DEFAULT
    if not any(isinstance(part, Latent) for part in parts) or setting.release < (0, 8, 3):
        return block
    needed = 64
    if setting.major == "10":
        if setting.release < (0, 10):
            return block
        needed = 128 if setting.release < (0, 15) else 64
    elif setting.major != "9":
        return block
    if any(isinstance(part, Index) for part in parts):
        return 64
    wrong = block % needed if setting.release >= (0, 12) else block != needed
    return needed if wrong else block


def _aligned(
    block: int, parts: Sequence[CacheLayer], setting: Setting, pages: Pages, caching: Caching, longest: int
) -> Blocks:
    """Raise the attention block until its page covers a recurrent layer's state, and pad that state to the page.

    Source: 0.32.0 platforms/interface.py _align_hybrid_block_size (0.20.0 on); before it models/config.py
    HybridAttentionMambaModelConfig (0.10.0 on). 0.9.2 leaves the block to the user.
    """
    if setting.release < (0, 10):
        return Blocks(block, longest, None)
    unit, rounding = _alignment(block, parts, setting)
    if _by_chunks(setting, caching):
        unit = lcm(caching.chunk, unit)
        needed = unit * cdiv(cdiv(pages.state, pages.token), unit)
    else:
        needed = unit * cdiv(pages.state, unit * pages.token)
    needed = rounding * cdiv(needed, rounding)
    mamba = needed if _by_chunks(setting, caching) else longest
    attention = max(block, needed)
    if caching.mode == "align":
        mamba = attention
    page = attention * pages.token
    return Blocks(attention, mamba, None if page == pages.state else page)


def _alignment(block: int, parts: Sequence[CacheLayer], setting: Setting) -> tuple[int, int]:
    """Tokens that the attention block counts in, and the multiple it is finally rounded to."""
    latent = any(isinstance(part, Latent) for part in parts)
    if setting.release < (0, 20):
        if setting.release >= (0, 11, 1) and latent:
            return 64, 1
        wide = setting.major == "10" and setting.widest == 256 and not latent and setting.release >= (0, 11, 1)
        return (32 if wide else DEFAULT), 1
    backends = list(dict.fromkeys(backend_of(part, setting) for part in parts))
    unit = max(backends[0].smallest(), block)
    if latent and setting.release >= (0, 27):
        unit = max(unit, 128)
    rounding = lcm(*(backend.smallest() for backend in backends)) if setting.release >= (0, 32) else 1
    return unit, rounding


def _by_chunks(setting: Setting, caching: Caching) -> bool:
    """Whether a block holds whole chunks of the model: with prefix caching in 0.11.1 to 0.14, later in mode "all"."""
    if (0, 11, 1) <= setting.release < (0, 15):
        return caching.prefix_caching
    return caching.mode == "all"


def state_bytes(state: State, sizes: Sequence[int]) -> int:
    """Bytes of all states of one recurrent layer (MambaSpec.page_size_bytes)."""
    return sum(prod(shape) * size for shape, size in zip(state.shapes, sizes, strict=True))


def window_block(backend: Backend, block: int) -> int:
    """Block of a sliding layer: the largest its kernels take within a common block, else their smallest.

    Source: 0.32.0 attention.py _largest_kernel_block_within (0.25.0 on; before, the common block).
    """
    fixed = [size for size in backend.sizes if isinstance(size, int)]
    free = [max(size.base, block // size.base * size.base) for size in backend.sizes if not isinstance(size, int)]
    fitting = [size for size in (*fixed, *free) if size <= block]
    return max(fitting) if fitting else min(*fixed, *free)
