"""What a card is and who holds it, asked of a device: how a probe treats the others on a shared box. Imports no torch."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from live_probe.measurement import Unread

if TYPE_CHECKING:
    from live_probe.device import Device
    from live_probe.measurement import DeviceProcess

MIB = 1 << 20


class SharedDeviceError(RuntimeError):
    """Others hold memory on the device, and sharing was not allowed."""


class Sharing(NamedTuple):
    """How the probe treats others on the card. `limit` is what they may hold together, in bytes."""

    allowed: bool = False
    limit: int = 1024 * MIB


ALONE = Sharing()


def mig_of(card: str) -> str:
    """Say whether a card is a slice of one: the driver puts MIG and the profile into such a device's name."""
    return "a MIG slice" if "MIG" in card.split() else "no"


def uma_of(device: Device) -> str:
    """Say whether the card's memory is the host's."""
    return "the host's memory" if getattr(device, "integrated", False) else "no"


def others_hold(device: Device, processes: tuple[DeviceProcess, ...] | Unread) -> int:
    """Give the bytes that other processes hold, by the driver's list.

    Where the list or a size in it cannot be read, everything in use that this process' allocator does not hold
    counts, this process' own context included.
    """
    if not isinstance(processes, Unread):
        sizes = [process.used for process in processes if process.pid != os.getpid()]
        if not any(isinstance(size, Unread) for size in sizes):
            return sum(size for size in sizes if not isinstance(size, Unread))
    return in_use_outside_torch(device)


def in_use_outside_torch(device: Device) -> int:
    """Give the bytes in use on the card that this process' allocator does not hold, whoever has them."""
    free, total = device.memory()
    return total - free - device.stats().reserved
