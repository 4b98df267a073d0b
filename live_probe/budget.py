"""The equations of the memory budget, each as its releases compute it. Bytes in, bytes out."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from live_probe.eras import Era
    from live_probe.measurement import Snapshot

MIN_PER_GRAPH = 1 << 20
"""Least that a further graph is estimated at (V1 and V2 runners, profile_cudagraph_memory, 0.18-0.33)."""


class ProfiledTerms(NamedTuple):
    """What profiling takes from the budget before graphs, under the contract's names."""

    torch_peak_increase: int
    non_torch_increase: int
    total_consumed: int
    transient_peak_headroom: int

    @property
    def non_kv_cache_memory(self) -> int:
        """All of it: total_consumed + transient_peak_headroom."""
        return self.total_consumed + self.transient_peak_headroom


class ProfilingSnapshots(NamedTuple):
    """The snapshots the terms are read from.

    `peak` is allocated_bytes.all.peak when the profile run ended: later releases read it before graphs are
    profiled. `allocated_floor` is the peak counter just after it was reset.
    """

    initial: Snapshot
    after: Snapshot
    allocated_floor: int
    peak: int


def requested_memory(total_memory: int, gpu_memory_utilization: float, era: Era) -> int:
    """Give the budget R in bytes.

    vLLM 0.14-0.33, vllm/v1/worker/utils.py: request_memory (ceil). 0.9.1-0.13, Worker.init_device keeps the float;
    its whole part is what the engine's own integers add up to. Before 0.9.1 the product stands in
    Worker.determine_available_memory.
    """
    product = total_memory * gpu_memory_utilization
    return math.ceil(product) if era.budget == "ceil" else math.floor(product)


def profiled_terms(read: ProfilingSnapshots, model_memory: int, era: Era) -> ProfiledTerms:
    """Tell what is consumed for good from what only the activation peak needs.

    0.27-0.33, vllm/utils/mem_utils.py: memory_profiling (total_consumed, transient_peak_headroom). 0.9.1-0.26, the
    same function's non_torch_increase and torch_peak_increase, consumed being weights + non_torch_increase. Up to
    0.9.0, Worker.determine_available_memory charges everything in use on the card that torch has not allocated, if
    positive.
    """
    peak_increase = read.peak - read.allocated_floor
    non_torch = read.after.non_torch - read.initial.non_torch
    if era.terms == "consumed":
        consumed = read.initial.free - read.after.free
        return ProfiledTerms(peak_increase, non_torch, consumed, read.peak - read.after.allocated)
    if era.terms == "increases":
        return ProfiledTerms(peak_increase, non_torch, model_memory + non_torch, peak_increase)
    in_use = read.after.total - read.after.free
    elsewhere = max(0, in_use - read.after.allocated)
    consumed = read.allocated_floor + elsewhere
    return ProfiledTerms(peak_increase, consumed - model_memory, consumed, peak_increase)


def graph_estimate(first_and_second: list[tuple[int, int]], counts: list[int]) -> int:
    """Extrapolate graph memory from the two largest captures of each mode, as the V1 runner does.

    vLLM 0.18-0.33, vllm/v1/worker/gpu_model_runner.py: profile_cudagraph_memory. Modes share a pool, so only the
    dearest first capture counts; each further graph counts as the second one, at least 1 MiB. With one capture size
    the second is given as 0.
    """
    if not first_and_second:
        return 0
    shared = max(first for first, _ in first_and_second)
    further = sum(
        max(second, MIN_PER_GRAPH) * (count - 1) for (_, second), count in zip(first_and_second, counts, strict=True)
    )
    return shared + further


def available_kv_cache_memory(requested: int, terms: ProfiledTerms, graphs_applied: int) -> int:
    """Give M, which can be negative: R - (C + H) - G (Worker.determine_available_memory, every V1 release)."""
    return requested - terms.non_kv_cache_memory - graphs_applied
