"""For every finding a log in which it stands and one, as near to it as may be, in which it must not."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.make_samples import H100, L4, L40S, LLAMA, page, rank
from tests.render.lines import render, render_all
from tests.render.parts import Captures, Failure, Group, Rank
from tests.render.truth import Truth

NEAR = Captures(114 << 20, 4 << 20, 256 << 20, 2 << 20)
"""Graphs that the estimate puts at 0.54 GiB."""


class Pair(NamedTuple):
    """A log that shows a finding, and one that must not."""

    positive: str
    negative: str


def card(**more: Any) -> Rank:
    """A healthy H100 with Llama 8B; what differs is given."""
    terms: dict[str, Any] = {
        "total": H100,
        "used": 0.51,
        "weights": 14.99,
        "peak": 1.22,
        "other": 0.24,
        "block": page(32, 8),
        "captures": NEAR,
        "graphs": 0.5,
    }
    return rank(**(terms | more))


def start(version: str = "0.19.1", /, *ranks: Rank, u: float = 0.9, **more: Any) -> str:
    """One start-up, healthy unless what is given makes it fail."""
    return render(truth(version, *ranks, u=u, **more))


def truth(version: str = "0.19.1", /, *ranks: Rank, u: float = 0.9, **more: Any) -> Truth:
    """What `start` prints."""
    return Truth(version, ranks or (card(),), u, **(LLAMA | more))


def said(log: str, marker: str, message: str, level: str = "INFO") -> str:
    """Put a record in front of the first that holds `marker`, by the same speaker at the same time."""
    lines = log.split("\n")
    at = next(i for i, line in enumerate(lines) if marker in line)
    head = lines[at].partition("] ")[0]
    for word in ("INFO", "WARNING", "ERROR", "DEBUG"):
        head = head.replace(f"{word} ", f"{level} ", 1)
    return "\n".join([*lines[:at], *(f"{head}] {part}" for part in message.split("\n")), *lines[at:]])


def oom(failure: Failure, version: str = "0.31.0", place: str = "", **more: Any) -> str:
    """A start that runs out of memory, in a function of vLLM's; the renderer's own is that of a dummy run."""
    running = place or ("load_model" if failure is Failure.OOM_LOADING else "_dummy_run")
    return start(version, injected=failure, **more).replace("in _dummy_run", f"in {running}")


WEIGHTS = "Model loading took"
READY = start()
SAMPLER = oom(Failure.OOM_SAMPLER)
LOADING = oom(Failure.OOM_LOADING)
RAN_OUT = "".join(line for line in LOADING.splitlines(keepends=True) if "CUDA out of memory" in line)
LATER = "EngineCore encountered a fatal error.\nTraceback (most recent call last):\nAssertionError: request is unknown"
MOE = "Using default MoE config. Performance might be sub-optimal! Config file not found at /x/E=128,N=704,device_name={}.json"
HYBRID = (Group("full", 16), Group("sliding", 16, 128))
BLOCKS = "Setting attention block size to {} tokens to ensure that attention page size is >= mamba page size."
ENCODER = (
    "Encoder cache will be initialized with a budget of {} tokens, and profiled with 1 video items of the maximum feature "
    "size."
)
STATE = (
    "Traceback (most recent call last):\nValueError: max_num_seqs (1024) exceeds available Mamba cache blocks (635). Each decode "
    "sequence requires one Mamba cache block"
)
DIED = "".join(f"ERROR 01-05 08:09:00 [core.py:99] {line}\n" for line in LATER.split("\n"))
CAUGHT = (
    "WARNING 01-05 08:09:00 [base.py:9] Traceback (most recent call last):\n"
    "WARNING 01-05 08:09:00 [base.py:9] ValueError: no chat template\n"
)
VALIDATOR = (
    "ValueError: User-specified max_model_len (131072) is greater than the derived max_model_len; expected to find"
)
UNRELATED = start(injected=Failure.UNRELATED)
FOREIGN = UNRELATED.replace("Expected to find model weights at", "Free HBM is below the reserve of")
"""A start that ends by a plug-in's error on memory, in words that are not vLLM's."""
TIGHT = card(total=L40S, weights=35.1, block=page(48, 8))
RESTART = render_all((truth(injected=Failure.OOM_CAPTURE), truth(start=60)))
OTHER_MODEL = render_all((truth(injected=Failure.OOM_CAPTURE), truth(start=60, model="Qwen/Qwen2.5-7B-Instruct")))
HOT = truth("0.27.1", card(peak=2.2))
WARM = truth("0.27.1", card(peak=1.2), start=60)
COMPILED = said(render(HOT), "Available KV", "torch.compile took 24.31 s in total")
CACHED = said(
    render(WARM),
    "Available KV",
    "Directly load the compiled graph(s) for compile range (1, 8192) from the cache, took 2.5 s",
)
CPU = "Explicitly set (1.0/13.96) GiB for KV cache on node 0."
CHECKPOINT = "Filesystem type for checkpoints: EXT4. Checkpoint size: 74.80 GiB. Available RAM: {} GiB."

PAIRS: dict[str, Pair] = {
    "oom-at-load": Pair(LOADING, oom(Failure.OOM_PROFILING)),
    "oom-at-profile": Pair(oom(Failure.OOM_PROFILING), LOADING),
    "oom-at-kv-allocation": Pair(oom(Failure.OOM_KV_CACHE), oom(Failure.OOM_KV_CACHE, place="capture_model")),
    "oom-at-kernel-warmup": Pair(oom(Failure.OOM_KV_CACHE, place="kernel_warmup"), oom(Failure.OOM_KV_CACHE)),
    "oom-at-capture": Pair(oom(Failure.OOM_CAPTURE, place="capture_model"), SAMPLER),
    "oom-at-sampler-warmup": Pair(SAMPLER, oom(Failure.OOM_CAPTURE, place="capture_model")),
    "oom-at-runtime": Pair(start("0.31.0") + RAN_OUT, SAMPLER),
    "request-does-not-fit": Pair(
        start("0.24.0", TIGHT, full_model_len=131072),
        UNRELATED.replace("RuntimeError: Expected to find", VALIDATOR),
    ),
    "no-kv-memory": Pair(
        start("0.10.2", card(total=L4, weights=7.338, peak=9.2, other=0.9), u=0.7),
        start("0.24.0", TIGHT, full_model_len=131072),
    ),
    "seqs-exceed-state-blocks": Pair(
        said(start("0.31.0", injected=Failure.CUT, cut_at=0.6), WEIGHTS, STATE, "ERROR"),
        start("0.31.0", max_num_seqs=1024),
    ),
    "auto-fit-reduced": Pair(
        start("0.30.0", auto_fit=True, full_model_len=1 << 20), start("0.30.0", auto_fit=True, full_model_len=8192)
    ),
    "pool-below-max-len": Pair(start(num_blocks_override=100), start(num_blocks_override=1000)),
    "barely-fits": Pair(start("0.27.1", full_model_len=330000), start("0.27.1", full_model_len=100000)),
    "budget-exceeds-free-memory": Pair(start("0.22.1", card(used=24.8)), start("0.22.1")),
    "memory-held-by-others": Pair(start("0.27.1", card(used=3.0)), start("0.27.1", card(used=0.61))),
    "uma-device": Pair(
        said(READY, "Available KV", MOE.format("NVIDIA_GB10")),
        said(READY, "Available KV", MOE.format("NVIDIA_GH200_480GB")),
    ),
    "free-memory-grew": Pair(
        said(
            READY,
            "Available KV",
            "AssertionError: Error in memory profiling. Initial free memory 60.1 GiB, current free memory 61.2 GiB.",
            "ERROR",
        ),
        READY,
    ),
    "explicit-kv-memory": Pair(start("0.31.0", kv_cache_memory_bytes=20 << 30), said(READY, "Available KV", CPU)),
    "mm-ipc-reserved": Pair(start("0.26.0", mm_reservation=2 << 30), start("0.26.0")),
    "sleep-mode-accounting": Pair(
        said(READY, WEIGHTS, "Enabling cumem allocator because sleep mode requires it."), READY
    ),
    "unexplained-memory": Pair(start("0.10.2", card(other=2.0)), start("0.8.5", card(other=2.0))),
    "graphs-charged-to-kv": Pair(start("0.21.0"), READY),
    "graph-estimate-not-charged": Pair(READY, start("0.21.0")),
    "graphs-outside-budget": Pair(start("0.17.1"), start("0.17.1", enforce_eager=True)),
    "graph-estimate-off": Pair(start("0.19.1", card(graphs=0.9)), start("0.19.1", card(graphs=0.7))),
    "kv-suggestion-wrong": Pair(start("0.27.1"), start("0.26.0")),
    "batched-tokens-eat-kv": Pair(start("0.27.1", card(peak=9.0)), start("0.27.1", card(peak=5.5))),
    "encoder-profile-cost": Pair(
        said(READY, "Available KV", ENCODER.format(16384)), said(READY, "Available KV", ENCODER.format(8192))
    ),
    "cold-compile-inflates-peak": Pair(COMPILED + CACHED, COMPILED),
    "drafter-cost": Pair(
        said(READY, WEIGHTS, "Loading drafter model..."),
        READY.replace(
            "speculative_config=None", "speculative_config=SpeculativeConfig(method='ngram', num_spec_tokens=4)"
        ),
    ),
    "lora-cost": Pair(READY.replace("non-default args: {", "non-default args: {'enable_lora': True, "), READY),
    "tokens-are-not-capacity": Pair(start("0.20.2", groups=HYBRID, full_model_len=5003), start("0.20.2")),
    "whole-gpu-by-design": Pair(
        start("0.19.1", card(weights=2.0)), start("0.24.0", card(weights=50), full_model_len=32768)
    ),
    "per-rank-not-total": Pair(start("0.21.0", card(), card(), dp=2), start("0.21.0", card(), card(), tp=2)),
    "ranks-differ": Pair(
        start("0.19.1", card(), card(other=1.5), tp=2, log_level="DEBUG"),
        start("0.19.1", card(), card(other=0.4), tp=2, log_level="DEBUG"),
    ),
    "blocks-overridden": Pair(
        start(num_blocks_override=900),
        said(READY, "Available KV", "Overriding num_gpu_blocks=0 with num_gpu_blocks_override=512"),
    ),
    "kv-dtype-no-gain": Pair(
        said(start(kv_cache_dtype="fp8"), "Available KV", BLOCKS.format(784)), start(kv_cache_dtype="fp8")
    ),
    "kv-scales-missing": Pair(
        said(READY, WEIGHTS, "Using KV cache scaling factor 1.0 for fp8_e4m3.", "WARNING"), start(kv_cache_dtype="fp8")
    ),
    "block-inflated": Pair(said(READY, "Available KV", BLOCKS.format(784)), READY),
    "padding-waste": Pair(
        said(READY, "Available KV", "Add 8 padding layers, may waste at most 15.38% KV cache memory", "WARNING"), READY
    ),
    "hybrid-manager-disabled": Pair(
        said(READY, "Available KV", "Hybrid KV cache manager is disabled for this hybrid model, This means", "WARNING"),
        READY,
    ),
    "cpu-offload-active": Pair(said(READY, WEIGHTS, "Total CPU offloaded parameters: 40.33"), READY),
    "kv-offload-active": Pair(
        said(READY, "Available KV", "Creating offloading spec with name: CPUOffloadingSpec"), READY
    ),
    "host-memory": Pair(said(READY, WEIGHTS, CHECKPOINT.format(45.01)), said(READY, WEIGHTS, CHECKPOINT.format(450.1))),
    "cpu-backend": Pair(said(start("0.31.0"), "Available KV", CPU), start("0.31.0")),
    "restart-loop": Pair(RESTART, OTHER_MODEL),
    "died-after-start": Pair(
        READY + DIED,
        READY + CAUGHT,
    ),
    "cause-cut-off": Pair(UNRELATED[: UNRELATED.index("Traceback (most") + 40], UNRELATED),
    "slow-start": Pair(READY.replace(" GiB memory and ", " GiB memory and 99"), READY),
    "not-a-memory-failure": Pair(UNRELATED, LOADING),
    "unexplained-failure": Pair(FOREIGN, UNRELATED),
    "healthy": Pair(READY, READY + DIED),
}
