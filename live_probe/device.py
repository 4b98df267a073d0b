"""The few things a start-up sequence asks of a device, and the real CUDA card that answers them through torch."""

from __future__ import annotations

import gc
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol

from live_probe.measurement import DeviceProcess, Snapshot, Unread
from live_probe.nvml import compute_processes, driver_version
from live_probe.proc import available_ram
from live_probe.sharing import mig_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    import torch

    from live_probe.measurement import When


def allocator_settings() -> str:
    """Give the settings that torch's allocator starts with; the general name goes before the old one, as in torch."""
    return os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")


class DeviceMemoryError(RuntimeError):
    """The device could not give the memory that was asked for."""


class MemoryInfo(NamedTuple):
    """Bytes the driver calls free, and bytes of the whole device."""

    free: int
    total: int


class AllocatorStats(NamedTuple):
    """Bytes held by torch's caching allocator: handed out, taken from the driver, and the peaks of both."""

    allocated: int
    reserved: int
    allocated_peak: int
    reserved_peak: int


class MemoryReader(Protocol):
    """The part of a device that a snapshot needs."""

    def memory(self) -> MemoryInfo:
        """Read what the driver says is free."""

    def stats(self) -> AllocatorStats:
        """Read the caching allocator's own counters."""


def snapshot_of(reader: MemoryReader, step: str, when: When, rank: str, seconds: float) -> Snapshot:
    """Read a device just before or after a step, `seconds` after the probe began."""
    free, total = reader.memory()
    stats = reader.stats()
    return Snapshot(step, when, rank, free, total, stats.allocated, stats.reserved, stats.allocated_peak, seconds)


class GraphPool(Protocol):
    """Captured graphs that share one private memory pool."""

    def capture(self, run: Callable[[], object]) -> None:
        """Record `run` as one graph into the pool."""

    def release(self) -> None:
        """Destroy the graphs; their memory may be given back at the next `empty_cache`."""


class Device(MemoryReader, Protocol):
    """A device as the start-up sequence sees it. All sizes are bytes.

    The sequence runs torch code only inside `running()` and never names CUDA, so that a simulated card runs the
    very same code.
    """

    @property
    def name(self) -> str:
        """The card, for reports."""

    @property
    def simulated(self) -> bool:
        """Whether the figures come from a model of a card."""

    @property
    def torch_device(self) -> torch.device:
        """Where tensors are made."""

    @property
    def driver(self) -> str:
        """The driver's version, or why it is not known."""

    @property
    def multiprocessors(self) -> int:
        """How many multiprocessors the card has; 0 where there are none."""

    def running(self) -> AbstractContextManager[object]:
        """Cover a stretch of torch code; raises DeviceMemoryError for every allocation that fails inside."""

    def reset_peak(self) -> None:
        """Let both peaks start again from the present value."""

    def empty_cache(self) -> None:
        """Give unused segments back to the driver, after a garbage collection."""

    def synchronize(self) -> None:
        """Wait for the device to finish its work."""

    def split_limit(self, mib: int) -> AbstractContextManager[bool]:
        """Keep the allocator from splitting blocks of `mib` MiB and more meanwhile; gives whether it can be kept."""

    def graph_pool(self) -> GraphPool:
        """Open a private pool to capture graphs into."""

    def processes(self) -> tuple[DeviceProcess, ...] | Unread:
        """List who holds memory on the device, this process included."""


class CudaGraphs:
    """Real CUDA graphs in one private pool."""

    def __init__(self, device: torch.device) -> None:
        import torch

        self._device = device
        self._pool = torch.cuda.graph_pool_handle()
        self._graphs: list[torch.cuda.CUDAGraph] = []

    def capture(self, run: Callable[[], object]) -> None:
        """Record `run`; its results live on in the pool, as an engine's static outputs do."""
        import torch

        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            run()
        self._graphs.append(graph)

    def release(self) -> None:
        """Destroy every graph of the pool."""
        self._graphs.clear()


