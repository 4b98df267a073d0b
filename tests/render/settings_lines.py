"""Banner, arguments and the engine configuration, as each release prints them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.render.numbers_as_printed import GIB

if TYPE_CHECKING:
    from tests.render.truth import Truth

BANNER = (
    "",
    "       █     █     █▄   ▄█",
    " ▄▄ ▄█ █     █     █ ▀▄▀ █  version {version}",
    "  █▄█▀ █     █     █     █  model   {model}",
    "   ▀▀  ▀▀▀▀▀ ▀▀▀▀▀ ▀     ▀",
    "",
)
"""What replaced the plain version line in the API server (0.15+ entrypoints/utils.py log_version_and_model)."""


def namespace(truth: Truth) -> str:
    """`args: Namespace(...)`, every argument (up to 0.8.5)."""
    values = {
        "host": None,
        "port": 8000,
        "model": truth.model,
        "tokenizer": None,
        "dtype": "auto",
        **({"kv_cache_dtype": truth.kv_cache_dtype} if truth.since("0.3.0") else {}),
        "max_model_len": truth.asked_length,
        "pipeline_parallel_size": truth.pp,
        "tensor_parallel_size": truth.tp,
        **({"data_parallel_size": truth.dp} if truth.since("0.8.0") else {}),
        "block_size": None if truth.since("0.8.0") and truth.block_size == 16 else truth.block_size,
        "swap_space": truth.swap_space // GIB,
        "gpu_memory_utilization": truth.gpu_memory_utilization,
        **({"num_gpu_blocks_override": truth.num_blocks_override} if truth.since("0.4.3") else {}),
        "max_num_batched_tokens": None,
        "max_num_seqs": truth.max_num_seqs,
        "quantization": truth.quantization,
        "enforce_eager": truth.enforce_eager,
    }
    return f"args: Namespace({', '.join(f'{key}={value!r}' for key, value in values.items())})"


def non_default(truth: Truth) -> str:
    """`non-default args: {...}` (0.9.0+): what equals a default is left out."""
    values: dict[str, object] = {"model_tag": truth.model, "model": truth.model}
    optional = (
        ("max_model_len", truth.asked_length, None),
        ("pipeline_parallel_size", truth.pp, 1),
        ("tensor_parallel_size", truth.tp, 1),
        ("decode_context_parallel_size", truth.dcp, 1),
        ("block_size", truth.block_size, 16),
        ("data_parallel_size", truth.dp, 1),
        ("kv_cache_dtype", truth.kv_cache_dtype, "auto"),
        ("gpu_memory_utilization", truth.gpu_memory_utilization, truth.default_utilization),
        ("kv_cache_memory_bytes", None if truth.startup_plan else truth.kv_cache_memory_bytes, None),
        ("num_gpu_blocks_override", truth.num_blocks_override, None),
        ("max_num_seqs", truth.max_num_seqs, 256),
        ("enforce_eager", truth.enforce_eager, False),
        ("load_format", truth.load_format, "auto"),
        ("mm_ipc_gpu_memory_gb", truth.raw_frame_budget / GIB, 0),
    )
    values |= {key: value for key, value, default in optional if value != default}
    return f"non-default args: {values}"


def arguments(truth: Truth) -> str:
    return non_default(truth) if truth.since("0.9.0") else namespace(truth)


def engine_config(truth: Truth) -> str:
    """The configuration line (engine/llm_engine.py; from 0.7.0 v1/engine/core.py; keys of VllmConfig.__str__)."""
    pairs = ", ".join(f"{key}={value}" for key, value in _pairs(truth).items())
    if truth.between("0.7.0", "0.10.2"):
        pairs = pairs.replace(", device_config=", ",  device_config=")
    if not truth.since("0.4.1"):
        return f"Initializing an LLM engine with config: {pairs})"
    head = f"(v{truth.shown_version}) with config: {pairs}"
    if not truth.since("0.6.4"):
        return f"Initializing an LLM engine {head})"
    cached = ", use_cached_outputs=False, " if truth.v0 else ""
    if not truth.since("0.7.0"):
        return f"Initializing an LLM engine {head}{cached}"
    return f"Initializing a {truth.engine} LLM engine {head}{cached}"


def _pairs(truth: Truth) -> dict[str, object]:
    """Keys in the release's order; 0.6.3 forgets a comma."""
    v, name = truth.since, repr(truth.model)
    dense_dp = truth.dp > 1 and not truth.moe and v("0.14.0")
    keys: tuple[tuple[str, object, bool], ...] = (
        ("model", name, True),
        ("speculative_config", None, v("0.4.1")),
        ("tokenizer", name, True),
        ("skip_tokenizer_init", False, v("0.4.3")),
        ("tokenizer_mode", "auto", True),
        ("revision", None, True),
        ("override_neuron_config", "None" if not v("0.8.0") else "{}", truth.between("0.6.0", "0.10.2")),
        ("rope_scaling", None, truth.between("0.4.3", "0.6.4")),
        ("rope_theta", None, truth.between("0.5.0", "0.6.4")),
        ("tokenizer_revision", None, True),
        ("trust_remote_code", False, True),
        ("dtype", f"torch.{truth.dtype}", True),
        ("max_seq_len", truth.full_model_len, True),
        ("download_dir", None, True),
        ("load_format", "LoadFormat.AUTO" if truth.between("0.4.0", "0.9.1") else truth.load_format, True),
        ("tensor_parallel_size", truth.tp, True),
        ("pipeline_parallel_size", truth.pp, v("0.5.5")),
        ("data_parallel_size", 1 if dense_dp else truth.dp, v("0.10.2")),
        ("decode_context_parallel_size", truth.dcp, v("0.18.0")),
        ("dcp_comm_backend", "ag_rs", v("0.18.0")),
        ("disable_custom_all_reduce", False, v("0.3.0")),
        ("quantization", truth.quantization, True),
        ("quantization_config", None, v("0.20.0")),
        ("enforce_eager", truth.enforce_eager, True),
        ("enable_return_routed_experts", False, truth.between("0.14.0", "0.31.0")),
        ("aux_output_config", None, v("0.31.0")),
        ("kv_cache_dtype", truth.kv_cache_dtype, v("0.3.0")),
        ("quantization_param_path", None, truth.between("0.4.1", "0.7.0")),
        ("device_config", "cuda", v("0.3.0")),
        ("decoding_config", "DecodingConfig(guided_decoding_backend='xgrammar')", truth.between("0.4.1", "0.11.0")),
        ("structured_outputs_config", "StructuredOutputsConfig(backend='auto', reasoning_parser='')", v("0.11.0")),
        ("observability_config", "ObservabilityConfig(otlp_traces_endpoint=None)", v("0.5.1")),
        ("seed", 0, True),
        ("served_model_name", truth.model, v("0.4.1")),
        ("use_v2_block_manager", False, truth.between("0.5.1", "0.6.4")),
        ("num_scheduler_steps", 1, truth.between("0.6.0", "0.10.1")),
        ("chunked_prefill_enabled", "False multi_step_stream_outputs=True", truth.between("0.6.3", "0.6.4")),
        ("multi_step_stream_outputs", True, truth.between("0.6.4", "0.10.1")),
        ("enable_prefix_caching", not truth.v0, v("0.5.1")),
        ("chunked_prefill_enabled", not truth.v0, truth.between("0.6.4", "0.11.1")),
        ("enable_chunked_prefill", True, v("0.11.1")),
        ("use_async_output_proc", True, truth.between("0.6.0", "0.11.0")),
        ("use_cached_outputs", False, truth.between("0.6.3", "0.6.4")),
        ("mm_processor_kwargs", None, truth.between("0.6.3", "0.9.0")),
        ("pooler_config", None, v("0.6.4")),
        ("compilation_config", _compilation(truth), v("0.6.4")),
        ("kernel_config", "KernelConfig(enable_flashinfer_autotune=True)", v("0.20.0")),
    )
    return {key: value for key, value, present in keys if present}  # no key is present twice


def _compilation(truth: Truth) -> str:
    """A nested repr with commas and braces inside, as the real one has."""
    sizes = [] if truth.enforce_eager else [1, 2, 4, 8, *range(16, 513, 16)]
    if not truth.since("0.12.0"):
        level = 0 if truth.v0 else 3
        return f'{{"level":{level},"splitting_ops":[],"cudagraph_capture_sizes":{sizes},"max_capture_size":512}}'
    return (
        "{'mode': <CompilationMode.VLLM_COMPILE: 3>, 'debug_dump_path': None, 'backend': 'inductor', "
        "'splitting_ops': ['vllm::unified_attention', 'vllm::mamba_mixer2'], "
        "'cudagraph_mode': <CUDAGraphMode.FULL_AND_PIECEWISE: (2, 1)>, "
        f"'cudagraph_capture_sizes': {sizes}, 'max_cudagraph_capture_size': {max(sizes, default=0)}}}"
    )
