"""Lines that say how far a start came."""

from __future__ import annotations

from parsers.rule import Rule

_ALL = ("0.2.7", "0.33.0")

RULES = (
    Rule(
        "load_started",
        "Starting to load model {model:rest}",
        ("0.5.0", "0.33.0"),
        "Starting to load model org/model-7b...",
    ),
    Rule(
        "checkpoint",
        "Filesystem type for checkpoints: {filesystem:word}. Checkpoint size: {checkpoint_size:gib} GiB. "
        "Available RAM: {available_ram:gib} GiB.",
        ("0.20.2", "0.33.0"),
        "Filesystem type for checkpoints: XFS. Checkpoint size: 131.42 GiB. Available RAM: 1946.55 GiB.",
    ),
    Rule(
        "checkpoint_prefetch",
        "Auto-prefetch is disabled because {reason:rest}",
        ("0.20.2", "0.33.0"),
        "Auto-prefetch is disabled because the filesystem (XFS) is not a recognized network FS (NFS/Lustre).",
    ),
    Rule(
        "v0_profiled",
        "Memory profiling takes {seconds:number} seconds",
        ("0.6.6.post1", "0.10.2"),
        "Memory profiling takes 4.76 seconds",
    ),
    Rule(
        "graph_capture_started",
        "Capturing cudagraphs for decoding. This may lead to unexpected consequences",
        ("0.5.5", "0.10.2"),
        "Capturing cudagraphs for decoding. This may lead to unexpected consequences",
    ),
    Rule(
        "graph_capture_started",
        "Capturing the model for CUDA graphs. This may lead to unexpected consequences",
        ("0.2.7", "0.6.3"),
        "Capturing the model for CUDA graphs. This may lead to unexpected consequences",
    ),
    Rule(
        "engine_initialised",
        "init engine (profile, create kv cache, warmup model) took {seconds:number} s",
        ("0.6.3", "0.33.0"),
        "init engine (profile, create kv cache, warmup model) took 58.26 s",
    ),
    Rule(
        "engine_initialised",
        "init engine (profile, create kv cache, warmup model) took {seconds:number} s (compilation: "
        "{compile_seconds:number} s)",
        ("0.20.2", "0.33.0"),
        "init engine (profile, create kv cache, warmup model) took 193.36 s (compilation: 140.76 s)",
    ),
    Rule("server_started", "Application startup complete", _ALL, "Application startup complete"),
    Rule("server_started", "Uvicorn running on ", _ALL, "Uvicorn running on "),
    Rule("serving", "Avg prompt throughput: ", _ALL, "Avg prompt throughput: "),
    Rule("serving", "Engine 000: Avg prompt throughput: ", ("0.8.5", "0.33.0"), "Engine 000: Avg prompt throughput: "),
    Rule("shutdown", "Application shutdown complete", _ALL, "Application shutdown complete"),
)