class CudaDevice:
    """A CUDA card through torch: the names of the protocol, mapped and nothing else.

    Raises:
        LookupError: torch sees no such CUDA device.

    """

    simulated = False

    def __init__(self, index: int = 0) -> None:
        import torch

        if not torch.cuda.is_available() or index >= torch.cuda.device_count():
            why = "this torch is built without CUDA" if torch.version.cuda is None else "check the driver"
            raise LookupError(f"torch sees no CUDA device {index} ({why}): --device sim:H100-80GB simulates one")
        self.index = index
        self.torch_device = torch.device("cuda", index)
        torch.cuda.set_device(self.torch_device)
        properties = torch.cuda.get_device_properties(index)
        self.name: str = properties.name
        self.multiprocessors = int(properties.multi_processor_count)
        self.integrated = bool(getattr(properties, "is_integrated", False))

    @property
    def driver(self) -> str:
        """The driver's version by NVML, or why it is not known."""
        version = driver_version()
        return version if isinstance(version, str) else f"unknown: {version.reason}"

    @contextmanager
    def running(self) -> Iterator[None]:
        """Translate torch's out-of-memory error."""
        import torch

        try:
            yield
        except torch.cuda.OutOfMemoryError as error:
            raise DeviceMemoryError(str(error).splitlines()[0]) from error

    def memory(self) -> MemoryInfo:
        """Read cudaMemGetInfo; where CPU and GPU share memory, free is what the system can still give.

        vLLM 0.33, vllm/utils/mem_utils.py: MemorySnapshot.measure.
        """
        import torch

        free, total = torch.cuda.mem_get_info(self.index)
        return MemoryInfo(available_ram() if self.integrated else free, total)

    def stats(self) -> AllocatorStats:
        """Read torch.cuda.memory_stats."""
        import torch

        stats = torch.cuda.memory_stats(self.index)
        return AllocatorStats(
            allocated=stats.get("allocated_bytes.all.current", 0),
            reserved=stats.get("reserved_bytes.all.current", 0),
            allocated_peak=stats.get("allocated_bytes.all.peak", 0),
            reserved_peak=stats.get("reserved_bytes.all.peak", 0),
        )

    def reset_peak(self) -> None:
        """Call torch.cuda.reset_peak_memory_stats."""
        import torch

        torch.cuda.reset_peak_memory_stats(self.index)

    def empty_cache(self) -> None:
        """Collect garbage, then call torch.cuda.empty_cache."""
        import torch

        gc.collect()
        torch.cuda.empty_cache()

    def synchronize(self) -> None:
        """Call torch.cuda.synchronize."""
        import torch

        torch.cuda.synchronize(self.index)

    @contextmanager
    def split_limit(self, mib: int) -> Iterator[bool]:
        """Set max_split_size_mb beside the options already set, and restore those afterwards.

        vLLM 0.31-0.33, vllm/v1/worker/gpu_worker.py: Worker._scoped_allocator_max_split. An allocator without
        the setter (torch before 2.10, or not the native one) is left as it is, as there.
        """
        import torch

        setter = getattr(torch._C, "_accelerator_setAllocatorSettings", None)  # noqa: SLF001  no public setter exists
        if setter is None or torch.cuda.get_allocator_backend() != "native":
            yield False
            return
        getter = getattr(torch._C, "_accelerator_getAllocatorSettings", None)  # noqa: SLF001
        before = str(getter()) if getter is not None else allocator_settings()
        options = [option for option in (before.strip().rstrip(","), f"max_split_size_mb:{mib}") if option]
        setter(",".join(options))
        try:
            yield True
        finally:
            setter(before)

    def graph_pool(self) -> GraphPool:
        """Open a pool by torch.cuda.graph_pool_handle."""
        return CudaGraphs(self.torch_device)

    def processes(self) -> tuple[DeviceProcess, ...] | Unread:
        """Ask NVML, by the card's UUID, so that CUDA_VISIBLE_DEVICES does not mislead."""
        import torch

        uuid = getattr(torch.cuda.get_device_properties(self.index), "uuid", None)
        if uuid is None:
            return Unread("this torch does not tell the card's UUID")
        return compute_processes(f"{'GPU' if mig_of(self.name) == 'no' else 'MIG'}-{uuid}")
