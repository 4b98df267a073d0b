"""The driver's own list of who holds device memory. NVML is optional: without it, absence has a reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from live_probe.measurement import DeviceProcess, Unread

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

Answer = TypeVar("Answer")


def compute_processes(uuid: str) -> tuple[DeviceProcess, ...] | Unread:
    """List the compute processes on the card or MIG slice of that UUID with the bytes each holds.

    A container sees its own processes only, or those of the host by the host's numbers; WSL hides the sizes: such a
    size is Unread.
    """

    def listed(nvml: ModuleType) -> tuple[DeviceProcess, ...]:
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid.encode("ascii"))
        entries = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        return tuple(DeviceProcess(int(entry.pid), _used(entry.usedGpuMemory)) for entry in entries)

    return _asked(listed)


def driver_version() -> str | Unread:
    """Give the driver's version, such as 550.54.15."""

    def version(nvml: ModuleType) -> str:
        written = nvml.nvmlSystemGetDriverVersion()
        return written.decode() if isinstance(written, bytes) else str(written)

    return _asked(version)


def _asked(question: Callable[[ModuleType], Answer]) -> Answer | Unread:
    """Put a question to NVML between its start and its end; the reason where it has no answer."""
    try:
        import pynvml as nvml
    except ImportError:
        return Unread("NVML is not readable: pip install nvidia-ml-py")
    try:
        nvml.nvmlInit()
        try:
            return question(nvml)
        finally:
            nvml.nvmlShutdown()
    except nvml.NVMLError as error:
        return Unread(f"NVML: {error}")


def _used(size: int | None) -> int | Unread:
    return Unread("the driver hides sizes here (WSL or MIG)") if size is None else int(size)
