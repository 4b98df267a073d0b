"""Writes `sample_logs/`: a log for each era and case, and beside each the exact ledger it was printed from.

    python -m tests.make_samples

The figures are those of real starts (card totals, weights, peaks, graph pools); the bytes behind them are ours.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from tests.render.ledger import as_json
from tests.render.lines import render_all
from tests.render.numbers_as_printed import GIB, MIB
from tests.render.parts import Captures, Failure, Group, Rank
from tests.render.truth import Truth

SAMPLES = Path(__file__).resolve().parent.parent / "sample_logs"
PAGE = 1 << 16

H100, A100, H200 = 85028896768, 85098823680, 150121480192
L4, L40S, RTX_4090, RTX_PRO = 23795204096, 47803154432, 25386352640, 101970870272


class Sample(NamedTuple):
    """One file: its name without suffix, and the start-ups in it."""

    name: str
    truths: tuple[Truth, ...]
    talkative: bool = False

    @property
    def log(self) -> str:
        return render_all(self.truths, self.talkative)

    @property
    def ledger(self) -> str:
        return json.dumps(as_json(self.truths), indent=1) + "\n"


def size(gib: float, step: int = 512) -> int:
    """GiB as printed, in the allocator's steps."""
    return round(gib * GIB / step) * step


def rank(total: int, used: float, weights: float, peak: float, other: float, block: int, **more: Any) -> Rank:
    """A rank from GiB figures: use before the engine, weights, activation peak, the rest of what it takes."""
    graphs = more.pop("graphs", 0.0)
    consumed = more.pop("consumed", weights + other + 0.02)
    return Rank(
        total_memory=total,
        initial_free_memory=total - size(used, PAGE),
        model_memory=size(weights),
        torch_peak_increase=size(peak),
        non_torch_increase=size(other, PAGE),
        bytes_per_block=block,
        total_consumed=size(consumed, PAGE),
        transient_peak_headroom=size(more.pop("headroom", peak)),
        reserved_slack=more.pop("slack", 20 * MIB),
        cudagraph_actual=size(graphs, PAGE),
        **more,
    )


def page(layers: int, heads: int, head_size: int = 128, block: int = 16) -> int:
    """Bytes per block of full-attention layers in 16 bit."""
    return 2 * block * heads * head_size * 2 * layers


LLAMA: dict[str, Any] = {"model": "meta-llama/Llama-3.1-8B-Instruct", "architecture": "LlamaForCausalLM"}
QWEN_MOE: dict[str, Any] = {"model": "Qwen/Qwen3-30B-A3B", "architecture": "Qwen3MoeForCausalLM", "moe": True}
DEEPSEEK: dict[str, Any] = {"model": "cognitivecomputations/DeepSeek-R1-AWQ", "architecture": "DeepseekV3ForCausalLM"}
NEMOTRON: dict[str, Any] = {"model": "nvidia/Llama-3.1-Nemotron-Nano-8B-v1", "architecture": "LlamaForCausalLM"}
GPT_OSS: dict[str, Any] = {"model": "openai/gpt-oss-20b", "architecture": "GptOssForCausalLM", "moe": True}
SWEEP = Captures(114 * MIB, 4 * MIB, 256 * MIB, 2 * MIB)
SMALL = Captures(90 * MIB, 2 * MIB, 40 * MIB, 2 * MIB)


def v0_samples() -> list[Sample]:
    """V0, from bare block counts to the three-line account."""
    llama = rank(H100, 0.51, 14.9888, 1.22, 0.24, page(32, 8), graphs=0.9)
    half = rank(A100, 0.41, 7.5122, 1.17, 0.2, page(32, 4), graphs=0.35)
    qwen = rank(L40S, 0.43, 2.8875, 1.40, 0.23, page(28, 2), graphs=0.21)
    old: dict[str, Any] = {"engine": "V0", **LLAMA}
    return [
        Sample("vllm-0.3.3-single", (Truth("0.3.3", (llama,), 0.9, **old),)),
        Sample("vllm-0.5.5-tp2", (Truth("0.5.5", (half, half), 0.9, tp=2, **old),)),
        Sample("vllm-0.6.4-single", (Truth("0.6.4", (qwen,), 0.9, engine="V0", model="Qwen/Qwen2.5-1.5B-Instruct"),)),
        Sample(
            "vllm-0.6.6.post1-single",
            (Truth("0.6.6.post1", (qwen,), 0.9, engine="V0", full_model_len=4096, model="Qwen/Qwen2.5-1.5B-Instruct"),),
        ),
        Sample("vllm-0.7.3-tp2", (Truth("0.7.3", (half, half), 0.875, tp=2, colour=True, **old),)),
    ]


