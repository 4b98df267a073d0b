"""Whether there is a CUDA device at all, asked of the driver itself: no torch, no context, nothing taken on the card."""

from __future__ import annotations

import ctypes


def cuda_device_count(library: str = "libcuda.so.1") -> int:
    """Give the number of CUDA devices that this process may see (CUDA_VISIBLE_DEVICES counts); 0 without a driver.

    CUDA driver API, since 1.0: cuInit, cuDeviceGetCount.
    """
    try:
        driver = ctypes.CDLL(library)
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value
