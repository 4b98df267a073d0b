"""Lines that state a term of the ledger: totals, budgets, weights, peaks, what is left."""

from __future__ import annotations

from parsers.rule import Rule

_USAGE_HEAD = (
    "Free memory on device ({initial_free_memory:gib}/{total_memory:gib} GiB) on startup. Desired GPU memory utilization "
    "is ({gpu_memory_utilization:ratio}, {requested_memory:gib} GiB). Actual usage is "
)
_BY_TERM = (
    "{model_memory:gib} GiB for weight, {peak_activation_memory:gib} GiB for peak activation, "
    "{non_torch_increase:gib} GiB for non-torch memory, and {cudagraph_memory_actual:gib} GiB for CUDAGraph memory."
)
_CONSUMED = (
    "{total_consumed:gib} GiB for consumed memory (weights + non-torch), {peak_activation_memory:gib} GiB for peak "
    "activation, and {cudagraph_memory_actual:gib} GiB for CUDAGraph memory."
)
_USAGE_SAMPLE = "Free memory on device (23.05/23.56 GiB) on startup. Desired GPU memory utilization is (0.972, 22.9 GiB). Actual usage is "
_BY_TERM_SAMPLE = "14.99 GiB for weight, 1.98 GiB for peak activation, 0.24 GiB for non-torch memory, and 0.9 GiB for CUDAGraph memory."
_CONSUMED_SAMPLE = "14.73 GiB for consumed memory (weights + non-torch), 1.09 GiB for peak activation, and 0.71 GiB for CUDAGraph memory."
_SUGGESTION = " Replace gpu_memory_utilization config with `--kv-cache-memory={kv_cache_memory_to_requested:bytes}`"
_SUGGESTION_GIB = (
    " ({to_requested_gib:gib} GiB) to fit into requested memory, or `--kv-cache-memory={kv_cache_memory_to_gpu:bytes}` "
    "({to_gpu_gib:gib} GiB) to fully utilize gpu memory. Current kv cache memory in use is "
    "{available_kv_cache_memory:gib} GiB"
)
_PROFILE = (
    "Memory profiling takes {seconds:number} seconds. Total non KV cache memory: {non_kv_cache_memory:gib}GiB; "
    "torch peak memory increase: {torch_peak_increase:gib}GiB; "
)
_SNAPSHOT = "worker init memory snapshot: torch_peak={torch_peak:gib}GiB, "
_EXPLICIT = "memory for KV Cache as specified by kv_cache_memory_bytes config and skipped memory profiling."  # shared by 3 wordings

