"""Lines that say a start died, and of what."""

from __future__ import annotations

from parsers.rule import Rule

_FREE_SAMPLE = (
    "(60.87/79.19 GiB) on startup is less than desired GPU memory utilization (0.95, 75.23 GiB). Decrease GPU memory"
)
_FREE = (
    "({initial_free_memory:gib}/{total_memory:gib} GiB) on startup is less than desired GPU memory utilization "
    "({gpu_memory_utilization:ratio}, {requested_memory:gib} GiB)"
)

RULES = (
    Rule(
        "free_below_requested",
        "Free memory on device " + _FREE,
        ("0.9.1", "0.13.0"),
        ("Free memory on device " + _FREE_SAMPLE).removesuffix(". Decrease GPU memory"),
    ),
    Rule(
        "free_below_requested",
        "Free memory on device {device:word} " + _FREE,
        ("0.14.1", "0.33.0"),
        ("Free memory on device cuda:1 " + _FREE_SAMPLE).removesuffix(". Decrease GPU memory"),
    ),
    Rule(
        "free_below_requested",
        "Free memory on device {device:word} ({initial_free_memory:gib}/{total_memory:gib} GiB) on startup is less than "
        "the engine's budget after excluding external process's weights ({gpu_memory_utilization:ratio}, "
        "{requested_memory:gib} GiB)",
        ("0.32.0", "0.33.0"),
        "Free memory on device cuda:0 (40.1/79.19 GiB) on startup is less than the engine's budget after excluding "
        "external process's weights (0.92, 57.87 GiB)",
    ),
    Rule(
        "external_exceeds",
        "Externally held weights on device {device:word} ({external_weight_memory:gib}/{total_memory:gib} GiB) exceed the "
        "desired GPU memory utilization ({gpu_memory_utilization:ratio}, {utilization_budget:gib} GiB)",
        ("0.32.0", "0.33.0"),
        "Externally held weights on device cuda:0 (75.0/79.19 GiB) exceed the desired GPU memory utilization (0.92, 72.86 "
        "GiB)",
    ),
    Rule(
        "no_kv_memory",
        "No available memory for the cache blocks",
        ("0.2.7", "0.33.0"),
        "No available memory for the cache blocks",
    ),
    Rule(
        "free_grew",
        "Error in memory profiling. Initial free memory {initial_free_memory:gib} GiB, current free memory "
        "{free_after_profiling:gib} GiB",
        ("0.9.1", "0.33.0"),
        "Error in memory profiling. Initial free memory 60.1 GiB, current free memory 61.2 GiB",
    ),
    Rule(
        "free_grew",
        "Error in memory profiling. Initial free memory {initial_free_memory:bytes}, current free memory "
        "{free_after_profiling:bytes}.",
        ("0.5.5", "0.9.0.1"),
        "Error in memory profiling. Initial free memory 64533000000, current free memory 65713000000.",
    ),
    Rule(
        "out_of_memory_warm_up",
        "CUDA out of memory occurred when warming up {what:text} with {requests:count} dummy requests",
        ("0.8.0", "0.33.0"),
        "CUDA out of memory occurred when warming up sampler with 1024 dummy requests",
    ),
    *(
        Rule("out_of_memory_plain", text, ("0.2.7", "0.33.0"), text)
        for text in (
            "CUDA error: out of memory",
            "CUDA error: CUBLAS_STATUS_ALLOC_FAILED",
            "CUDA driver error: out of memory",
            "HIP error: out of memory",
            "Cuda failure 2 'out of memory'",  # NCCL's last error
        )
    ),
    Rule(
        "engine_failed",
        "Engine core initialization failed. See root cause above",
        ("0.8.5", "0.33.0"),
        "Engine core initialization failed. See root cause above",
    ),
    Rule(
        "engine_failed",
        "EngineCore failed to start.",
        ("0.8.5", "0.33.0"),
        "EngineCore failed to start.",
    ),
    Rule(
        "engine_failed",
        "EngineCore hit an exception",
        ("0.7.3", "0.8.4"),
        "EngineCore hit an exception",
    ),
    Rule(
        "engine_failed",
        "Engine process failed to start",
        ("0.6.0", "0.10.2"),
        "Engine process failed to start",
    ),
    Rule(
        "engine_died",
        "EngineCore encountered a fatal error.",
        ("0.8.5", "0.33.0"),
        "EngineCore encountered a fatal error.",
    ),
    Rule(
        "worker_failed",
        "WorkerProc failed to start.",
        ("0.8.5", "0.33.0"),
        "WorkerProc failed to start.",
    ),
    Rule(  # entrypoints/llm.py: the offline engine's constructor, so a start that a traceback shows unfinished
        "constructing",
        'File "{path:word}llm.py", line {number:count}, in __init__',
        ("0.2.7", "0.33.0"),
        'File "/opt/venv/vllm/entrypoints/llm.py", line 376, in __init__',
        ('llm.py", line ',),
    ),
    Rule(
        "traceback",
        "Traceback (most recent call last)",
        ("0.2.7", "0.33.0"),
        "Traceback (most recent call last)",
    ),
)
