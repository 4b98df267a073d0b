"""The model's dtype and the cache's: what "auto" means for a release, a checkpoint and a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconstruct.planner.config_backends import capability
from reconstruct.planner.errors import Unsupported, WouldNotStart
from reconstruct.planner.models.view import architecture_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconstruct.planner.launch import Launch

_NAMES = {"half": "float16", "float": "float32", "float16": "float16", "bfloat16": "bfloat16", "float32": "float32"}
_MODELOPT = {"fp8": "fp8_e4m3", "nvfp4": "nvfp4"}
_PARTS = ("text_config", "vision_config", "encoder_config")

STORED_AS = {
    "fp8": "uint8",
    "fp8_e4m3": "uint8",
    "fp8_e5m2": "uint8",
    "fp8_per_token_head": "uint8",
    "fp8_ds_mla": "uint8",
    "nvfp4_ds_mla": "uint8",
    "int8": "int8",
    "int8_per_token_head": "int8",
    "int4_per_token_head": "uint8",
    "nvfp4": "uint8",
    "turboquant_k8v4": "uint8",
    "turboquant_4bit_nc": "uint8",
    "turboquant_k3v4_nc": "uint8",
    "turboquant_3bit_nc": "uint8",
    **_NAMES,
}
"""Torch dtype of each cache dtype (vllm 0.32.0 utils/torch_utils.py STR_DTYPE_TO_TORCH_DTYPE)."""

_FIRST = {
    "fp8": (0, 4),
    "fp8_e4m3": (0, 4),
    "fp8_e5m2": (0, 3),
    "fp8_ds_mla": (0, 11),
    "bfloat16": (0, 11),
    "float16": (0, 20),
    "int8_per_token_head": (0, 20),
    "fp8_per_token_head": (0, 20),
    "turboquant_k8v4": (0, 20),
    "turboquant_4bit_nc": (0, 20),
    "turboquant_k3v4_nc": (0, 20),
    "turboquant_3bit_nc": (0, 20),
    "nvfp4": (0, 21),
    "int4_per_token_head": (0, 25),
    "nvfp4_ds_mla": (0, 32),
}
"""First release that takes a cache dtype (config/cache.py CacheDType)."""


def model_dtype(config: Mapping[str, object], launch: Launch, release: tuple[int, ...]) -> str:
    """Dtype that the model runs in.

    Source: vllm 0.32.0 config/model.py _get_and_verify_dtype, model_arch_config_convertor.py get_torch_dtype. A float32
    checkpoint runs in the device's preferred type (0.9.1 on) or in float16 (before; Gemma 2 and 3 in bfloat16 up to
    0.8.0). Raises Unsupported where the config states none: the engine then looks into the checkpoint.
    """
    if launch.dtype != "auto":
        if launch.dtype not in _NAMES:
            raise WouldNotStart(f"dtype {launch.dtype!r} is not one of {', '.join(sorted(_NAMES))}")
        return _NAMES[launch.dtype]
    stated = _stated(config)
    if stated is None:
        raise Unsupported("the config states no dtype, so the engine reads it off the checkpoint; give --dtype")
    if stated != "float32":
        return stated
    if release >= (0, 9, 1):
        return "float16" if launch.runner == "pooling" else "bfloat16"
    is_gemma = str(config.get("model_type")).startswith(("gemma2", "gemma3"))
    return "bfloat16" if is_gemma and release < (0, 8, 1) else "float16"


def _stated(config: Mapping[str, object]) -> str | None:
    places: list[object] = [config, *(config.get(part) for part in _PARTS)]
    for place in places:
        if isinstance(place, dict):
            value = place.get("dtype", place.get("torch_dtype"))
            if isinstance(value, str):
                name = value.removeprefix("torch.")
                if name not in _NAMES:
                    raise Unsupported(f"the config's dtype {value!r} is not known; give --dtype")
                return _NAMES[name]
    return None


def cache_dtype(config: Mapping[str, object], launch: Launch, release: tuple[int, ...]) -> str:
    """Cache dtype in force, "auto" standing for the model's own.

    Source: vllm 0.32.0 utils/torch_utils.py resolve_kv_cache_dtype_string (checkpoints that ModelOpt quantised, from
    0.14.0), attention.py Attention.__init__ (other checkpoints with a kv_cache_scheme, from 0.15.0), models/config.py
    (DeepSeek V3.2; GLM-5 on data-centre Blackwell, from 0.32.0). Raises WouldNotStart for a dtype that the release does not have.
    """
    asked = launch.kv_cache_dtype
    if asked != "auto":
        first = _FIRST.get(asked)
        if first is None:
            raise Unsupported(f"cache dtype {asked!r} is not known here")
        if release < first:
            raise WouldNotStart(f"vLLM {launch.engine_version} has no cache dtype {asked!r}")
        if (0, 15) <= release < (0, 22) and _has_scheme(config):
            return "fp8"
        is_v32 = architecture_of(config) == "DeepseekV32ForCausalLM"
        return "auto" if asked == "bfloat16" and is_v32 else asked
    chosen = _from_checkpoint(config, release)
    is_glm = architecture_of(config) == "GlmMoeDsaForCausalLM"
    if chosen == "auto" and is_glm and release >= (0, 32) and capability(launch.device) == "10":
        return "fp8_e4m3"
    return chosen


def _from_checkpoint(config: Mapping[str, object], release: tuple[int, ...]) -> str:
    quantization = config.get("quantization_config")
    if not isinstance(quantization, dict):
        return "auto"
    method = str(quantization.get("quant_method", ""))
    if method.startswith("modelopt"):
        return _modelopt(quantization) if release >= (0, 14) else "auto"
    return "fp8" if release >= (0, 15) and _has_scheme(config) else "auto"


def _has_scheme(config: Mapping[str, object]) -> bool:
    """Whether a compressed-tensors checkpoint says how to quantise the cache; up to 0.21 that beats the user's word."""
    quantization = config.get("quantization_config")
    if not isinstance(quantization, dict):
        return False
    method = str(quantization.get("quant_method", "")).replace("_", "-")
    return method == "compressed-tensors" and bool(quantization.get("kv_cache_scheme"))


def _modelopt(quantization: Mapping[str, object]) -> str:
    """Cache dtype by kv_cache_scheme or kv_cache_quant_algo, at the top or under "quantization"."""
    inner = quantization.get("quantization", quantization)
    places = [place for place in (inner, quantization) if isinstance(place, dict)]
    algorithm: object = next((place["kv_cache_scheme"] for place in places if place.get("kv_cache_scheme")), None)
    if algorithm is None:
        algorithm = next((place["kv_cache_quant_algo"] for place in places if place.get("kv_cache_quant_algo")), None)
    if isinstance(algorithm, dict):
        bits, kind = algorithm.get("num_bits"), algorithm.get("type")
        if kind == "float" and bits == 8 and algorithm.get("dynamic") is False:
            algorithm = "fp8"
        elif kind == "float" and bits == 4:
            algorithm = "nvfp4"
    return _MODELOPT.get(algorithm.lower(), "auto") if isinstance(algorithm, str) else "auto"


def quant_mode(dtype: str) -> str:
    """Name, as vLLM has it, of a cache dtype's layout (kv_cache_interface.py get_kv_quant_mode)."""
    if dtype in {"int8_per_token_head", "fp8_per_token_head", "int4_per_token_head"} or dtype.startswith("turboquant"):
        return dtype.upper()
    if dtype.startswith("nvfp4"):
        return "NVFP4"
    return "FP8_PER_TENSOR" if dtype.startswith("fp8") else "NONE"