RULES = (
    # 0.10.2-0.33: the usage line. Its "peak activation" contains the graph estimate in some releases (reconstruct.eras).
    Rule(
        "usage",
        _USAGE_HEAD + _BY_TERM + _SUGGESTION + " to fit into requested memory, or "
        "`--kv-cache-memory={kv_cache_memory_to_gpu:bytes}` to fully utilize gpu memory. "
        "Current kv cache memory in use is {available_kv_cache_memory:bytes} bytes",
        ("0.10.2", "0.10.2"),
        "Free memory on device (78.57/79.18 GiB) on startup. Desired GPU memory utilization is (0.9, 71.26 GiB). Actual "
        "usage is 14.99 GiB for weight, 1.24 GiB for peak activation, 0.1 GiB for non-torch memory, and 0.51 GiB for "
        "CUDAGraph memory. Replace gpu_memory_utilization config with `--kv-cache-memory=58299125760` to fit into "
        "requested memory, or `--kv-cache-memory=66146345984` to fully utilize gpu memory. Current kv cache memory in "
        "use is 58976305152 bytes",
    ),
    Rule(
        "usage",
        _USAGE_HEAD + _BY_TERM + _SUGGESTION + _SUGGESTION_GIB,
        ("0.11.0", "0.26.0"),
        "Free memory on device (78.67/79.19 GiB) on startup. Desired GPU memory utilization is (0.95, 75.23 GiB). Actual "
        "usage is 14.99 GiB for weight, 1.98 GiB for peak activation, 0.24 GiB for non-torch memory, and 0.9 GiB for "
        "CUDAGraph memory. Replace gpu_memory_utilization config with `--kv-cache-memory=61178982400` (56.98 GiB) to fit "
        "into requested memory, or `--kv-cache-memory=64877412352` (60.42 GiB) to fully utilize gpu memory. Current kv "
        "cache memory in use is 58.02 GiB",
    ),
    Rule(
        "usage_consumed",
        _USAGE_HEAD + _CONSUMED + _SUGGESTION + _SUGGESTION_GIB,
        ("0.27.1", "0.33.0"),
        "Free memory on device (21.91/22.16 GiB) on startup. Desired GPU memory utilization is (0.92, 20.39 GiB). Actual "
        "usage is 15.31 GiB for consumed memory (weights + non-torch), 1.8 GiB for peak activation, and 0.42 GiB for "
        "CUDAGraph memory. Replace gpu_memory_utilization config with `--kv-cache-memory=2910000000` (2.71 GiB) to fit "
        "into requested memory, or `--kv-cache-memory=4542000000` (4.23 GiB) to fully utilize gpu memory. Current kv "
        "cache memory in use is 3.28 GiB",
    ),
    # The same figures where the line's tail was cut or trimmed on its way here: the ledger needs only these.
    Rule("usage", _USAGE_HEAD + _BY_TERM, ("0.10.2", "0.26.0"), _USAGE_SAMPLE + _BY_TERM_SAMPLE),
    Rule("usage_consumed", _USAGE_HEAD + _CONSUMED, ("0.27.1", "0.33.0"), _USAGE_SAMPLE + _CONSUMED_SAMPLE),
    Rule(
        "snapshot",
        _SNAPSHOT + "free_memory={initial_free_memory:gib}GiB, total_memory={total_memory:gib}GiB, ",
        ("0.14.1", "0.26.0"),
        "worker init memory snapshot: torch_peak=0.0GiB, free_memory=77.76GiB, total_memory=79.19GiB, ",
    ),
    Rule(
        "snapshot",
        _SNAPSHOT + "torch_allocated={torch_allocated:gib}GiB, free_memory={initial_free_memory:gib}GiB, "
        "total_memory={total_memory:gib}GiB, ",
        ("0.27.1", "0.33.0"),
        "worker init memory snapshot: torch_peak=0.0GiB, torch_allocated=0.0GiB, free_memory=77.76GiB, "
        "total_memory=79.19GiB, ",
    ),
    Rule(
        "requested",
        "worker requested memory: {requested_memory:gib}GiB",
        ("0.14.1", "0.33.0"),
        "worker requested memory: 75.23GiB",
    ),
    Rule(
        "initial_free",
        "Initial free memory: {initial_free_memory:gib} GiB, free memory: {free_after_profiling:gib} GiB, "
        "requested GPU memory: {requested_memory:gib} GiB",
        ("0.9.1", "0.10.0"),
        "Initial free memory: 78.67 GiB, free memory: 62.11 GiB, requested GPU memory: 71.27 GiB",
    ),
    Rule(
        "initial_free",
        "Initial free memory: {initial_free_memory:gib} GiB; Requested memory: {gpu_memory_utilization:ratio2} (util), "
        "{requested_memory:gib} GiB",
        ("0.10.1.1", "0.13.0"),
        "Initial free memory: 78.67 GiB; Requested memory: 0.90 (util), 71.27 GiB",
    ),
    Rule(
        "initial_free",
        "Initial free memory: {initial_free_memory:gib} GiB; Requested memory: {gpu_memory_utilization:ratio6} (util), "
        "{requested_memory:gib} GiB",
        ("0.14.1", "0.33.0"),
        "Initial free memory: 77.76 GiB; Requested memory: 0.950000 (util), 75.23 GiB",
    ),
    Rule(
        "free_after",
        "Free memory after profiling: {free_after_profiling:gib} GiB (total), "
        "{free_within_requested:gib} GiB (within requested)",
        ("0.10.1.1", "0.33.0"),
        "Free memory after profiling: 70.02 GiB (total), 67.49 GiB (within requested)",
    ),
    Rule(
        "profile",
        _PROFILE
        + "non-torch forward increase memory: {non_torch_increase:gib}GiB; weights memory: {model_memory:gib}GiB.",
        ("0.9.1", "0.26.0"),
        "Memory profiling takes 9.87 seconds. Total non KV cache memory: 8.69GiB; torch peak memory increase: 1.1GiB; "
        "non-torch forward increase memory: 0.07GiB; weights memory: 7.51GiB.",
    ),
    Rule(
        "profile",
        _PROFILE.replace("torch_peak_increase", "torch_peak_memory")
        + "total consumed (from mem_get_info): {total_consumed:gib}GiB; weights memory: {model_memory:gib}GiB.",
        ("0.27.1", "0.33.0"),
        "Memory profiling takes 9.87 seconds. Total non KV cache memory: 8.69GiB; torch peak memory increase: 1.1GiB; "
        "total consumed (from mem_get_info): 7.7GiB; weights memory: 7.51GiB.",
    ),
    Rule(
        "available",
        "Available KV cache memory: {available_kv_cache_memory:gib} GiB",
        ("0.9.1", "0.33.0"),
        "Available KV cache memory: 41.73 GiB",
    ),
    Rule(
        "mm_reservation",
        "Reserving {mm_ipc_reservation:gib} GiB of GPU memory for frontend multimodal decoding ({raw:gib} GiB raw-frame "
        "semaphore budget, {decoder:gib} GiB decoder+CUDA-context across {servers:count} API server(s) @ "
        "{per_server:gib} GiB/server); KV cache memory reduced to {kv_pool_memory:gib} GiB.",
        ("0.25.1", "0.33.0"),
        "Reserving 2.5 GiB of GPU memory for frontend multimodal decoding (1.0 GiB raw-frame semaphore budget, 1.5 GiB "
        "decoder+CUDA-context across 1 API server(s) @ 1.5 GiB/server); KV cache memory reduced to 38.2 GiB.",
    ),
    Rule(
        "explicit_kv_memory",
        "Initial free memory {initial_free_memory:gib} GiB, reserved {explicit_kv_cache_memory:gib} GiB " + _EXPLICIT,
        ("0.11.1", "0.33.0"),
        "Initial free memory 78.67 GiB, reserved 40.0 GiB " + _EXPLICIT,
    ),
    Rule(
        "explicit_kv_memory",
        "Initial free memory {initial_free_memory:gib} GiB, reserved {explicit_kv_cache_memory:gib}GiB " + _EXPLICIT,
        ("0.10.2", "0.11.0"),
        "Initial free memory 78.67 GiB, reserved 40.00GiB " + _EXPLICIT,
    ),
    Rule(  # as people quote it, its head trimmed
        "explicit_kv_memory",
        "reserved {explicit_kv_cache_memory:gib} GiB memory for KV Cache as specified by kv_cache_memory_bytes",
        ("0.10.2", "0.33.0"),
        "reserved 12.0 GiB memory for KV Cache as specified by kv_cache_memory_bytes",
    ),
    Rule(
        "startup_plan",
        "Applying persisted startup plan (fingerprint {fingerprint:word}): kv_cache_memory_bytes="
        "{explicit_kv_cache_memory:bytes} ({plan_gib:gib} GiB)",
        ("0.26.0", "0.33.0"),
        "Applying persisted startup plan (fingerprint 0a1b): kv_cache_memory_bytes=44807000000 (41.73 GiB)",
    ),
    Rule(
        "external_weights",
        "Weights are held outside this process: of the {utilization_budget:gib} GiB utilization budget, "
        "{external_weight_memory:gib} GiB is externally held and {requested_memory:gib} GiB remains",
        ("0.32.0", "0.33.0"),
        "Weights are held outside this process: of the 72.86 GiB utilization budget, 14.99 GiB is externally held and "
        "57.87 GiB remains",
    ),
    # Weights. The labels "GB" of 0.4.3-0.8.0 are GiB all the same (worker/model_runner.py divides by 2**30).
    Rule(
        "weights",
        "Loading model weights took {model_memory:gib4} GB",
        ("0.4.3", "0.8.0"),
        "Loading model weights took 14.9888 GB",
    ),
    Rule(
        "weights",
        "Loading model weights took {model_memory:gib4} GiB",
        ("0.8.4", "0.9.2"),
        "Loading model weights took 14.9888 GiB",
    ),
    Rule(
        "weights",
        "Model loading took {model_memory:gib} GB and {seconds:number} seconds",
        ("0.8.0", "0.8.0"),
        "Model loading took 14.9888 GB and 3.123456 seconds",
    ),
    Rule(
        "weights",
        "Model loading took {model_memory:gib} GiB and {seconds:number} seconds",
        ("0.8.4", "0.33.0"),
        "Model loading took 14.9889 GiB and 3.992785 seconds",
    ),
    Rule(
        "weights",
        "Model loading took {model_memory:gib} GiB memory and {seconds:number} seconds",
        ("0.11.1", "0.33.0"),
        "Model loading took 7.51 GiB memory and 3.992785 seconds",
    ),
    Rule(
        "load_peak",
        "Peak GPU memory after loading weights: {load_peak_memory:gib} GiB",
        ("0.16.0", "0.33.0"),
        "Peak GPU memory after loading weights: 7.57 GiB",
    ),
    # V0's profile message stands on three physical lines, each with the whole prefix.
    Rule(
        "v0_budget",
        "the current vLLM instance can use total_gpu_memory ({total_memory:gib}GiB) x gpu_memory_utilization "
        "({gpu_memory_utilization:ratio2}) = {requested_memory:gib}GiB",
        ("0.6.6.post1", "0.10.2"),
        "the current vLLM instance can use total_gpu_memory (79.14GiB) x gpu_memory_utilization (0.90) = 71.22GiB",
    ),
    Rule(
        "v0_terms",
        "model weights take {model_memory:gib}GiB; non_torch_memory takes {non_torch_increase:gib}GiB; PyTorch activation "
        "peak memory takes {torch_peak_increase:gib}GiB; the rest of the memory reserved for KV Cache is "
        "{available_kv_cache_memory:gib}GiB",
        ("0.6.6.post1", "0.10.2"),
        "model weights take 14.99GiB; non_torch_memory takes 0.09GiB; PyTorch activation peak memory takes 1.19GiB; the "
        "rest of the memory reserved for KV Cache is 54.95GiB",
    ),
    Rule(
        "v0_profile_064",
        "Memory profiling results: total_gpu_memory={total_memory:gib}GiB initial_memory_usage={initial_usage:gib}GiB "
        "peak_torch_memory={peak_torch_memory:gib}GiB memory_usage_post_profile={usage_after:gib}{unit:word} "
        "non_torch_memory={non_torch_memory:gib}GiB kv_cache_size={available_kv_cache_memory:gib}GiB "
        "gpu_memory_utilization={gpu_memory_utilization:ratio2}",
        ("0.6.4", "0.6.4"),
        "Memory profiling results: total_gpu_memory=7.92GiB initial_memory_usage=3.09GiB peak_torch_memory=3.12GiB "
        "memory_usage_post_profile=3.12Gib non_torch_memory=0.47GiB kv_cache_size=3.54GiB gpu_memory_utilization=0.90",
    ),
    Rule(
        "cpu_explicit",
        "Explicitly set ({explicit_kv_cache_memory:gib}/{node_memory:gib}) GiB for KV cache on node {node:word}",
        ("0.20.2", "0.33.0"),
        "Explicitly set (1.0/14.46) GiB for KV cache on node 0",
    ),
    Rule(
        "cpu_auto",
        "Auto set ({available_kv_cache_memory:gib}/{node_memory:gib}) GiB for KV cache on node {node:text}, with "
        "{requested_memory:gib} GiB requested memory for the worker. {total_consumed:gib} GiB memory was consumed",
        ("0.20.2", "0.33.0"),
        "Auto set (5.1/14.46) GiB for KV cache on node 0, with 7.23 GiB requested memory for the worker. 2.13 GiB memory "
        "was consumed",
    ),
    Rule(
        "xpu_before",
        "Before memory profiling run, total GPU memory: {total_memory_mib:mib} MB, model load takes "
        "{model_memory_mib:mib} MB, free gpu memory is {free_mib:mib} MB.",
        ("0.9.2", "0.15.1"),
        "Before memory profiling run, total GPU memory: 65536.00 MB, model load takes 15349.00 MB, free gpu memory is "
        "48000.00 MB.",
    ),
)
