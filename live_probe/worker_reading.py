"""What a vLLM worker knows about its own memory, under the attribute names of each release.

vLLM 0.8-0.33: vllm/v1/worker/gpu_worker.py (Worker), gpu_model_runner.py and gpu/model_runner.py (model_memory_usage,
kv_cache_config), cpu_worker.py (CPUWorker, which keeps hardly any).
"""

from __future__ import annotations

from typing import NamedTuple

from live_probe.eras import release_of
from live_probe.measurement import Measurement, NotMeasured

_PEAK_HOLDS_GRAPHS = ((0, 18, 0), (0, 19, 0))
"""Releases from the first up to below the second, and all from 0.27, add G to peak_activation_memory."""
_CONSUMED_SINCE = (0, 27, 0)
_NOT_KEPT = "this release's worker does not keep it"
_SKIPPED = "not profiled: kv_cache_memory_bytes or a saved start-up plan was used, or this platform has no profile"


class WorkerReading(NamedTuple):
    """The quantities found, and why the others were not."""

    measurements: tuple[Measurement, ...]
    missing: tuple[NotMeasured, ...]


def read_worker(worker: object, version: str, *, graphs_charged: bool) -> WorkerReading:
    """Read a worker after (any part of) its start-up.

    `graphs_charged` is whether the release takes its graph estimate from the budget
    (VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS).
    """
    found = [*_baseline(worker), *_profiled(worker, version, graphs_charged=graphs_charged), *_pool(worker)]
    return WorkerReading(
        tuple(entry for entry in found if isinstance(entry, Measurement)),
        tuple(entry for entry in found if isinstance(entry, NotMeasured)),
    )


def _baseline(worker: object) -> list[Measurement | NotMeasured]:
    snapshot = getattr(worker, "init_snapshot", None)
    free = getattr(worker, "init_gpu_memory", None) if snapshot is None else getattr(snapshot, "free_memory", None)
    requested = getattr(worker, "requested_memory", getattr(worker, "requested_cpu_memory", None))
    return [
        _bytes("total_memory", getattr(snapshot, "total_memory", None), "init_snapshot.total_memory"),
        _bytes("initial_free_memory", free, "init_snapshot.free_memory (init_gpu_memory up to 0.9.0)"),
        _bytes("requested_memory", requested, "Worker.requested_memory"),
        _bytes("model_memory", _runner(worker, "model_memory_usage"), "model_runner.model_memory_usage"),
    ]


def _profiled(worker: object, version: str, *, graphs_charged: bool) -> list[Measurement | NotMeasured]:
    release = release_of(version)
    estimate = getattr(worker, "cudagraph_memory_estimate", None)
    applied = estimate if isinstance(estimate, int) and graphs_charged else 0
    peak = getattr(worker, "peak_activation_memory", None)
    holds_graphs = release >= _CONSUMED_SINCE or _PEAK_HOLDS_GRAPHS[0] <= release < _PEAK_HOLDS_GRAPHS[1]
    if peak is not None and holds_graphs:
        peak -= applied
    found = [
        _bytes("transient_peak_headroom", peak, "peak_activation_memory, less the graphs in it", _SKIPPED),
        _bytes("cudagraph_memory_estimate", estimate, "Worker.cudagraph_memory_estimate", _SKIPPED),
        _bytes(
            "available_kv_cache_memory",
            getattr(worker, "available_kv_cache_memory_bytes", None),
            "Worker.available_kv_cache_memory_bytes",
            _SKIPPED,
        ),
    ]
    if peak is not None:
        found.append(_bytes("cudagraph_memory_applied", applied, "the estimate where it is charged"))
    return [*found, *_consumed(worker, release, peak)]


def _consumed(worker: object, release: tuple[int, ...], peak: int | None) -> list[Measurement | NotMeasured]:
    if release >= _CONSUMED_SINCE:
        consumed = getattr(worker, "total_consumed", None)
        return [_bytes("total_consumed", consumed, "Worker.total_consumed", _SKIPPED)]
    non_torch, weights = getattr(worker, "non_torch_memory", None), _runner(worker, "model_memory_usage")
    both = int(non_torch) + int(weights) if isinstance(non_torch, int) and isinstance(weights, int | float) else None
    return [
        _bytes("torch_peak_increase", peak, "Worker.peak_activation_memory", _SKIPPED),
        _bytes("non_torch_increase", non_torch, "Worker.non_torch_memory", _SKIPPED),
        _bytes("total_consumed", both, "model_memory + non_torch_increase", _SKIPPED),
    ]


def _pool(worker: object) -> list[Measurement | NotMeasured]:
    config = _runner(worker, "kv_cache_config")
    blocks = getattr(config, "num_blocks", None)
    found = [
        _tokens("block_size", getattr(getattr(worker, "cache_config", None), "block_size", None)),
        _tokens("max_model_len", getattr(getattr(worker, "model_config", None), "max_model_len", None)),
    ]
    if not isinstance(blocks, int) or blocks <= 0:
        reason = "the worker has no kv_cache_config yet, or its release (before 0.9.0) keeps none"
        return [*found, *(NotMeasured(name, reason) for name in ("num_blocks", "kv_cache_bytes", "bytes_per_block"))]
    tensors = getattr(config, "kv_cache_tensors", None)
    if tensors is None:
        tensors = getattr(config, "tensors", {}).values()
    size = sum(int(tensor.size) for tensor in tensors)
    return [
        *found,
        Measurement("num_blocks", blocks, "blocks", "kv_cache_config.num_blocks"),
        Measurement("kv_cache_bytes", size, "B", "sum of kv_cache_config's tensors"),
        Measurement("bytes_per_block", size // blocks, "B", "kv_cache_bytes / num_blocks"),
    ]


def _runner(worker: object, name: str) -> object:
    """Read an attribute of the model runner, or None where it has not been made."""
    return getattr(getattr(worker, "model_runner", None), name, None)


def _bytes(name: str, value: object, equation: str, absent: str = _NOT_KEPT) -> Measurement | NotMeasured:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Measurement(name, int(value), "B", equation)
    return NotMeasured(name, absent)


def _tokens(name: str, value: object) -> Measurement | NotMeasured:
    if isinstance(value, int) and value > 0:
        return Measurement(name, value, "tokens", "from the engine's config")
    return NotMeasured(name, _NOT_KEPT)
