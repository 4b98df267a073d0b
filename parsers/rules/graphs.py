"""Lines about CUDA graphs: estimated, charged to the budget, captured."""

from __future__ import annotations

from parsers.rule import Rule

_EQUIVALENT = (
    "The current --gpu-memory-utilization={gpu_memory_utilization:ratio4} is equivalent to "
    "--gpu-memory-utilization={equivalent_utilization:ratio4} without CUDA graph memory profiling. To maintain the same "
    "effective KV cache size as before, increase --gpu-memory-utilization to {suggested_utilization:ratio4}"
)
_EQUIVALENT_SAMPLE = (
    "The current --gpu-memory-utilization=0.9200 is equivalent to --gpu-memory-utilization=0.9142 without CUDA graph "
    "memory profiling. To maintain the same effective KV cache size as before, increase --gpu-memory-utilization to 0.9258"
)

RULES = (
    Rule(
        "graph_estimate",
        "Estimated CUDA graph memory: {cudagraph_memory_estimate:gib} GiB total",
        ("0.18.1", "0.33.0"),
        "Estimated CUDA graph memory: 0.54 GiB total",
    ),
    Rule(
        "graph_estimate_part",
        "Estimated {mode:word} CUDA graph memory: {first_capture:mib} MiB first-capture + ({graphs:count}-1) × "
        "{each_graph:mib} MiB per-graph",
        ("0.18.1", "0.33.0"),
        "Estimated PIECEWISE CUDA graph memory: 114.00 MiB first-capture + (51-1) × 4.00 MiB per-graph",
    ),
    Rule(
        "graph_estimate_part",
        "Estimated encoder CUDA graph memory: {encoder_graphs:mib} MiB for {graphs:count} graphs",
        ("0.23.0", "0.33.0"),
        "Estimated encoder CUDA graph memory: 64.00 MiB for 4 graphs",
    ),
    Rule(
        "graph_hint",
        "CUDA graphs can take additional 1~3 GiB memory per GPU.",
        ("0.2.7", "0.6.3"),
        "CUDA graphs can take additional 1~3 GiB memory per GPU.",
    ),
    Rule(
        "graph_profile",
        "Profiling CUDA graph memory: {modes:rest}",
        ("0.18.1", "0.33.0"),
        "Profiling CUDA graph memory: PIECEWISE=51 (largest=512), FULL=51 (largest=512)",
    ),
    Rule(
        "graph_charged",
        "CUDA graph memory profiling is enabled (VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=1). This will become the "
        "default in v0.19. " + _EQUIVALENT,
        ("0.18.1", "0.19.1"),
        "CUDA graph memory profiling is enabled (VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=1). This will become the "
        "default in v0.19. " + _EQUIVALENT_SAMPLE,
    ),
    Rule(
        "graph_charged",
        "CUDA graph memory profiling is enabled (default since v0.21.0). " + _EQUIVALENT,
        ("0.20.2", "0.33.0"),
        "CUDA graph memory profiling is enabled (default since v0.21.0). " + _EQUIVALENT_SAMPLE,
    ),
    Rule(
        "graph_not_charged",
        "In v0.19, CUDA graph memory profiling will be enabled by default "
        "(VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=1), which more accurately accounts for CUDA graph memory during KV "
        "cache allocation. To try it now, set VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=1 and increase "
        "--gpu-memory-utilization from {gpu_memory_utilization:ratio4} to {suggested_utilization:ratio4}",
        ("0.18.1", "0.19.1"),
        "In v0.19, CUDA graph memory profiling will be enabled by default "
        "(VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=1), which more accurately accounts for CUDA graph memory during KV "
        "cache allocation. To try it now, set VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=1 and increase "
        "--gpu-memory-utilization from 0.9500 to 0.9569",
    ),
    Rule(
        "graph_not_charged",
        "CUDA graph memory profiling is disabled (VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0). Without it, CUDA graph "
        "memory is not accounted for during KV cache allocation, which may require lowering --gpu-memory-utilization to "
        "avoid OOM. Consider re-enabling it (the default as of v0.21.0) and increasing --gpu-memory-utilization from "
        "{gpu_memory_utilization:ratio4} to {suggested_utilization:ratio4}",
        ("0.20.2", "0.33.0"),
        "CUDA graph memory profiling is disabled (VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0). Without it, CUDA graph "
        "memory is not accounted for during KV cache allocation, which may require lowering --gpu-memory-utilization to "
        "avoid OOM. Consider re-enabling it (the default as of v0.21.0) and increasing --gpu-memory-utilization from "
        "0.9000 to 0.9058",
    ),
    Rule(
        "graph_pool",
        "CUDA graph pool memory: {cudagraph_memory_actual:gib} GiB (actual), {cudagraph_memory_estimate:gib} GiB "
        "(estimated), difference: {difference:gib} GiB ({percent:number}%)",
        ("0.18.1", "0.33.0"),
        "CUDA graph pool memory: 0.65 GiB (actual), 0.54 GiB (estimated), difference: 0.11 GiB (16.6%)",
    ),
    Rule(
        "graph_captured",
        "Graph capturing finished in {seconds:number} secs, took {cudagraph_memory_actual:gib} GiB",
        ("0.6.6.post1", "0.33.0"),
        "Graph capturing finished in 12 secs, took 1.25 GiB",
    ),
    Rule(
        "graph_captured_seconds",
        "Graph capturing finished in {seconds:number} secs.",
        ("0.2.7", "0.6.3"),
        "Graph capturing finished in 12 secs.",
    ),
    Rule(
        "encoder_graph_captured",
        "Encoder graph capturing finished in {seconds:number} secs, took {encoder_graph_memory:gib} GiB",
        ("0.31.0", "0.33.0"),
        "Encoder graph capturing finished in 3 secs, took 0.25 GiB",
    ),
)
