"""Holds a card against its model: does the allocator do as modelled, does the sequence measure what it should.

Run on a real card this is what makes the simulated figures worth anything; run on a simulated one it checks itself.
Order matters: the allocator is replayed before the first matrix product leaves its workspace in the cache.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, NamedTuple

import torch

from live_probe.allocator import MIB, CachingAllocator, CardMemory
from live_probe.cards import Card
from live_probe.launch import LaunchOptions
from live_probe.run import probe
from live_probe.sequence import SPLIT_LIMIT_MIB
from live_probe.sharing import Sharing, in_use_outside_torch
from live_probe.simulated import SimulatedDevice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from live_probe.allocator import Block
    from live_probe.cache_plan import CachePlan
    from live_probe.device import AllocatorStats, Device
    from live_probe.measurement import ProbeRecord
    from live_probe.shape import JsonObject

    PlansOf = Callable[[JsonObject, str, LaunchOptions], tuple[CachePlan, ...]]
    """From a config.json, a release and the options to how the cache is divided."""

MODEL: JsonObject = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 8,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "vocab_size": 128256,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}
"""1.9 GiB of weights."""
OPTIONS = LaunchOptions(
    gpu_memory_utilization=0.5,
    max_num_batched_tokens=4096,
    max_num_seqs=256,
    cudagraph_capture_sizes=(256, 128, 64, 32, 16, 8, 4, 2, 1),
)
RELEASES = ("0.33.0", "0.16.0", "0.20.0")
"""One with the V2 runner, one that sorts, one that filters. The first warms cuBLAS up before its baseline."""

_HEADROOM_TOLERANCE = 0.03
_REPLAY_TOLERANCE = 0.05
_SLACK = 16 * MIB

Operation = tuple[str, int]
REPLAY: tuple[Operation, ...] = (
    ("malloc", 1),
    ("malloc", MIB),
    ("malloc", MIB + 1),
    ("malloc", 10 * MIB),
    ("malloc", 19 * MIB + 512),
    ("malloc", 100 * MIB),
    ("free", 5),
    ("malloc", 50 * MIB),
    ("malloc", 37 * MIB),
    ("free", 7),
    ("free", 3),
    ("malloc", 9 * MIB),
    ("empty", 0),
    ("malloc", 700 * MIB),
    ("free", 9),
    ("malloc", 3 * MIB),
    ("empty", 0),
    ("malloc", 690 * MIB),
    ("free", 0),
    ("malloc", 513),
)
"""Requests in bytes, and the index of the request to free: small and large pool, splits, merges, oversize blocks."""


class Check(NamedTuple):
    """One comparison and its figures; `holds` is None where a figure is only reported."""

    name: str
    holds: bool | None
    detail: str


def check_device(
    device: Device, plans_of: PlansOf, model: JsonObject = MODEL, options: LaunchOptions = OPTIONS
) -> Iterator[Check]:
    """Compare a device with a simulated twin of the same size, step by step.

    Half the card must be free for the default options, and no settings of the allocator's in force.

    Raises:
        UnsupportedModelError: the model is no decoder that is written out here.

    """
    yield from check_allocator(device)
    twin = twin_of(device)
    for version in RELEASES:
        sharing = Sharing(allowed=True)
        plans = plans_of(model, version, options)
        real = probe(model, device, version, options, plans, sharing=sharing)
        simulated = probe(model, twin, version, options, plans, sharing=sharing)
        yield from compare(version, real, simulated)


def twin_of(device: Device) -> SimulatedDevice:
    """Give a simulated card of the device's size, in use as much as it is now, with cuBLAS' workspace as found there."""
    workspace = _workspace_of(device)
    card = Card(device.name, device.memory().total, True, 0, 0, workspace, device.multiprocessors)
    return SimulatedDevice(card, others=in_use_outside_torch(device))


def _workspace_of(device: Device) -> int:
    """Give what the first matrix product leaves allocated, in bytes."""
    before = device.stats().allocated
    with device.running(), torch.no_grad():
        ones = torch.ones(16, 16, dtype=torch.bfloat16, device=device.torch_device)
        torch.mm(ones, ones)
        del ones
        device.synchronize()
    return device.stats().allocated - before


def check_allocator(device: Device) -> Iterator[Check]:
    """Replay requests on the device and in the model, without and with the split limit."""
    for limit in (None, SPLIT_LIMIT_MIB):
        name = f"allocator replay, split limit {limit or 'none'}"
        with nullcontext(True) if limit is None else device.split_limit(limit) as limited:
            measured = list(_replay_on(device))
        if not limited:
            yield Check(name, None, "this torch's allocator takes no such limit")
            continue
        modelled = list(_replay_modelled(limit))
        differing = [
            f"{operation}: {real} instead of {model}"
            for operation, real, model in zip(REPLAY, measured, modelled, strict=True)
            if real != model
        ]
        yield Check(name, not differing, differing[0] if differing else f"{len(REPLAY)} steps to the byte")


Triple = tuple[int, int, int]


def _replay_modelled(limit: int | None) -> Iterator[Triple]:
    allocator = CachingAllocator(CardMemory(1 << 50))
    allocator.max_split_size = None if limit is None else limit * MIB
    blocks: list[Block] = []
    for name, argument in REPLAY:
        if name == "malloc":
            blocks.append(allocator.malloc(argument))
        elif name == "free":
            allocator.free(blocks[argument])
        else:
            allocator.empty_cache()
        yield _difference(allocator.stats(), CachingAllocator(CardMemory(0)).stats())


def _replay_on(device: Device) -> Iterator[Triple]:
    device.empty_cache()
    device.reset_peak()
    start = device.stats()
    tensors: dict[int, torch.Tensor] = {}
    made = 0
    with device.running(), torch.no_grad():
        for name, argument in REPLAY:
            if name == "malloc":
                tensors[made] = torch.empty(argument, dtype=torch.int8, device=device.torch_device)
                made += 1
            elif name == "free":
                del tensors[argument]
            else:
                device.empty_cache()
            yield _difference(device.stats(), start)
        tensors.clear()
    device.empty_cache()


def _difference(now: AllocatorStats, start: AllocatorStats) -> Triple:
    """Give allocated, reserved and allocated peak, counted from the start."""
    return now.allocated - start.allocated, now.reserved - start.reserved, now.allocated_peak - start.allocated


def compare(version: str, real: ProbeRecord, simulated: ProbeRecord) -> Iterator[Check]:
    """Compare a start on the device with the same start on its twin, and the device's with itself."""
    if real.failure is not None or simulated.failure is not None:
        yield Check(f"{version} starts", False, f"{real.failure or simulated.failure}")
        return
    available, pool = real.value("available_kv_cache_memory"), real.value("kv_cache_bytes")
    rest = real.value("requested_memory") - real.value("non_kv_cache_memory") - real.value("cudagraph_memory_applied")
    yield Check(f"{version} ledger closes", available == rest, f"M = {available} B")
    spare = available - pool
    yield Check(f"{version} KV <= M < KV + one block", 0 <= spare < real.value("bytes_per_block"), f"{spare} B spare")
    yield _near(f"{version} weights, to the byte", real, simulated, "model_memory", 0)
    yield _near(f"{version} H", real, simulated, "transient_peak_headroom", _HEADROOM_TOLERANCE)
    headroom, replayed = _transient(real), real.value("replay_peak_headroom")
    holds = abs(replayed - headroom) <= _REPLAY_TOLERANCE * headroom + _SLACK
    yield Check(f"{version} the full pool's replay needs H again", holds, f"{replayed} B for {headroom} B")
    before, after = (s.free for s in real.snapshots if s.step == "initialize_kv_cache")
    slack = 2 * MIB * 64
    yield Check(
        f"{version} free memory falls by the pool",
        pool <= before - after <= pool + slack,
        f"{before - after - pool} B over",
    )
    estimate = [m.value for m in real.measurements if m.name == "cudagraph_memory_estimate"]
    yield Check(
        f"{version} graphs", None, f"estimate {estimate or 'none'}, actual {real.value('cudagraph_memory_actual')} B"
    )


def _transient(record: ProbeRecord) -> int:
    """Give the part of the profile's peak that did not stay; up to 0.26 the printed peak holds what stayed too."""
    peak = next(s.peak for s in record.snapshots if (s.step, s.when) == ("profile_run", "after"))
    kept = next(s.allocated for s in record.snapshots if (s.step, s.when) == ("memory_profiling", "after"))
    return peak - kept


def _near(name: str, real: ProbeRecord, simulated: ProbeRecord, quantity: str, tolerance: float) -> Check:
    one, other = real.value(quantity), simulated.value(quantity)
    return Check(name, abs(one - other) <= tolerance * one, f"device {one} B, model {other} B")


def table(checks: list[Check]) -> str:
    """Give the checks as aligned text, one a line."""
    words = {True: "ok", False: "FAILED", None: "figure"}
    width = max((len(check.name) for check in checks), default=0)
    return "\n".join(f"{words[check.holds]:6}  {check.name:{width}}  {check.detail}" for check in checks)
