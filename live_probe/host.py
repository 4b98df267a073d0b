"""Memory of an engine that runs on the CPU: what the system has left and what this process holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from live_probe.device import AllocatorStats, MemoryInfo
from live_probe.proc import PROC, available_ram, sizes_in

if TYPE_CHECKING:
    from pathlib import Path


class HostMemory:
    """The host as a device: free is MemAvailable, allocated and reserved are this process' resident set.

    torch counts no CPU allocations, so the resident set is the nearest there is: it holds the interpreter too, and
    untouched pages are not in it.
    """

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc

    def memory(self) -> MemoryInfo:
        """Read /proc/meminfo.

        Raises:
            LookupError: the system does not say; only Linux does.

        """
        return MemoryInfo(available_ram(self._proc), sizes_in(self._proc / "meminfo")["MemTotal"])

    def stats(self) -> AllocatorStats:
        """Read /proc/self/status."""
        fields = sizes_in(self._proc / "self" / "status")
        resident, peak = fields["VmRSS"], fields["VmHWM"]
        return AllocatorStats(resident, resident, peak, peak)
