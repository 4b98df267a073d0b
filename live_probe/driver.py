"""Whether there is a CUDA device at all, asked of the driver itself: no torch, no context, nothing taken on the card."""

from __future__ import annotations

import ctypes

NO_DEVICE, STUB = 100, 34
"""CUDA_ERROR_NO_DEVICE, and CUDA_ERROR_STUB_LIBRARY: a library to link against, with no driver behind it."""


class DriverRefusesError(RuntimeError):
    """There is a driver, and it does not answer: it is broken, does not fit its library, or has no memory left."""


def cuda_device_count(library: str = "libcuda.so.1") -> int:
    """Give the number of CUDA devices that this process may see (CUDA_VISIBLE_DEVICES counts); 0 without a driver.

    CUDA driver API, since 1.0: cuInit, cuDeviceGetCount.

    Raises:
        DriverRefusesError: the driver answers with an error other than that there is no device.

    """
    try:
        driver = ctypes.CDLL(library)
    except OSError:
        return 0
    count = ctypes.c_int(0)
    code = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if code in {NO_DEVICE, STUB}:
        return 0
    if code:
        raise DriverRefusesError(f"the CUDA driver refuses (error {code})")
    return count.value
