"""Graph capture as the engine does it: a throw-away pool on a minimal cache to estimate, then the real one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from live_probe.budget import graph_estimate
from live_probe.eras import V2_ESTIMATES_GRAPHS, release_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from live_probe.device import Device, GraphPool
    from live_probe.eras import Era
    from live_probe.launch import LaunchSettings

FULL = "FULL"


class CaptureGroup(NamedTuple):
    """Graphs of one mode, by batch size in tokens, largest first."""

    mode: str
    sizes: tuple[int, ...]


def capture_groups(launch: LaunchSettings, era: Era) -> tuple[CaptureGroup, ...]:
    """Give what is captured by default, mixed batches first; full graphs only up to one token for each sequence.

    vLLM 0.11-0.33, vllm/v1/cudagraph_dispatcher.py: initialize_cudagraph_keys, get_capture_descs.
    """
    sizes = {
        mode: tuple(size for size in launch.capture_sizes if mode != FULL or size <= launch.max_num_seqs)
        for mode in era.graph_modes
    }
    return tuple(CaptureGroup(mode, kept) for mode, kept in sizes.items() if kept)


class GraphCapturer:
    """Captures a model's forward at given sizes, each after one run outside the pool.

    The torch engine records the whole model as one graph where vLLM's piecewise mode records a graph between every
    two attentions, so its figures are those of its own graphs.
    """

    def __init__(self, device: Device, forward: Callable[[int], object]) -> None:
        self._device = device
        self._forward = forward

    def _one(self, pool: GraphPool, size: int) -> int:
        """Warm up and capture one size; give the free memory that went, in bytes."""
        before = self._device.memory().free
        self._forward(size)
        self._device.synchronize()
        pool.capture(lambda: self._forward(size))
        self._device.synchronize()
        return before - self._device.memory().free

    def capture(self, groups: tuple[CaptureGroup, ...]) -> tuple[GraphPool, int]:
        """Capture everything for good and give the free memory that went: cudagraph_memory_actual.

        vLLM 0.8-0.33, GPUModelRunner.capture_model.
        """
        pool = self._device.graph_pool()
        self._device.empty_cache()
        before = self._device.memory().free
        for group in groups:
            for size in group.sizes:
                self._one(pool, size)
        self._device.synchronize()
        return pool, before - self._device.memory().free

    def estimate(self, groups: tuple[CaptureGroup, ...], launch: LaunchSettings) -> int:
        """Estimate it from a few captures that are thrown away, as the release's runner does."""
        if launch.runner == "v2" and release_of(launch.version) < V2_ESTIMATES_GRAPHS:
            return 0
        pool = self._device.graph_pool()
        self._device.empty_cache()
        estimate = self._estimate_v1(pool, groups) if launch.runner == "v1" else self._estimate_v2(pool, groups)
        pool.release()
        self._device.empty_cache()
        return estimate

    def _estimate_v1(self, pool: GraphPool, groups: tuple[CaptureGroup, ...]) -> int:
        samples = [self._two_largest(pool, group) for group in groups]
        return graph_estimate(samples, [len(group.sizes) for group in groups])

    def _estimate_v2(self, pool: GraphPool, groups: tuple[CaptureGroup, ...]) -> int:
        """Measure mixed batches in full, extrapolate full graphs from two.

        vLLM 0.29-0.33, vllm/v1/worker/gpu/cudagraph_utils.py: profile_cudagraph_memory.
        """
        total = 0
        for group in groups:
            if group.mode == FULL:
                total += graph_estimate([self._two_largest(pool, group)], [len(group.sizes)])
            else:
                total += sum(self._one(pool, size) for size in group.sizes)
        return max(total, 0)

    def _two_largest(self, pool: GraphPool, group: CaptureGroup) -> tuple[int, int]:
        """Capture the two largest sizes and give what each took; 0 for a second where there is one size only."""
        first, *second = [self._one(pool, size) for size in group.sizes[:2]]
        return first, second[0] if second else 0
