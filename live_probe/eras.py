"""How the start-up sequence differs from release to release, as data.

Read from the sources of every release named here (vllm/v1/worker/gpu_worker.py and gpu_model_runner.py,
vllm/v1/sample/ops/topk_topp_sampler.py, vllm/config); each row states what that release was the first to do.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

Release = tuple[int, ...]
Runner = Literal["v1", "v2"]


class UnsupportedVersionError(ValueError):
    """A release whose start-up sequence is not known."""


class Era(NamedTuple):
    """The sequence from one release on.

    `budget`: how requested_memory is rounded, or "unchecked" where there is none. `terms`: how consumed memory is
    told from the activation peak. `split_limited`: the steps that run under the allocator's 20 MiB split limit.
    `graph_profile`: where the graph estimate is taken, and `graphs_charged` whether it leaves the budget by default.
    `sampler`: how the V1 runner's dummy sampler filters. `capture_ladder`: the default graph sizes. `graph_modes`:
    the kinds of graphs captured by default. `attention_scalars`: scales and ranges that each attention layer has on the
    card once the model is loaded (vllm/attention/layer.py, later vllm/model_executor/layers/attention/attention.py); the
    twin of `_SCALARS` in reconstruct/predict/attention.py. `expert_pass`: tokens that the fused experts take at once, 0
    for all (VLLM_FUSED_MOE_CHUNK_SIZE). `expert_scratch`: their buffers go with the layer, the result where the input was
    ("in place") or beside it (torch 2.9 on), or are kept for all layers (the workspace manager); the twin of
    reconstruct/predict/workspaces.py. `input_waits`: whether the memory of a compiled MLP's input waits for the layer's
    output always, or only where that raises no peak (torch 2.9 on); the twin of reconstruct/predict/forward.py.
    """

    since: Release
    budget: Literal["unchecked", "floor", "ceil"]
    terms: Literal["device-wide", "increases", "consumed"]
    split_limited: frozenset[str] = frozenset()
    graph_profile: Literal["absent", "while profiling", "after profiling"] = "absent"
    graphs_charged: bool = False
    blas_warm_up: bool = False
    sampler: Literal["sort", "filter"] = "sort"
    capture_ladder: Literal["every 8 to 512", "every 8", "every 16 from 256"] = "every 8 to 512"
    graph_modes: tuple[str, ...] = ("PIECEWISE",)
    gpu_memory_utilization: float = 0.9
    attention_scalars: int = 4
    expert_pass: int = 65536
    expert_scratch: Literal["in place", "beside", "kept"] = "in place"
    input_waits: Literal["always", "below the peak"] = "always"


_V0_8 = Era((0, 8, 0), budget="unchecked", terms="device-wide")
_V0_8_2 = _V0_8._replace(since=(0, 8, 2), attention_scalars=6)
_V0_8_5 = _V0_8_2._replace(since=(0, 8, 5), attention_scalars=7)
_V0_9_1 = _V0_8_5._replace(since=(0, 9, 1), budget="floor", terms="increases")
_V0_10 = _V0_9_1._replace(since=(0, 10, 0), capture_ladder="every 8")
_V0_11 = _V0_10._replace(since=(0, 11, 0), graph_modes=("PIECEWISE", "FULL"))
_V0_11_1 = _V0_11._replace(
    since=(0, 11, 1), capture_ladder="every 16 from 256", expert_scratch="beside", input_waits="below the peak"
)
_V0_12 = _V0_11_1._replace(since=(0, 12, 0), expert_pass=16384)
_V0_14 = _V0_12._replace(since=(0, 14, 0), budget="ceil", expert_scratch="kept")
_V0_15 = _V0_14._replace(since=(0, 15, 0), attention_scalars=4)
_V0_17 = _V0_15._replace(since=(0, 17, 0), sampler="filter")
_V0_18 = _V0_17._replace(since=(0, 18, 0), graph_profile="while profiling", expert_pass=0)
_V0_20 = _V0_18._replace(since=(0, 20, 0), graphs_charged=True, gpu_memory_utilization=0.92)
_V0_21 = _V0_20._replace(since=(0, 21, 0), split_limited=frozenset({"load_model"}))
_V0_27 = _V0_21._replace(since=(0, 27, 0), terms="consumed", graph_profile="after profiling")
_V0_31 = _V0_27._replace(since=(0, 31, 0), split_limited=frozenset({"load_model", "profile_run"}))
_V0_33 = _V0_31._replace(since=(0, 33, 0), blas_warm_up=True)

ERAS = (
    _V0_8, _V0_8_2, _V0_8_5, _V0_9_1, _V0_10, _V0_11, _V0_11_1, _V0_12, _V0_14, _V0_15, _V0_17, _V0_18, _V0_20, _V0_21,
    _V0_27, _V0_31, _V0_33,
)  # fmt: skip
NEWEST: Release = (0, 33, 0)
"""The last release whose sources were read; later ones are taken to do the same."""
V2_ESTIMATES_GRAPHS: Release = (0, 29, 0)
"""Before it the V2 runner's profile_cudagraph_memory returns 0."""
V2_WARMS_SAMPLER: Release = (0, 33, 0)
"""From it on the V2 runner's profile also samples with every logits processor on."""

