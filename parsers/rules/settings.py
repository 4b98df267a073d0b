"""Lines that state what was asked for: versions, arguments, parallelism, block size, KV dtype."""

from __future__ import annotations

from parsers.rule import Rule

RULES = (
    # The banner of api_utils.py draws a logo; version and model stand right of its second and third row.
    Rule(
        "banner_version",
        "▄▄ ▄█ █     █     █ ▀▄▀ █  version {version:rest}",
        ("0.14.1", "0.33.0"),
        "▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.22.0",
        ("  version ",),
    ),
    Rule(
        "banner_model",
        "█▄█▀ █     █     █     █  model   {model:rest}",
        ("0.14.1", "0.33.0"),
        "█▄█▀ █     █     █     █  model   org/model-7b",
        ("  model   ",),
    ),
    Rule("api_version", "vLLM API server version {version:rest}", ("0.4.3", "0.24.0"), "vLLM API server version 0.8.5"),
    Rule(
        "api_version",
        "vLLM server version {version:word}, serving model {model:rest}",
        ("0.28.0", "0.33.0"),
        "vLLM server version 0.32.0, serving model org/model-7b",
    ),
    Rule(
        "engine_config",
        "Initializing an LLM engine with config: {config:rest}",
        ("0.2.7", "0.3.3"),
        "Initializing an LLM engine with config: model='m', dtype=torch.float16, max_seq_len=4096)",
    ),
    Rule(
        "engine_config",
        "Initializing an LLM engine (v{version:word}) with config: {config:rest}",
        ("0.4.3", "0.6.6.post1"),
        "Initializing an LLM engine (v0.5.5) with config: model='m', dtype=torch.float16",
        ("Initializing an LLM engine (v",),
    ),
    Rule(
        "engine_config_v0",
        "Initializing a V0 LLM engine (v{version:word}) with config: {config:rest}",
        ("0.7.3", "0.10.2"),
        "Initializing a V0 LLM engine (v0.8.5) with config: model='m', dtype=torch.float16",
    ),
    Rule(
        "engine_config_v1",
        "Initializing a V1 LLM engine (v{version:word}) with config: {config:rest}",
        ("0.7.3", "0.33.0"),
        "Initializing a V1 LLM engine (v0.19.0) with config: model='m', dtype=torch.bfloat16",
    ),
    Rule(
        "changed_arguments",
        "non-default args: {arguments:rest}",
        ("0.9.0.1", "0.33.0"),
        "non-default args: {'model': 'm', 'gpu_memory_utilization': 0.95}",
    ),
    Rule(
        "arguments",
        "args: Namespace({arguments:rest}",
        ("0.2.7", "0.9.0.1"),
        "args: Namespace(host=None, gpu_memory_utilization=0.9)",
    ),
    Rule("max_model_len", "Using max model len {max_model_len:count}", ("0.9.2", "0.33.0"), "Using max model len 8192"),
    Rule(
        "max_num_batched_tokens",
        "Chunked prefill is enabled with max_num_batched_tokens={max_num_batched_tokens:count}.",
        ("0.5.5", "0.33.0"),
        "Chunked prefill is enabled with max_num_batched_tokens=8192.",
    ),
    Rule(
        "max_num_batched_tokens",
        "Defaulting max_num_batched_tokens to {max_num_batched_tokens:count} for ",
        ("0.11.1", "0.33.0"),
        "Defaulting max_num_batched_tokens to 8192 for ",
    ),
    Rule(
        "max_num_seqs_default",
        "Defaulting max_num_seqs to {max_num_seqs:count} for ",
        ("0.11.1", "0.33.0"),
        "Defaulting max_num_seqs to 1024 for ",
    ),
    Rule(
        "kv_cache_dtype_used",
        "Using {kv_cache_dtype_used:word} data type to store kv cache.",
        ("0.3.3", "0.33.0"),
        "Using fp8 data type to store kv cache.",
    ),
    Rule(
        "kv_scale",
        "Using KV cache scaling factor {scale:number} for {dtype:word}.",
        ("0.6.3", "0.33.0"),
        "Using KV cache scaling factor 1.0 for fp8_e4m3.",
    ),
    Rule(
        "attention_block_size",
        "Setting attention block size to {block_size:count} tokens",
        ("0.10.0", "0.33.0"),
        "Setting attention block size to 784 tokens",
    ),
    Rule(
        "attention_block_size",
        "[XPU]Setting attention block size to {block_size:count} tokens",
        ("0.20.2", "0.33.0"),
        "[XPU]Setting attention block size to 784 tokens",
    ),
    Rule(
        "backend_block_size",
        "Setting kv cache block size to {block_size:count} for {backend:word} backend",
        ("0.18.1", "0.33.0"),
        "Setting kv cache block size to 64 for FLASHMLA backend",
    ),
    Rule(
        "backend_block_size",
        "Forcing kv cache block size to {block_size:count} for {backend:word} backend",
        ("0.8.4", "0.17.1"),
        "Forcing kv cache block size to 64 for FlashMLA backend",
    ),
    Rule(
        "hybrid_manager_disabled",
        "Hybrid KV cache manager is disabled for this hybrid model",
        ("0.9.1", "0.33.0"),
        "Hybrid KV cache manager is disabled for this hybrid model",
    ),
    Rule(
        "hybrid_manager_disabled",
        "Turning off hybrid kv cache manager because {reason:rest}",
        ("0.11.1", "0.33.0"),
        "Turning off hybrid kv cache manager because `--kv-transfer-config` is set.",
    ),
    Rule(
        "padding_layers",
        "Add {padding_layers:count} padding layers, may waste at most {waste_percent:number}% KV cache memory",
        ("0.9.1", "0.33.0"),
        "Add 2 padding layers, may waste at most 6.67% KV cache memory",
    ),
    Rule(
        "mamba_padding",
        "Padding mamba page size by {waste_percent:number}% to ensure that mamba page size and attention page size",
        ("0.10.0", "0.33.0"),
        "Padding mamba page size by 1.23% to ensure that mamba page size and attention page size",
    ),
    Rule(
        "architecture",
        "Resolved architecture: {architecture:rest}",
        ("0.10.2", "0.33.0"),
        "Resolved architecture: LlamaForCausalLM",
    ),
    # v1/core/kv_cache_utils.py resolve_kv_cache_block_sizes: only where there is more than one cache group.
    Rule(
        "cache_groups",
        "kv cache group sizes ({group_block_sizes:text})",
        ("0.30.0", "0.33.0"),
        "kv cache group sizes (128, 128, 128)",
    ),
    Rule(
        "attention_backend",
        "Using {backend:word} attention backend out of potential backends",
        ("0.12.0", "0.33.0"),
        "Using FLASH_ATTN attention backend out of potential backends",
    ),
    Rule(
        "attention_backend",
        "Using {backend:text} backend on V1 engine",
        ("0.7.3", "0.33.0"),
        "Using Flash Attention backend on V1 engine",
        (" backend on V1 engine",),
    ),
    Rule(
        "device_name",
        "Using default MoE config. Performance might be sub-optimal! Config file not found at {path:rest}",
        ("0.6.3", "0.33.0"),
        "Using default MoE config. Performance might be sub-optimal! Config file not found at "
        "E=8,N=14336,device_name=NVIDIA_H100.json",
    ),
    Rule(
        "world",
        "world_size={world_size:count} rank={rank:count} local_rank={local_rank:count} distributed_init_method=",
        ("0.4.3", "0.33.0"),
        "world_size=2 rank=1 local_rank=1 distributed_init_method=",
    ),
    Rule(
        "rank",
        "rank {rank:count} in world size {world_size:count} is assigned as DP rank {dp:count}, "
        "PP rank {pp:count}, TP rank {tp:count}",
        ("0.8.0", "0.11.2"),
        "rank 0 in world size 2 is assigned as DP rank 0, PP rank 0, TP rank 0",
    ),
    Rule(
        "rank",
        "rank {rank:count} in world size {world_size:count} is assigned as DP rank {dp:count}, "
        "PP rank {pp:count}, PCP rank {pcp:count}, TP rank {tp:count}",
        ("0.12.0", "0.33.0"),
        "rank 0 in world size 2 is assigned as DP rank 0, PP rank 0, PCP rank 0, TP rank 0",
    ),
    Rule(
        "rank",
        "rank {rank:count} in world size {world_size:count} is assigned as DP rank {dp:count}, "
        "PP rank {pp:count}, PCP rank {pcp:count}, TP rank {tp:count}, EP rank {ep:word}",
        ("0.12.0", "0.29.0"),
        "rank 0 in world size 2 is assigned as DP rank 0, PP rank 0, PCP rank 0, TP rank 0, EP rank N/A",
    ),
    Rule(
        "rank",
        "rank {rank:count} in world size {world_size:count} is assigned as DP rank {dp:count}, "
        "PP rank {pp:count}, PCP rank {pcp:count}, TP rank {tp:count}, ETP rank {etp:count}, EP rank {ep:word}",
        ("0.30.0", "0.33.0"),
        "rank 0 in world size 2 is assigned as DP rank 0, PP rank 0, PCP rank 0, TP rank 0, ETP rank 0, EP rank N/A",
    ),
    Rule(
        "draft_max_model_len",
        "Overriding draft model max model len from {from:count} to {to:count}",
        ("0.21.0", "0.33.0"),
        "Overriding draft model max model len from 40960 to 8192",
    ),
    Rule(
        "sleep_mode",
        "Enabling cumem allocator because sleep mode requires it",
        ("0.22.1", "0.33.0"),
        "Enabling cumem allocator because sleep mode requires it",
    ),
    Rule(
        "encoder_cache",
        "Encoder cache will be initialized with a budget of {encoder_budget:count} tokens, and profiled with "
        "{items:count} {modality:text} items",
        ("0.7.3", "0.33.0"),
        "Encoder cache will be initialized with a budget of 16384 tokens, and profiled with 1 video items",
    ),
    Rule(
        "cpu_offload",
        "Total CPU offloaded parameters: {offloaded:gib}",
        ("0.17.1", "0.33.0"),
        "Total CPU offloaded parameters: 40.33",
    ),
)
