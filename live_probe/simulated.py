"""A card that is not there: real torch operators on CPU or meta tensors, their memory on a modelled card."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from live_probe.allocator import LARGE_STEP, MIB, CachingAllocator, CardMemory
from live_probe.device import AllocatorStats, DeviceMemoryError, MemoryInfo
from live_probe.measurement import DeviceProcess, Unread
from live_probe.storages import StorageFollower

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from live_probe.cards import Card, SimulatedCard

GRAPH_NODE = 16 * 1024
"""Driver memory of one captured kernel, in bytes.

The order of size only: 59 public start-ups of vLLM 0.19.0 on H100 show 0.15-0.2 MiB for each graph and layer, at
about ten kernels a layer.
"""


class DriverMemory:
    """What the driver and its libraries take for this process, outside torch, in pages of 2 MiB."""

    def __init__(self, card: CardMemory) -> None:
        self._card = card
        self._used = 0
        self._pages = 0

    def grow(self, size: int) -> None:
        """Take (or, negative, give back) bytes; whole pages move on the card.

        Raises:
            DeviceMemoryError: the card has no page left.

        """
        pages = -(-(self._used + size) // LARGE_STEP)
        wanted = (pages - self._pages) * LARGE_STEP
        if wanted > 0 and not self._card.take(wanted):
            free, total = self._card.info()
            raise DeviceMemoryError(f"the driver asked for {wanted} B, {free} B of {total} B free on the card")
        if wanted < 0:
            self._card.give(-wanted)
        self._used += size
        self._pages = pages


class SimulatedGraphs:
    """Graphs of a simulated card: their tensors stay in a private pool, their nodes in the driver's memory."""

    def __init__(self, device: SimulatedDevice) -> None:
        self._device = device
        self._pool = device.allocator.new_pool()
        self._nodes = 0

    def capture(self, run: Callable[[], object]) -> None:
        """Run once with every allocation from the private pool, the cache given back before.

        torch 2.3-2.13, torch/cuda/graphs.py: graph.__enter__.
        """
        self._device.allocator.empty_cache()
        before = self._device.kernels
        self._device.allocator.begin_capture(self._pool)
        try:
            run()
        finally:
            self._device.allocator.end_capture()
        size = (self._device.kernels - before) * GRAPH_NODE
        self._device.driver_memory.grow(size)
        self._nodes += size

    def release(self) -> None:
        """Give the nodes back at once and the pool's memory at the next `empty_cache`."""
        self._device.driver_memory.grow(-self._nodes)
        self._nodes = 0
        self._device.allocator.destroy_graphs(self._pool)


class SimulatedDevice:
    """A card of any size, deterministic to the byte; CPU and meta tensors give the same figures.

    With `backing="cpu"` operators really compute, with "meta" only their shapes are followed. Assign `others` to
    let other processes' use of the card grow or shrink meanwhile.
    """

    simulated = True
    driver = "simulated"

    def __init__(self, card: Card, others: int = 0, backing: str = "meta") -> None:
        self.card = card
        self.name = f"{card.name} (simulated)"
        self.multiprocessors = card.multiprocessors
        self.torch_device = torch.device(backing)
        self.memory_of_card = CardMemory(card.total, others)
        self.allocator = CachingAllocator(self.memory_of_card)
        self.driver_memory = DriverMemory(self.memory_of_card)
        self.driver_memory.grow(card.context)
        self.kernels = 0
        self._has_workspace = False
        self._follower = StorageFollower(self.allocator, backing, self)

    @classmethod
    def from_card(cls, asked: SimulatedCard) -> SimulatedDevice:
        """Build the device that a `sim:` specification names."""
        return cls(asked.card, asked.others, asked.backing)

    @property
    def others(self) -> int:
        """Bytes of the card that other processes hold."""
        return self.memory_of_card.others

    @others.setter
    def others(self, size: int) -> None:
        self.memory_of_card.others = size

    def running(self) -> AbstractContextManager[object]:
        """Follow every tensor made inside."""
        return self._follower

    def memory(self) -> MemoryInfo:
        """Read the modelled card."""
        return self.memory_of_card.info()

    def stats(self) -> AllocatorStats:
        """Read the modelled allocator."""
        return self.allocator.stats()

    def reset_peak(self) -> None:
        """Reset the modelled allocator's peaks."""
        self.allocator.reset_peak()

    def empty_cache(self) -> None:
        """Collect garbage, then empty the modelled cache."""
        gc.collect()
        self.allocator.empty_cache()

    def synchronize(self) -> None:
        """Nothing runs asynchronously here."""

    @contextmanager
    def split_limit(self, mib: int) -> Iterator[bool]:
        """Set the modelled allocator's max_split_size meanwhile."""
        before, self.allocator.max_split_size = self.allocator.max_split_size, mib * MIB
        try:
            yield True
        finally:
            self.allocator.max_split_size = before

    def graph_pool(self) -> SimulatedGraphs:
        """Open a modelled private pool."""
        return SimulatedGraphs(self)

    def processes(self) -> tuple[DeviceProcess, ...] | Unread:
        """Give the other users as one process, pid 0."""
        return (DeviceProcess(0, self.others),) if self.others else ()

    def on_new_storage(self) -> None:
        """Count the kernels that write a tensor of their own, for the size of captured graphs."""
        self.kernels += 1

    def on_matrix_product(self) -> None:
        """Take cuBLAS' handles and torch's workspace at the first product, for good.

        torch 2.3-2.13, aten/src/ATen/cuda/CublasHandlePool.cpp: getCurrentCUDABlasHandle allocates the workspace
        from the caching allocator and keeps it for each handle and stream.
        """
        if self._has_workspace:
            return
        self._has_workspace = True
        self.driver_memory.grow(self.card.libraries)
        self.allocator.malloc(self.card.blas_workspace)
