"""The engine's ways of printing a size."""

from __future__ import annotations

GIB = 1 << 30
MIB = 1 << 20


def fixed(size: float, digits: int = 2) -> str:
    """GiB by `%.2f` or `%.4f`."""
    return f"{size / GIB:.{digits}f}"


def rounded(size: float) -> str:
    """GiB by `round(x, 2)`: no trailing zeros (0.14.0+ utils/mem_utils.py format_gib)."""
    return str(round(size / GIB, 2))


def whole(size: float) -> str:
    """GiB with every digit of the float."""
    return str(size / GIB)


def torch_size(size: int) -> str:
    """As torch's allocator words it: two digits, the unit by size (c10/cuda/CUDACachingAllocator.cpp format_size)."""
    if size <= 1024:
        return f"{size} bytes"
    for limit, unit, label in ((MIB, 1024, "KiB"), (GIB, MIB, "MiB")):
        if size <= limit:
            return f"{size / unit:.2f} {label}"
    return f"{size / GIB:.2f} GiB"
