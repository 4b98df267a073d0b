"""What Linux says of memory under /proc."""

from __future__ import annotations

from pathlib import Path

PROC = Path("/proc")
_KIB = 1024


def sizes_in(path: Path) -> dict[str, int]:
    """Give every `Name: 12 kB` line of a file in bytes."""
    found = {}
    for line in path.read_text(encoding="ascii", errors="replace").splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if len(words) == 2 and words[1] == "kB":
            found[name] = int(words[0]) * _KIB
    return found


def available_ram(proc: Path = PROC) -> int:
    """Give the bytes of RAM that the system can still hand out.

    Raises:
        LookupError: the system does not say; only Linux does.

    """
    meminfo = proc / "meminfo"
    available = sizes_in(meminfo).get("MemAvailable")
    if available is None:
        raise LookupError(f"{meminfo} has no MemAvailable: what is free of the host's memory cannot be read")
    return available
