"""What a card is and who holds it, asked of a device: how a probe treats the others on a shared box. Imports no torch."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from live_probe.measurement import Unread

if TYPE_CHECKING:
    from live_probe.device import Device
    from live_probe.measurement import DeviceProcess

MIB = 1 << 20
CONTEXT = 768 * MIB
"""More than a CUDA context with its libraries takes: 0.5 GiB on H100."""


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
    """Give the bytes that other processes hold, by the driver's list or by what is gone from the card.

    In a container the list leaves out processes of others, or names this one by a number of the host's: then what is
    gone beyond a context of this process' own is theirs. Where the list or a size in it cannot be read, everything in
    use that this process' allocator does not hold counts, this process' own context included.
    """
    outside = in_use_outside_torch(device)
    if isinstance(processes, Unread):
        return outside
    sizes = [(process.pid == os.getpid(), process.used) for process in processes]
    if any(isinstance(size, Unread) for _, size in sizes):
        return outside
    mine = [size - device.stats().reserved for own, size in sizes if own and not isinstance(size, Unread)]
    listed = sum(size for own, size in sizes if not own and not isinstance(size, Unread))
    return max(listed, outside - max(CONTEXT, *mine, 0))


def in_use_outside_torch(device: Device) -> int:
    """Give the bytes in use on the card that this process' allocator does not hold, whoever has them."""
    free, total = device.memory()
    return total - free - device.stats().reserved
