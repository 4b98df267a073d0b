"""The launch settings that decide a plan, under vLLM's own option names."""

from __future__ import annotations

from collections.abc import Mapping

from parsers.tuples import NamedTuple
from reconstruct.planner.errors import BadSetting

AUTO_FIT = -1
"""vLLM's spelling of "the longest request that fits" for max_model_len (0.14.1 on)."""


class Speculation(NamedTuple):
    """A draft: its method, how many tokens it proposes, and its own config.json where it has one.

    The prompt_lookup options belong to n-gram drafts and bear on no cache.
    """

    method: str
    num_speculative_tokens: int = 1
    config: Mapping[str, object] | None = None
    model: str | None = None
    prompt_lookup_max: int | None = None
    prompt_lookup_min: int | None = None


class Launch(NamedTuple):
    """One start of one engine release. None means that the option was not given.

    `block_size` as the user gave it; layer specs carry the one in force. `device` names the card (H100, B200, CPU).
    `max_num_batched_tokens` defaults to 8192, the API server's own default on cards of 70 GiB and more (vllm 0.32.0,
    engine/arg_utils.py); it matters only to windows, chunks and encoder caches. `autofit` asks for the longest request
    that fits, starting from `max_model_len`; a `max_model_len` of -1 asks the same from the model's own length.
    `allow_long_max_model_len` is VLLM_ALLOW_LONG_MAX_MODEL_LEN, `kv_cache_layout` VLLM_KV_CACHE_LAYOUT, `use_v1`
    VLLM_USE_V1: not given, V1 is planned from 0.7.3 on.
    """

    engine_version: str
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    decode_context_parallel_size: int = 1
    prefill_context_parallel_size: int = 1
    dtype: str = "auto"
    kv_cache_dtype: str = "auto"
    block_size: int | None = None
    max_model_len: int | None = None
    autofit: bool = False
    max_num_seqs: int | None = None
    max_num_batched_tokens: int = 8192
    max_num_encoder_input_tokens: int | None = None
    num_gpu_blocks_override: int | None = None
    disable_hybrid_kv_cache_manager: bool = False
    enable_prefix_caching: bool | None = None
    mamba_cache_mode: str | None = None
    async_scheduling: bool | None = None
    speculative_config: Speculation | None = None
    allow_long_max_model_len: bool = False
    kv_cache_layout: str | None = None
    use_v1: bool | None = None
    runner: str = "auto"
    device: str = "H100"

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, object]) -> Launch:
        """Read settings from plain values; the release must stand under `engine_version`.

        Raises BadSetting (a ValueError) for an unknown key, a missing release or a value of the wrong type.
        """
        unknown = sorted(set(mapping) - set(cls._fields))
        if unknown:
            raise BadSetting(f"unknown launch settings {', '.join(unknown)}; known are {', '.join(cls._fields)}")
        if "engine_version" not in mapping:
            raise BadSetting("launch settings need engine_version: the plan differs between releases")
        given = {key: _read(key, value) for key, value in mapping.items()}
        return cls(**given)  # type: ignore[arg-type]  # _read checked each value against its field


_WHOLE = frozenset(
    {
        "tensor_parallel_size",
        "pipeline_parallel_size",
        "decode_context_parallel_size",
        "prefill_context_parallel_size",
        "block_size",
        "max_num_seqs",
        "max_num_batched_tokens",
        "max_num_encoder_input_tokens",
        "num_gpu_blocks_override",
    }
)
_FLAGS = frozenset(
    {
        "allow_long_max_model_len",
        "autofit",
        "disable_hybrid_kv_cache_manager",
        "enable_prefix_caching",
        "async_scheduling",
        "use_v1",
    }
)
_UNSET = {key for key, default in Launch._field_defaults.items() if default is None}


def _read(key: str, value: object) -> object:
    if value is None and key in _UNSET:
        return None
    if key == "speculative_config":
        return value if isinstance(value, Speculation) else _speculation(value)
    if key in _FLAGS:
        if isinstance(value, bool):
            return value
        raise BadSetting(f"launch setting {key} must be true or false, got {value!r}")
    if key in _WHOLE or key == "max_model_len":
        smallest = AUTO_FIT if key == "max_model_len" else 1
        if isinstance(value, int) and not isinstance(value, bool) and value >= smallest and value != 0:
            return value
        raise BadSetting(f"launch setting {key} must be a positive whole number, got {value!r}")
    if isinstance(value, str) and value:
        return value
    raise BadSetting(f"launch setting {key} must be a string, got {value!r}")


def _speculation(value: object) -> Speculation:
    if not isinstance(value, Mapping):
        raise BadSetting(f"speculative_config must be a mapping, got {value!r}")
    unknown = sorted(set(value) - set(Speculation._fields))
    if unknown or not isinstance(value.get("method"), str):
        raise BadSetting(f"speculative_config needs method and knows {', '.join(Speculation._fields)}; got {value!r}")
    return Speculation(**value)
