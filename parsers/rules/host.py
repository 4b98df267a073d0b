"""Lines about what runs beside the pool: drafters, adapters, compilation, offloading, host memory, scales, dead workers."""

from __future__ import annotations

from parsers.rule import Rule

RULES = (
    Rule("drafter_loading", "Loading drafter model...", ("0.8.4", "0.33.0"), "Loading drafter model..."),
    Rule(  # lora/punica_wrapper/punica_selector.py get_punica_wrapper
        "adapters", "Using PunicaWrapperGPU.", ("0.7.0", "0.33.0"), "Using PunicaWrapperGPU."
    ),
    Rule(  # compilation/backends.py compile
        "compile_cache_hit",
        "Directly load the compiled graph{which:rest}",
        ("0.7.3", "0.33.0"),
        "Directly load the compiled graph(s) for compile range (1, 8192) from the cache, took 2.557 s",
    ),
    Rule(
        "compiled",
        "torch.compile took {seconds:number} s in total",
        ("0.18.1", "0.33.0"),
        "torch.compile took 140.76 s in total",
    ),
    Rule(
        "compiled",
        "torch.compile takes {seconds:number} s in total",
        ("0.6.6.post1", "0.17.1"),
        "torch.compile takes 24.31 s in total",
    ),
    Rule(  # model_executor/layers/quantization/kv_cache.py process_weights_after_loading
        "scale_missing",
        "Checkpoint does not provide a q scaling factor.",
        ("0.8.4", "0.33.0"),
        "Checkpoint does not provide a q scaling factor.",
    ),
    Rule(  # v1/core/kv_cache_utils.py: windowed layers priced at full length; a build after 0.23.0 printed it before 0.27.1 did
        "windows_unified",
        "KV cache page sizes cannot be unified; treating sliding-window layers as full attention",
        ("0.23.0", "0.33.0"),
        "KV cache page sizes cannot be unified; treating sliding-window layers as full attention",
    ),
    Rule(  # config/compilation.py resolve_cudagraph_mode_and_sizes: one state block for each decoding sequence
        "state_blocks",
        "max_num_seqs ({asked_max_num_seqs:count}) exceeds available Mamba cache blocks ({num_blocks:count})",
        ("0.20.2", "0.33.0"),
        "max_num_seqs (1024) exceeds available Mamba cache blocks (635)",
    ),
    Rule(
        "auto_fit_failed",
        "Cannot auto-fit max_model_len: not enough GPU memory available to serve even a single token.",
        ("0.14.1", "0.33.0"),
        "Cannot auto-fit max_model_len: not enough GPU memory available to serve even a single token.",
    ),
    Rule(  # v1/worker/gpu_worker.py maybe_rocm_profiling_fallback
        "free_grew_survived",
        "Free memory grew by {grew:gib} GiB during profiling (initial {initial_free_memory:gib} GiB, current "
        "{free_after:gib} GiB). Sizing the KV cache from the {torch_reserved:gib} GiB torch reserved",
        ("0.29.0", "0.33.0"),
        "Free memory grew by 1.5 GiB during profiling (initial 60.0 GiB, current 61.5 GiB). Sizing the KV cache from the "
        "14.2 GiB torch reserved",
    ),
    Rule(
        "slept",
        "Sleep mode freed {freed:gib} GiB memory, {in_use:gib} GiB memory is still in use.",
        ("0.7.3", "0.33.0"),
        "Sleep mode freed 60.12 GiB memory, 1.75 GiB memory is still in use.",
    ),
    Rule(
        "pinned_memory_off",
        "Using 'pin_memory=False' as WSL is detected",
        ("0.2.7", "0.33.0"),
        "Using 'pin_memory=False' as WSL is detected",
    ),
    Rule(
        "pinned_memory_off",
        "Pinned memory not available. CPU offload performance may be degraded.",
        ("0.19.1", "0.33.0"),
        "Pinned memory not available. CPU offload performance may be degraded.",
    ),
    Rule(
        "swap_space",
        "Possibly too large swap space. {detail:rest}",
        ("0.2.7", "0.17.1"),
        "Possibly too large swap space. 16.00 GiB out of the 31.20 GiB total CPU memory is allocated for the swap space.",
    ),
    Rule(
        "swap_space",
        "Too large swap space. {detail:rest}",
        ("0.2.7", "0.17.1"),
        "Too large swap space. 24.00 GiB out of the 31.20 GiB total CPU memory is allocated for the swap space.",
    ),
    Rule(
        "cpu_offload_notice",
        "CPU offload is not supported with `torch.compile` {when:text}yet. Disabling `torch.compile`.",
        ("0.6.6.post1", "0.10.2"),
        "CPU offload is not supported with `torch.compile` in v0 yet. Disabling `torch.compile`.",
    ),
    Rule(
        "cpu_offload_notice",
        "CPU offload is not supported with torch.compile yet. Disabling torch.compile.",
        ("0.6.6.post1", "0.10.2"),  # the same sentence where a web page ate the back quotes
        "CPU offload is not supported with torch.compile yet. Disabling torch.compile.",
    ),
    Rule(
        "kv_offload",
        "Creating offloading spec with name: {spec:rest}",
        ("0.11.0", "0.33.0"),
        "Creating offloading spec with name: CPUOffloadingSpec",
    ),
    Rule(
        "kv_offload",
        "SimpleCPUOffloadWorker: {tensors:count} unique GPU KV tensors, allocating {host_blocks:count} CPU blocks "
        "({host_kv_memory:gib} GB)",  # divided by 2**30 whatever the label says
        ("0.19.1", "0.27.1"),
        "SimpleCPUOffloadWorker: 32 unique GPU KV tensors, allocating 4096 CPU blocks (8.00 GB)",
    ),
    Rule(
        "kv_offload",
        "Initializing LMCacheConfig under kv_transfer_config ",
        ("0.8.0", "0.10.0"),
        "Initializing LMCacheConfig under kv_transfer_config ",
    ),
    Rule(
        "kv_offload",
        "Initializing native LMCache connector",
        ("0.11.1", "0.33.0"),
        "Initializing native LMCache connector",
    ),
    Rule(
        "kv_offload",
        "Initializing latest dev LMCache connector",
        ("0.11.1", "0.33.0"),
        "Initializing latest dev LMCache connector",
    ),
    Rule(  # engine/async_llm_engine.py: V0's engine loop ended
        "engine_died",
        "Engine background task failed",
        ("0.4.3", "0.10.2"),
        "Engine background task failed",
    ),
    Rule(
        "worker_died",
        "Worker proc {worker:word} died unexpectedly",
        ("0.8.5", "0.33.0"),
        "Worker proc VllmWorker-2 died unexpectedly",
    ),
)
