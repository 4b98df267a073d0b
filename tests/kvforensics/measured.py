"""Probes made from known ledgers, and the torch engine run in this process, so that torch is loaded once."""

from __future__ import annotations

import json

from kvforensics.probe_flags import Flags
from kvforensics.probe_ledger import Run, startup_of
from kvforensics.probing import ProbeReport
from live_probe.child_process import records_of
from live_probe.measurement import Environment, Measurement, NotMeasured, ProbeRecord, Snapshot, Unread
from tests.live_probe.tiny import TINY

MIB = 1 << 20
SMALL_BATCH = ("--max-num-seqs", "16", "--max-num-batched-tokens", "256", "--enforce-eager")


def config_file(folder):
    """A tiny model's config.json."""
    path = folder / "config.json"
    path.write_text(json.dumps(TINY))
    return path


def probe_here(start, engine, run=0):
    """Stand in for `probe_torch`: the same start and the same journal, without a process of its own."""
    from live_probe.torch_child import go_through

    engine.folder.mkdir(parents=True)
    go_through(start, engine.folder / "rank-0.jsonl")
    return records_of(engine.folder, "torch", run, "")


def environment(engine="vllm", version="0.33.0", device="NVIDIA H100 80GB HBM3", simulated=False):
    return Environment(device, simulated, engine, version, "2.13", "570", ("pid 7",), "no", "no")


def measured_by_vllm(truth, **wrong):
    """A probe of exactly this start; `wrong` adds bytes to quantities."""
    records = []
    for index in range(len(truth.ranks)):
        dp, pp, tp = truth.scope(index)
        values = {
            name: value
            for scope, name, value in _terms(truth)
            if scope in (truth.scope(index), type(truth.scope(0))(dp))
        }
        figures = [
            Measurement(name, value + wrong.get(name, 0), unit)
            for name, value in values.items()
            if (unit := _unit(name))
        ]
        place = pp * truth.tp + tp + dp * truth.tp * truth.pp
        rank = f"dp {dp} rank {place}" if truth.dp > 1 else f"rank {place}"
        snapshot = Snapshot("load_model", "after", rank, 5, 10, 1, 2, 3, 0.5)
        missing = (NotMeasured("torch_peak_increase", "not kept"),)
        records.append(
            ProbeRecord(
                rank, 0, environment(version=truth.version), tuple(figures), missing, (snapshot,), Unread("no NVML")
            )
        )
    return report_of(tuple(records), truth)


def _terms(truth):
    return [(scope, name, value) for (scope, name), value in truth.expected().items()]


def _unit(name):
    """Whole numbers only: a probe measures no ratio."""
    from reconstruct.quantities import BY_NAME

    unit = BY_NAME[name].unit
    return "" if unit == "1" else unit


def report_of(records, truth):
    flags = Flags(
        gpu_memory_utilization=truth.gpu_memory_utilization,
        max_num_batched_tokens=truth.max_num_batched_tokens,
        dtype=truth.dtype,
        kv_cache_dtype=truth.kv_cache_dtype,
        enforce_eager=truth.enforce_eager,
        tensor_parallel_size=truth.tp,
        pipeline_parallel_size=truth.pp,
        data_parallel_size=truth.dp,
        decode_context_parallel_size=truth.dcp,
        kv_cache_memory_bytes=truth.kv_cache_memory_bytes,
        num_gpu_blocks_override=truth.num_blocks_override,
    )
    run = Run("vllm", truth.version, flags, {}, truth.model)
    return ProbeReport(truth.model, "vllm", (startup_of(records, run),), records, ())
