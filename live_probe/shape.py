"""One rank's share of a decoder from its config.json, or why the probe's own decoder cannot stand for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from live_probe.families import FAMILIES
from live_probe.rope import UnknownRopeError, ropes_of

if TYPE_CHECKING:
    from live_probe.families import Bias, Family
    from live_probe.rope import Ropes

JsonValue = str | int | float | bool | None | Sequence["JsonValue"] | Mapping[str, "JsonValue"]
JsonObject = Mapping[str, JsonValue]
DtypeName = Literal["bfloat16", "float16", "float32"]

_VOCABULARY_STEP = 64
_MOST = 1 << 24
"""Far beyond any width, vocabulary or length; torch counts a tensor's bytes in 63 bits."""
_DEEPEST = 1 << 12
"""Far beyond any number of layers, each of which is gone through."""


class UnsupportedModelError(ValueError):
    """A model that the probe's own decoder does not stand for; the engine itself can still be probed."""


class ExpertShape(NamedTuple):
    """The experts of a layer: how many, how many a token takes, and the width of this rank's share of each.

    `shared`: this rank's width of the expert that every token takes; 0 where there is none.
    """

    number: int
    chosen: int
    intermediate: int
    shared: int


class DecoderShape(NamedTuple):
    """Widths and counts of one of `ranks` tensor-parallel ranks: a decoder with gated MLPs.

    Heads, `intermediate` and `vocab_rows` are this rank's; keys of fewer heads than ranks are held by several.
    `vocab_rows` come from vocab_size padded to 64, as vLLM pads embeddings (VocabParallelEmbedding). `norms` counts those
    of a layer's whole width. `ropes`: the cos/sin caches. `sparse`: which layers have `experts` instead of one MLP, of
    which `intermediate` is the width (0 where none is dense).
    """

    architectures: tuple[str, ...]
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    vocab_rows: int
    max_positions: int
    ropes: Ropes
    tied: bool
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    norms: int
    head_norms: bool
    fresh_norms: bool
    scaled_embedding: bool
    dtype: DtypeName
    experts: ExpertShape | None
    sparse: tuple[bool, ...]
    ranks: int = 1

    @property
    def query_size(self) -> int:
        """Width of all query heads together."""
        return self.heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Width of all key heads together."""
        return self.kv_heads * self.head_dim


def decoder_shape(config: JsonObject, ranks: int = 1) -> DecoderShape:
    """Read a config.json and give the share of one of `ranks` tensor-parallel ranks.

    vLLM 0.8-0.33, vllm/model_executor/layers/linear.py: QKVParallelLinear, MergedColumnParallelLinear.

    Raises:
        UnsupportedModelError: the model is of no family written out here, a field is missing, or the ranks cannot share
            it evenly.

    """
    family = _family(config)
    _refuse_specials(config, family)
    hidden, heads = _count(config, "hidden_size"), _count(config, "num_attention_heads")
    key_heads = _count(config, "num_key_value_heads", heads)
    if heads % key_heads:  # vllm/model_executor/layers/attention: Attention asserts it
        raise _unsupported(f"num_attention_heads {heads} is not divisible by num_key_value_heads {key_heads}")
    head_dim = _count(config, "head_dim", hidden // heads)
    layers, positions = _count(config, "num_hidden_layers", most=_DEEPEST), _count(config, "max_position_embeddings")
    vocab, tied = _count(config, "vocab_size"), config.get("tie_word_embeddings")
    sparse = _sparse(config, family, layers)
    return DecoderShape(
        architectures=_names(config.get("architectures")),
        layers=layers,
        hidden=hidden,
        intermediate=0 if all(sparse) else _share(_count(config, "intermediate_size"), ranks, "intermediate_size"),
        heads=_share(heads, ranks, "num_attention_heads"),
        kv_heads=_key_heads(key_heads, ranks),
        head_dim=head_dim,
        vocab=vocab,
        vocab_rows=_share(-(-vocab // _VOCABULARY_STEP) * _VOCABULARY_STEP, ranks, "the padded vocab_size"),
        max_positions=positions,
        ropes=_ropes(config, family, layers, positions, head_dim),
        tied=family.tied if tied is None else tied is True,
        qkv_bias=_has_bias(family.qkv_bias, config, "attention_bias"),
        output_bias=_has_bias(family.output_bias, config, "attention_bias"),
        mlp_bias=_has_bias(family.mlp_bias, config, "mlp_bias"),
        norms=family.norms,
        head_norms=family.head_norms,
        fresh_norms=family.fresh_norms,
        scaled_embedding=family.scaled_embedding,
        dtype=_dtype(config),
        experts=_experts(config, family, ranks) if any(sparse) else None,
        sparse=sparse,
        ranks=ranks,
    )


def _family(config: JsonObject) -> Family:
    name = config.get("model_type")
    family = FAMILIES.get(name) if isinstance(name, str) else None
    if family is None:
        raise _unsupported(f"model_type {name!r} is not among {', '.join(FAMILIES)}")
    return family


def _ropes(config: JsonObject, family: Family, layers: int, positions: int, head_dim: int) -> Ropes:
    try:
        return ropes_of(config, family, layers, positions, head_dim)
    except UnknownRopeError as unknown:
        raise _unsupported(str(unknown)) from None


def _sparse(config: JsonObject, family: Family, layers: int) -> tuple[bool, ...]:
    """Tell which layers have experts (0.8-0.33 models/mixtral.py, qwen2_moe.py: the decoder layer's __init__)."""
    if family.experts != "by step":
        return (family.experts == "every layer",) * layers
    step, dense = _count(config, "decoder_sparse_step", 1), config.get("mlp_only_layers") or ()
    if not isinstance(dense, Sequence):
        raise _unsupported("mlp_only_layers is no list")
    return tuple(layer not in dense and (layer + 1) % step == 0 for layer in range(layers))


def _experts(config: JsonObject, family: Family, ranks: int) -> ExpertShape:
    by_step = family.experts == "by step"
    width = "moe_intermediate_size" if by_step else "intermediate_size"
    shared = "shared_expert_intermediate_size"
    return ExpertShape(
        number=_count(config, "num_experts" if by_step else "num_local_experts"),
        chosen=_count(config, "num_experts_per_tok"),
        intermediate=_share(_count(config, width), ranks, width),
        shared=_share(_count(config, shared), ranks, shared) if by_step and config.get(shared) else 0,
    )


def _has_bias(rule: Bias, config: JsonObject, field: str) -> bool:
    return rule == "always" or (rule == "stated" and config.get(field) is True)


def _share(whole: int, ranks: int, what: str) -> int:
    if whole % ranks:
        raise _unsupported(f"{what} {whole} is not divisible by {ranks} ranks")
    return whole // ranks


def _key_heads(heads: int, ranks: int) -> int:
    """Give a rank's key heads: where there are fewer than ranks, each is held by several (QKVParallelLinear)."""
    if heads >= ranks:
        return _share(heads, ranks, "num_key_value_heads")
    if ranks % heads:
        raise _unsupported(f"{ranks} ranks is not divisible by num_key_value_heads {heads}")
    return 1


def _refuse_specials(config: JsonObject, family: Family) -> None:
    experts = (("num_experts", "experts"), ("num_local_experts", "experts")) if family.experts == "none" else ()
    for field, what in (
        ("quantization_config", "quantised weights"),
        ("vision_config", "a vision tower"),
        ("kv_lora_rank", "latent attention"),
        *experts,
    ):
        if config.get(field):
            raise _unsupported(f"{field}: {what} are not written out")
    types = config.get("layer_types") or ()
    others = set(types) - {"full_attention", "sliding_attention"} if isinstance(types, Sequence) else {types}
    if others:
        raise _unsupported(f"layer_types: {', '.join(sorted(map(str, others)))} is not written out")


def _dtype(config: JsonObject) -> DtypeName:
    """Give what `--dtype auto` makes of the config: float32 weights are served at 16 bits."""
    written = config.get("dtype", config.get("torch_dtype", "float16"))
    if written == "float16":
        return "float16"
    if written in ("bfloat16", "float32"):
        return "bfloat16"
    raise _unsupported(f"torch_dtype {written!r} is not bfloat16, float16 or float32")


def _count(config: JsonObject, field: str, default: int | None = None, most: int = _MOST) -> int:
    value = config.get(field)
    value = default if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise _unsupported(f"{field} is {value!r}, not a positive whole number")
    if value > most:
        raise _unsupported(f"{field} is {value}, more than any model has")
    return value


def _names(value: JsonValue) -> tuple[str, ...]:
    return tuple(str(name) for name in value) if isinstance(value, Sequence) and not isinstance(value, str) else ()


def _unsupported(reason: str) -> UnsupportedModelError:
    return UnsupportedModelError(f"the torch engine has no such decoder: {reason}; use --engine vllm")
