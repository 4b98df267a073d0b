"""Memory that CUDA kernels take inside one operator and give back before it returns, out of sight of torch code."""

from __future__ import annotations

import math

_SMALL_SORT = 1024
_INT64 = 8


def sort_scratch(rows: int, columns: int, itemsize: int) -> tuple[int, ...]:
    """Give the buffers, in bytes, that sorting a contiguous (rows, columns) tensor along its last dimension takes.

    torch 2.3-2.13, aten/src/ATen/native/cuda/SortStable.cu: launch_stable_sort_kernel chooses among one sort for
    each row, a full sort of (segment, index) pairs and cub's segmented sort. cub's own share, one more copy of keys
    and values, is that of DeviceRadixSort without double buffers; its few KiB of histograms are left out.
    """
    if columns <= _SMALL_SORT or rows == 0:
        return ()
    elements = rows * columns
    cub = itemsize + _INT64
    if rows == 1 or columns >= 1_000_000:
        return (columns * _INT64, columns * cub)
    if rows < 128:
        return (elements * _INT64, elements * _INT64, elements * itemsize, elements * cub)
    return (elements * _INT64, elements * cub)


def rows_of(shape: tuple[int, ...]) -> tuple[int, int]:
    """Give a shape as rows times the last dimension."""
    if not shape:
        return 0, 0
    return math.prod(shape[:-1]), shape[-1]
