"""What a model class registers for each decoder layer, before a release and its backends make specs of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple

if TYPE_CHECKING:
    from reconstruct.planner.models.view import View


class Attention(NamedTuple):
    """Keys and values of a token. Head counts are the model's, not a rank's.

    window: sliding window in tokens; chunk: chunked local attention. cross: attends to the encoder. honours: the class
    hands the cache settings to the layer (Falcon with rotary embedding does not, so its cache stays in the model's
    dtype). sinks, alibi: what the attention backend must know. sparse: selects blocks by an index cache.
    """

    heads: int
    kv_heads: int
    head_size: int
    head_size_v: int | None = None
    window: int | None = None
    chunk: int | None = None
    cross: bool = False
    honours: bool = True
    sinks: bool = False
    alibi: bool = False
    sparse: bool = False


class Latent(NamedTuple):
    """One compressed vector per token (multi-head latent attention): its width, and whether an indexer selects."""

    heads: int
    width: int
    sparse: bool = False


class Index(NamedTuple):
    """Key cache of a sparse-attention indexer: bytes or elements per token.

    in_model_dtype: MiniMax-M3 keeps keys in the model's dtype, DeepSeek packs fp8 values and their scales.
    """

    width: int
    in_model_dtype: bool = False


class State(NamedTuple):
    """Recurrent state: one (shape, role) per tensor of one rank. A role is "conv" or "ssm" and decides the dtype."""

    kind: str
    shapes: tuple[tuple[int, ...], ...]
    roles: tuple[str, ...]
    checkpoints: bool = False


class V4(NamedTuple):
    """One DeepSeek-V4 layer.

    compress: tokens of a state (1, 4 or 128); index_head: width of an indexer's key.
    """

    compress: int
    head_size: int
    window: int
    index_head: int


CacheLayer = Attention | Latent | Index | State | V4


class Geometry(NamedTuple):
    """All cache layers of a model, decoder layer by decoder layer.

    heads, kv_heads, head_size: of the config as a whole, which the engine uses for block alignment and divisibility.
    pipelines: whether the class supports pipeline parallelism. mm_prefix: image tokens attend both ways.
    ssm_dtype: dtype of the ssm state that the model asks for ("auto": that of the conv state). drafts: layers of the
    model's own prediction modules.
    """

    view: View
    layers: tuple[tuple[CacheLayer, ...], ...]
    heads: int
    kv_heads: int
    head_size: int
    hybrid: bool = False
    attention_free: bool = False
    encoder_decoder: bool = False
    pipelines: bool = True
    mm_prefix: bool = False
    ssm_dtype: str = "auto"
    drafts: tuple[tuple[CacheLayer, ...], ...] = ()


class Shard(NamedTuple):
    """How the model is cut and run: what geometry may depend on."""

    tensor_parallel_size: int
    release: tuple[int, ...]
    num_speculative_tokens: int = 0
