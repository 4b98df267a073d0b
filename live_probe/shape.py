"""The geometry of a dense decoder from its config.json, or why the probe's own decoder cannot stand for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

JsonValue = str | int | float | bool | None | Sequence["JsonValue"] | Mapping[str, "JsonValue"]
JsonObject = Mapping[str, JsonValue]
DtypeName = Literal["bfloat16", "float16", "float32"]

_FAMILIES = {"llama": False, "mistral": False, "qwen2": True, "qwen3": False}
"""The architectures written out in decoder.py, and whether their attention has biases that no config field tells."""
_ROPES = ("default", "llama3", "linear", "dynamic", "yarn")
_VOCABULARY_STEP = 64


class UnsupportedModelError(ValueError):
    """A model that the probe's own decoder does not stand for; the engine itself can still be probed."""


class DecoderShape(NamedTuple):
    """Widths and counts of a dense decoder with grouped-query attention and a gated MLP.

    `padded_vocab` is vocab_size padded to 64 rows, as vLLM pads embeddings (VocabParallelEmbedding). `rope_rows` is
    the length of the cos/sin cache.
    """

    architectures: tuple[str, ...]
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    padded_vocab: int
    max_positions: int
    rope_rows: int
    tied: bool
    attention_bias: bool
    qk_norm: bool
    dtype: DtypeName

    @property
    def query_size(self) -> int:
        """Width of all query heads together."""
        return self.heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Width of all key heads together."""
        return self.kv_heads * self.head_dim


def decoder_shape(config: JsonObject) -> DecoderShape:
    """Read a config.json.

    Raises:
        UnsupportedModelError: the model is no dense decoder of a family written out here, or a field is missing.

    """
    family = config.get("model_type")
    if family not in _FAMILIES or not isinstance(family, str):
        raise _unsupported(f"model_type {family!r} is not among {', '.join(_FAMILIES)}")
    _refuse_specials(config)
    hidden, heads = _count(config, "hidden_size"), _count(config, "num_attention_heads")
    positions = _count(config, "max_position_embeddings")
    vocab = _count(config, "vocab_size")
    return DecoderShape(
        architectures=_names(config.get("architectures")),
        layers=_count(config, "num_hidden_layers"),
        hidden=hidden,
        intermediate=_count(config, "intermediate_size"),
        heads=heads,
        kv_heads=_count(config, "num_key_value_heads", heads),
        head_dim=_count(config, "head_dim", hidden // heads),
        vocab=vocab,
        padded_vocab=-(-vocab // _VOCABULARY_STEP) * _VOCABULARY_STEP,
        max_positions=positions,
        rope_rows=_rope_rows(config, positions),
        tied=config.get("tie_word_embeddings") is True,
        attention_bias=_FAMILIES[family] or config.get("attention_bias") is True,
        qk_norm=family == "qwen3",
        dtype=_dtype(config),
    )


def _refuse_specials(config: JsonObject) -> None:
    for field, what in (
        ("quantization_config", "quantised weights"),
        ("vision_config", "a vision tower"),
        ("num_experts", "experts"),
        ("num_local_experts", "experts"),
        ("kv_lora_rank", "latent attention"),
    ):
        if config.get(field):
            raise _unsupported(f"{field}: {what} are not written out")
    slides = config.get("sliding_window") and config.get("use_sliding_window", config["model_type"] == "mistral")
    if slides:
        raise _unsupported("sliding_window: windowed attention plans its cache another way")


def _rope_rows(config: JsonObject, positions: int) -> int:
    """Length of RotaryEmbedding.cos_sin_cache (vllm/model_executor/layers/rotary_embedding, 0.8-0.33)."""
    scaling = config.get("rope_scaling") or config.get("rope_parameters") or {}
    if not isinstance(scaling, Mapping):
        raise _unsupported("rope_scaling is no object")
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind not in _ROPES:
        raise _unsupported(f"rope type {kind!r} is not among {', '.join(_ROPES)}")
    factor = scaling.get("factor", 1.0)
    if not isinstance(factor, int | float):
        raise _unsupported("rope_scaling.factor is no number")
    if kind == "yarn":
        original = scaling.get("original_max_position_embeddings", positions)
        return int((original if isinstance(original, int) else positions) * factor)
    return int(positions * factor) if kind in ("linear", "dynamic") else positions


def _dtype(config: JsonObject) -> DtypeName:
    """Give what `--dtype auto` makes of the config: float32 weights are served at 16 bits."""
    written = config.get("dtype", config.get("torch_dtype", "float16"))
    if written == "float16":
        return "float16"
    if written in ("bfloat16", "float32"):
        return "bfloat16"
    raise _unsupported(f"torch_dtype {written!r} is not bfloat16, float16 or float32")


def _count(config: JsonObject, field: str, default: int | None = None) -> int:
    value = config.get(field)
    if value is None and default is not None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise _unsupported(f"{field} is {value!r}, not a positive whole number")
    return value


def _names(value: JsonValue) -> tuple[str, ...]:
    return tuple(str(name) for name in value) if isinstance(value, Sequence) and not isinstance(value, str) else ()


def _unsupported(reason: str) -> UnsupportedModelError:
    return UnsupportedModelError(f"the torch engine has no such decoder: {reason}; use --engine vllm")