def early_v1_samples() -> list[Sample]:
    """V1 up to 0.13: from tokens alone to M, with the ledger stated once, in 0.10.2."""
    llama = rank(H100, 0.51, 14.9888, 1.22, 0.24, page(32, 8), graphs=0.54)
    tp2 = [rank(RTX_4090, 0.44 + 0.3 * i, 7.8951, 1.21, 0.41, page(48, 2), graphs=2.08) for i in range(2)]
    fp8 = rank(L4, 0.25, 8.9638, 1.23, 0.02, page(36, 8), graphs=1.12)
    h200 = rank(H200, 0.6, 14.9596, 4.75, 0.11, page(32, 8), graphs=-0.41)
    latent = page(61, 1, 288)
    nodes = [rank(H100, 0.5, 40.3174, 3.3, 2.05 + 0.02 * (i % 2), latent, graphs=3.51) for i in range(4)]
    qwen8: dict[str, Any] = {
        "model": "unsloth/Qwen3-8B-FP8",
        "architecture": "Qwen3ForCausalLM",
        "full_model_len": 2048,
    }
    return [
        Sample("vllm-0.8.4-ray-two-nodes", (Truth("0.8.4", tuple(nodes), 0.9, tp=4, nodes=2, ray=True, **DEEPSEEK),)),
        Sample("vllm-0.8.5-single", (Truth("0.8.5", (llama,), 0.9, **LLAMA),)),
        Sample("vllm-0.9.2-tp2", (Truth("0.9.2", tuple(tp2), 0.9, tp=2, log_level="DEBUG", **QWEN_MOE),)),
        Sample("vllm-0.10.2-single", (Truth("0.10.2", (fp8,), 0.8661508568217998, **qwen8),)),
        Sample("vllm-0.11.2-single", (Truth("0.11.2", (h200,), 0.9, full_model_len=1024, colour=True, **LLAMA),)),
        Sample("vllm-0.13.0-tp2", (Truth("0.13.0", tuple(tp2), 0.9, tp=2, colour=True, **QWEN_MOE),)),
    ]


def middle_samples() -> list[Sample]:
    """0.14 to 0.26: rounded prints, graph estimates, pipelines, replicas, hybrids."""
    qwen3b = rank(RTX_4090, 0.44, 5.79, 0.35, 0.06, page(36, 2), graphs=0.4)
    first = rank(H100, 1.43, 7.51, 1.1, 0.07, page(16, 8), captures=SWEEP, graphs=0.65, slack=size(0.16))
    last = rank(H100, 1.43, 7.51, 2.01, 0.07, page(16, 8), captures=SWEEP, graphs=0.65, slack=size(0.38))
    replica = [
        rank(A100, 0.41 + 0.02 * i, 56.93, 0.9, 0.31, page(48, 4), captures=SMALL, graphs=0.28) for i in range(2)
    ]
    hybrid = rank(H100, 0.51, 13.72, 3.1, 0.25, page(12, 8, 64), captures=SMALL, graphs=0.37)
    tp2 = [rank(H100, 1.53, 7.52, 2.2 + 0.1 * i, 2.08, page(32, 4), captures=SWEEP, graphs=0.71) for i in range(2)]
    groups = (Group("full", 16), Group("sliding", 16, 128))
    pp2 = Truth("0.19.1", (first, last), 0.95, pp=2, log_level="DEBUG", interleave=7, **LLAMA)
    return [
        Sample(
            "vllm-0.17.1-single",
            (Truth("0.17.1", (qwen3b,), 0.9, full_model_len=4096, model="Qwen/Qwen2.5-3B-Instruct"),),
        ),
        Sample("vllm-0.19.1-pp2", (Truth("0.19.1", (first, last), 0.95, pp=2, **LLAMA),)),
        Sample("vllm-0.19.1-pp2-debug", (pp2,), talkative=True),
        Sample("vllm-0.20.2-hybrid", (Truth("0.20.2", (hybrid,), 0.92, groups=groups, **GPT_OSS),)),
        Sample("vllm-0.21.0-dp2", (Truth("0.21.0", tuple(replica), 0.9, dp=2, full_model_len=32768, **QWEN_MOE),)),
        Sample("vllm-0.26.0-tp2", (Truth("0.26.0", tuple(tp2), 0.92, tp=2, interleave=3, **LLAMA),)),
    ]