_Defaults = tuple[tuple[Release, frozenset[str] | None], ...]
_V2_DEFAULTS: _Defaults = (
    ((0, 25, 0), None),
    ((0, 23, 0), frozenset({"LlamaForCausalLM", "MistralForCausalLM", "Qwen3ForCausalLM"})),
    ((0, 22, 0), frozenset({"Qwen3ForCausalLM"})),
)
"""Dense architectures that start on the V2 runner unless told otherwise; None is all of them.

vllm/config/vllm.py: VllmConfig.use_v2_model_runner and DEFAULT_V2_MODEL_RUNNER_ARCHITECTURES.
"""
_V2_WITH_EXPERTS: _Defaults = (((0, 29, 0), None), ((0, 24, 0), frozenset({"Qwen2MoeForCausalLM"})))
"""The same of those with experts."""


def release_of(version: str) -> Release:
    """Give the numbers of a version; suffixes such as rc1, dev5 and local parts are dropped.

    Raises:
        UnsupportedVersionError: the text does not begin with a release number.

    """
    match = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?:\.(\d+))?(?!\d)", version.strip())
    if match is None:
        raise UnsupportedVersionError(f"{version!r} is no vLLM version: write it as 0.20.2")
    return tuple(int(part) for part in match.groups() if part is not None)


def era_of(version: str) -> Era:
    """Give the sequence of a vLLM release.

    Raises:
        UnsupportedVersionError: before 0.8.0, where the default engine was another, or not a version.

    """
    release = release_of(version)
    for era in reversed(ERAS):
        if release >= era.since:
            return era
    raise UnsupportedVersionError(f"vLLM {version} starts another way (V0): the probe knows 0.8.0 and later")


def default_runner(version: str, architectures: tuple[str, ...], *, experts: bool = False) -> Runner:
    """Give the model runner that a release chooses by itself for a model without quantisation."""
    release = release_of(version)
    for since, known in _V2_WITH_EXPERTS if experts else _V2_DEFAULTS:
        if release >= since:
            return "v2" if known is None or known.intersection(architectures) else "v1"
    return "v1"


def capture_sizes(era: Era, max_num_seqs: int, max_num_batched_tokens: int) -> tuple[int, ...]:
    """Give the batch sizes captured by default, largest first.

    vllm/config: VllmConfig._set_cudagraph_sizes (0.8-0.9: every 8 to 512; 0.10-0.11.0: every 8 up to twice
    max_num_seqs, at most 512; then every 16 from 256).
    """
    largest = 512 if era.capture_ladder == "every 8 to 512" else min(2 * max_num_seqs, 512)
    largest = min(largest, max_num_batched_tokens)
    if era.capture_ladder == "every 16 from 256":
        ladder = {*range(8, min(largest + 1, 256), 8), *range(256, largest + 1, 16)}
    else:
        ladder = set(range(8, largest + 1, 8))
    ladder |= {size for size in (1, 2, 4) if size <= largest}
    return tuple(sorted(ladder, reverse=True))
