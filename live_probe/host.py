"""Memory of an engine that runs on the CPU: what the system has left and what this process holds."""

from __future__ import annotations

from pathlib import Path

from live_probe.device import AllocatorStats, MemoryInfo

_KIB = 1024


class HostMemory:
    """The host as a device: free is MemAvailable, allocated and reserved are this process' resident set.

    torch counts no CPU allocations, so the resident set is the nearest there is: it holds the interpreter too, and
    untouched pages are not in it.
    """

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc

    def memory(self) -> MemoryInfo:
        """Read /proc/meminfo.

        Raises:
            KeyError: the system does not say; only Linux does.

        """
        fields = _fields(self._proc / "meminfo")
        return MemoryInfo(fields["MemAvailable"], fields["MemTotal"])

    def stats(self) -> AllocatorStats:
        """Read /proc/self/status."""
        fields = _fields(self._proc / "self" / "status")
        resident, peak = fields["VmRSS"], fields["VmHWM"]
        return AllocatorStats(resident, resident, peak, peak)


def _fields(path: Path) -> dict[str, int]:
    """Give every `Name: 12 kB` line in bytes."""
    found = {}
    for line in path.read_text(encoding="ascii", errors="replace").splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if len(words) == 2 and words[1] == "kB":
            found[name] = int(words[0]) * _KIB
    return found
