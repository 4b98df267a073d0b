"""The torch engine's probe: rules for a shared box, one record for each run, nothing left on the card."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from live_probe.device import allocator_settings
from live_probe.eras import NEWEST, release_of
from live_probe.launch import resolve
from live_probe.measurement import ONLY_RANK, Environment, ProbeRecord
from live_probe.sequence import UNWATCHED, StartUp, Watchers
from live_probe.shape import decoder_shape
from live_probe.sharing import ALONE, SharedDeviceError, Sharing, mig_of, others_hold, uma_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from live_probe.cache_plan import CachePlan
    from live_probe.device import Device
    from live_probe.launch import LaunchOptions
    from live_probe.measurement import DeviceProcess, Unread
    from live_probe.shape import JsonObject


def probe(
    config: JsonObject,
    device: Device,
    version: str,
    options: LaunchOptions,
    plans: Sequence[CachePlan],
    *,
    sharing: Sharing = ALONE,
    watchers: Watchers = UNWATCHED,
    run: int = 0,
) -> ProbeRecord:
    """Go once through the start-up of a vLLM release with a decoder made from `config` (a config.json).

    `plans`: how its cache is divided, one for each size of the batch that `options` may come to on the card.
    A start that dies, or is interrupted, gives a record all the same: it holds the failure and everything measured
    before it. Whatever the end, the card is given back.

    Raises:
        SharedDeviceError: others hold more than `sharing.limit` bytes and sharing is not allowed.
        UnsupportedModelError: the model is no decoder that is written out here.
        UnsupportedVersionError: the release's sequence is not known.
        LaunchError: a setting is out of its range.

    """
    shape = decoder_shape(config, options.tensor_parallel_size)
    launch = resolve(options, version, shape, plans, device.name, device.memory().total)
    processes = device.processes()
    _check_sharing(device, processes, sharing)
    result = StartUp(device, shape, launch, watchers).run()
    return ProbeRecord(
        rank=ONLY_RANK,
        run=run,
        environment=environment(device, version, shape.ranks),
        measurements=result.measurements,
        missing=result.missing,
        snapshots=result.snapshots,
        processes=processes,
        failure=result.failure,
    )


def environment(device: Device, version: str, ranks: int = 1) -> Environment:
    """Say where and how the torch engine ran."""
    notes = ["random weights in a decoder of vLLM's allocation shape, without vLLM"]
    if ranks > 1:
        notes.append(f"one rank of {ranks}, alone: its share of the model, without the collectives' own memory")
    if device.simulated:
        notes.append("simulated: no figure was measured on a card")
    if release_of(version) > NEWEST:
        newest = ".".join(str(part) for part in NEWEST)
        notes.append(f"the sequence is that of {newest}, the newest release whose sources were read")
    settings = allocator_settings()
    if settings:
        notes.append(f"allocator settings {settings}")
    return Environment(
        device=device.name,
        simulated=device.simulated,
        engine="torch",
        version=version,
        torch=torch.__version__,
        driver=device.driver,
        notes=tuple(notes),
        mig=mig_of(device.name),
        uma=uma_of(device),
    )


def _check_sharing(device: Device, processes: tuple[DeviceProcess, ...] | Unread, sharing: Sharing) -> None:
    held = 0 if sharing.allowed else others_hold(device, processes)
    if held > sharing.limit:
        raise SharedDeviceError(
            f"other processes hold {held} B of {device.name}, more than {sharing.limit} B: "
            "free the card, or pass --share to probe it beside them"
        )
