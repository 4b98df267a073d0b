"""The driver's own list of who holds device memory. NVML is optional: without it, absence has a reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

from live_probe.measurement import DeviceProcess, Unread

if TYPE_CHECKING:
    from types import ModuleType

_NO_BINDING = "NVML is not readable: pip install nvidia-ml-py"


def compute_processes(uuid: str) -> tuple[DeviceProcess, ...] | Unread:
    """List the compute processes on the card of that UUID with the bytes each holds.

    A container sees its own processes only, and WSL hides the sizes: such a size is Unread.
    """
    nvml = _binding()
    if isinstance(nvml, Unread):
        return nvml
    try:
        nvml.nvmlInit()
        try:
            handle = nvml.nvmlDeviceGetHandleByUUID(uuid.encode("ascii"))
            listed = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
            return tuple(DeviceProcess(int(entry.pid), _used(entry.usedGpuMemory)) for entry in listed)
        finally:
            nvml.nvmlShutdown()
    except nvml.NVMLError as error:
        return Unread(f"NVML: {error}")


def driver_version() -> str | Unread:
    """Give the driver's version, such as 550.54.15."""
    nvml = _binding()
    if isinstance(nvml, Unread):
        return nvml
    try:
        nvml.nvmlInit()
        try:
            version = nvml.nvmlSystemGetDriverVersion()
        finally:
            nvml.nvmlShutdown()
    except nvml.NVMLError as error:
        return Unread(f"NVML: {error}")
    return version.decode() if isinstance(version, bytes) else str(version)


def _binding() -> ModuleType | Unread:
    try:
        import pynvml
    except ImportError:
        return Unread(_NO_BINDING)
    binding: ModuleType = pynvml
    return binding


def _used(size: int | None) -> int | Unread:
    return Unread("the driver hides sizes here (WSL or MIG)") if size is None else int(size)