def late_samples() -> list[Sample]:
    """0.27 on: consumption by difference, one capacity line, prefixes in the format, external weights."""
    coder = rank(A100, 0.41, 56.93, 0.2, 0.3, page(48, 4), headroom=0.08, consumed=57.26, captures=SMALL, graphs=0.11)
    wide = {"auto_fit": True, "full_model_len": 262144, **QWEN_MOE}
    dense = rank(RTX_PRO, 0.54, 51.1, 2.2, 0.5, page(64, 8), headroom=1.89, consumed=51.65, captures=SMALL, graphs=0.3)
    held = rank(
        H100,
        15.6,
        0.02,
        1.3,
        0.3,
        page(32, 8),
        consumed=0.4,
        captures=SWEEP,
        graphs=0.65,
        external_weight_memory=size(15),
    )
    return [
        Sample(
            "vllm-0.27.1-single",
            (Truth("0.27.1", (coder,), 0.9, full_model_len=131072, graph_sizes=(7, 5), max_num_seqs=16, **QWEN_MOE),),
        ),
        Sample("vllm-0.29.0-v2-runner", (Truth("0.29.0", (dense,), 0.9, v2_runner=True, model="Qwen/Qwen3-32B"),)),
        Sample("vllm-0.30.0-autofit", (Truth("0.30.0", (coder,), 0.92, **wide),)),
        Sample("vllm-0.33.0-single", (Truth("0.33.0", (held,), 0.92, **LLAMA),)),
        Sample(
            "vllm-0.33.0-explicit-memory",
            (Truth("0.33.0", (dense,), 0.92, kv_cache_memory_bytes=33065392026, model="Qwen/Qwen3-32B"),),
        ),
    ]


def failures() -> list[Sample]:
    """Starts that end badly, and one that is tried three times."""
    busy = rank(H100, 24.84, 14.99, 1.22, 0.24, page(32, 8), captures=SWEEP, graphs=0.65)
    nemotron = rank(L4, 0.25, 7.338, 9.2, 0.9, page(32, 8))
    large = rank(L40S, 0.43, 35.1, 1.4, 0.23, page(48, 4), captures=SMALL)
    full = [rank(RTX_PRO, 0.96, 41.2, 2.1, 1.7, page(32, 8), consumed=43.1, captures=SMALL) for _ in range(2)]
    free = rank(H100, 0.51, 14.99, 1.22, 0.24, page(32, 8), captures=SWEEP, graphs=0.65)
    loop = (
        Truth("0.22.1", (busy,), 0.92, start=0, **LLAMA),
        Truth("0.22.1", (free,), 0.92, start=60, injected=Failure.OOM_CAPTURE, **LLAMA),
        Truth("0.22.1", (free,), 0.85, start=120, **LLAMA),
    )
    return [
        Sample("vllm-0.10.2-no-kv-memory", (Truth("0.10.2", (nemotron,), 0.7, colour=True, **NEMOTRON),)),
        Sample("vllm-0.14.1-free-below-desired", (Truth("0.14.1", (busy,), 0.9, **LLAMA),)),
        Sample("vllm-0.24.0-request-too-long", (Truth("0.24.0", (large,), 0.9, full_model_len=131072, **QWEN_MOE),)),
        Sample(
            "vllm-0.31.0-oom-capture",
            (Truth("0.31.0", tuple(full), 0.97, tp=2, injected=Failure.OOM_CAPTURE, model="Qwen/Qwen3-32B"),),
        ),
        Sample("vllm-0.22.1-crash-loop", loop),
    ]


def samples() -> list[Sample]:
    """Every sample, oldest engine first."""
    return [*v0_samples(), *early_v1_samples(), *middle_samples(), *late_samples(), *failures()]


def main() -> None:
    """Write every sample and its ledger."""
    SAMPLES.mkdir(exist_ok=True)
    for sample in samples():
        (SAMPLES / f"{sample.name}.log").write_bytes(sample.log.encode())
        (SAMPLES / f"{sample.name}.ledger.json").write_bytes(sample.ledger.encode())


if __name__ == "__main__":
    main()
