"""Lines that state what the planner made of the memory: blocks, tokens, concurrency, one request's needs."""

from __future__ import annotations

from parsers.rule import Rule

_MERGED = (
    " KV cache size: {kv_cache_tokens:count} tokens, Maximum concurrency for {max_model_len:count} tokens per request: "
    "{max_concurrency:times}x"
)
_MERGED_SAMPLE = " KV cache size: 262,144 tokens, Maximum concurrency for 4,096 tokens per request: 64.00x"
_NEED = (
    " max seq len ({max_model_len:count}), ({needed_kv_cache_memory:gib} GiB KV cache is needed, which is larger than the "
    "available KV cache memory ({checked_kv_cache_memory:gib} GiB)"
)
_NEED_SAMPLE = (
    " max seq len (131072), (16.0 GiB KV cache is needed, which is larger than the available KV cache memory (9.63 GiB)"
)

RULES = (
    Rule(
        "tokens",
        "GPU KV cache size: {kv_cache_tokens:count} tokens",
        ("0.8.0", "0.27.1"),
        "GPU KV cache size: 261,648 tokens",
    ),
    Rule("tokens", "GPU" + _MERGED, ("0.28.0", "0.33.0"), "GPU" + _MERGED_SAMPLE),
    Rule("tokens", "CPU" + _MERGED, ("0.30.0", "0.33.0"), "CPU" + _MERGED_SAMPLE),
    Rule("tokens", "XPU" + _MERGED, ("0.30.0", "0.33.0"), "XPU" + _MERGED_SAMPLE),
    Rule("tokens", "GPU + host" + _MERGED, ("0.32.0", "0.33.0"), "GPU + host" + _MERGED_SAMPLE),
    Rule(
        "concurrency",
        "Maximum concurrency for {max_model_len:count} tokens per request: {max_concurrency:times}x",
        ("0.6.3", "0.27.1"),
        "Maximum concurrency for 8,192 tokens per request: 131.26x",
    ),
    Rule(
        "blocks",
        "# GPU blocks: {num_blocks:count}, # CPU blocks: {num_cpu_blocks:count}",
        ("0.2.7", "0.6.6.post1"),
        "# GPU blocks: 27890, # CPU blocks: 2048",
        ("# GPU blocks: ", "# CPU blocks: "),
    ),
    Rule("blocks", "# GPU blocks: {num_blocks:count}", ("0.6.6.post1", "0.7.3"), "# GPU blocks: 27890"),
    Rule(
        "blocks",
        "# cuda blocks: {num_blocks:count}, # CPU blocks: {num_cpu_blocks:count}",
        ("0.7.3", "0.11.0"),
        "# cuda blocks: 27890, # CPU blocks: 2048",
        ("# cuda blocks: ",),
    ),
    Rule(
        "blocks",
        "# CUDA blocks: {num_blocks:count}, # CPU blocks: {num_cpu_blocks:count}",
        ("0.7.0", "0.7.2"),
        "# CUDA blocks: 7300, # CPU blocks: 3640",
        ("# CUDA blocks: ",),
    ),
    Rule(
        "blocks",
        "# rocm blocks: {num_blocks:count}, # CPU blocks: {num_cpu_blocks:count}",
        ("0.7.3", "0.11.0"),
        "# rocm blocks: 27890, # CPU blocks: 2048",
        ("# rocm blocks: ",),
    ),
    Rule("cpu_blocks", "# CPU blocks: {num_cpu_blocks:count}", ("0.4.3", "0.6.6.post1"), "# CPU blocks: 2048"),
    # v1/metrics/loggers.py log_engine_initialized; the front end's count is the sum over data-parallel engines.
    Rule(
        "front_end_blocks",
        "Engine {engine:count}: vllm cache_config_info with initialization after num_gpu_blocks is: {num_blocks:count}",
        ("0.9.1", "0.33.0"),
        "Engine 000: vllm cache_config_info with initialization after num_gpu_blocks is: 48867",
    ),
    Rule(
        "front_end_blocks",
        "vllm cache_config_info with initialization after num_gpu_blocks is: {num_blocks:count}",
        ("0.9.0.1", "0.9.0.1"),
        "vllm cache_config_info with initialization after num_gpu_blocks is: 48867",
    ),
    Rule(
        "override",
        "Overriding num_gpu_blocks={computed_num_blocks:count} with num_gpu_blocks_override={override_num_blocks:count}",
        ("0.4.3", "0.33.0"),
        "Overriding num_gpu_blocks=27890 with num_gpu_blocks_override=512",
    ),
    Rule(
        "context_parallel",
        "Multiplying the GPU KV cache size by the dcp_world_size {context_parallel_size:count}.",
        ("0.10.2", "0.11.2"),
        "Multiplying the GPU KV cache size by the dcp_world_size 2.",
    ),
    Rule(
        "context_parallel",
        "Multiplying the GPU KV cache size by the cp_world_size {context_parallel_size:count} (",
        ("0.12.0", "0.19.1"),
        "Multiplying the GPU KV cache size by the cp_world_size 2 (",
    ),
    Rule(
        "need",
        "To serve at least one request with the models's" + _NEED.replace("GiB", "GB"),
        ("0.7.3", "0.8.0"),
        "To serve at least one request with the models's" + _NEED_SAMPLE.replace("GiB", "GB"),
    ),
    Rule(
        "need",
        "To serve at least one request with the models's" + _NEED,
        ("0.8.4", "0.21.0"),
        "To serve at least one request with the models's" + _NEED_SAMPLE,
    ),
    Rule(
        "need",
        "To serve at least one request with the model's" + _NEED,
        ("0.22.1", "0.33.0"),
        "To serve at least one request with the model's" + _NEED_SAMPLE,
    ),
    *(
        Rule(  # the same with the estimate of what would fit (v1/core/kv_cache_utils.py check_enough_kv_cache_memory)
            "need",
            f"To serve at least one request with the {whose}"
            + _NEED
            + ". Based on the available memory, the estimated maximum model length is {estimated_max_model_len:count}.",
            releases,
            f"To serve at least one request with the {whose}"
            + _NEED_SAMPLE
            + ". Based on the available memory, the estimated maximum model length is 78864.",
        )
        for whose, releases in (("models's", ("0.9.1", "0.21.0")), ("model's", ("0.22.1", "0.33.0")))
    ),
    Rule(
        "too_long",
        "The model's max seq len ({max_model_len:count}) is larger than the maximum number of tokens that can be stored "
        "in KV cache ({storable_tokens:count})",
        ("0.2.7", "0.10.2"),
        "The model's max seq len (32768) is larger than the maximum number of tokens that can be stored in KV cache "
        "(20192)",
    ),
    Rule(
        "auto_fit",
        "Auto-fit max_model_len: reduced from {asked_max_model_len:count} to {max_model_len:count} to fit in",
        ("0.14.1", "0.33.0"),
        "Auto-fit max_model_len: reduced from 131072 to 50736 to fit in",
    ),
    Rule(
        "auto_fit",
        "Auto-fit max_model_len: full model context length {max_model_len:count} fits in",
        ("0.14.1", "0.33.0"),
        "Auto-fit max_model_len: full model context length 32768 fits in",
    ),
)
