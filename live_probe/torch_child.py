"""The process that goes through one start-up of the torch engine. Run as `python -m live_probe.torch_child FILE`.

Its journal lies in the folder that KVFORENSICS_PROBE_DIR names, as the real engine's workers' do. What is refused before
the start stands there as a failure of the step `start`.
"""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from live_probe.cards import UnknownCardError, parse_card
from live_probe.child_process import PROBE_DIR, asked_of_child, end_with_parent
from live_probe.device import CudaDevice
from live_probe.eras import UnsupportedVersionError
from live_probe.journal import Journal, ProcessList
from live_probe.launch import LaunchError
from live_probe.measurement import Environment, Failure
from live_probe.run import environment, probe
from live_probe.sequence import Watchers
from live_probe.shape import UnsupportedModelError
from live_probe.sharing import SharedDeviceError, Sharing
from live_probe.torch_start import from_argument

if TYPE_CHECKING:
    from live_probe.device import Device
    from live_probe.torch_start import TorchStart

REFUSALS = (
    LookupError,
    UnknownCardError,
    SharedDeviceError,
    UnsupportedModelError,
    UnsupportedVersionError,
    LaunchError,
)
START = "start"
"""The step of a failure that came before the first one."""


def main(arguments: list[str]) -> None:
    """Go through the start that a file describes and journal it as it happens."""
    end_with_parent()
    gc.freeze()  # every step collects garbage, which need not walk all that torch's import made
    go_through(from_argument(asked_of_child(arguments)), Path(os.environ[PROBE_DIR]) / "rank-0.jsonl")


def go_through(start: TorchStart, path: Path) -> None:
    """Journal one start-up into `path`."""
    journal = Journal(path)
    journal.write(
        Environment(start.device, start.device.startswith("sim:"), "torch", start.version, "not read", "not read")
    )
    try:
        device = _device(start.device)
        journal.write(environment(device, start.version, start.options.tensor_parallel_size))
        journal.write(ProcessList(device.processes()))
        sharing = Sharing(start.share, start.limit)
        watchers = Watchers(journal.write, journal.write)
        record = probe(
            start.config, device, start.version, start.options, start.plans, sharing=sharing, watchers=watchers
        )
    except REFUSALS as refusal:
        journal.write(Failure(START, type(refusal).__name__, str(refusal.args[0]) if refusal.args else "", 0, 0))
        return
    except RuntimeError as error:  # the card has no room for a context: torch raises this for all that a device refuses
        journal.write(Failure("init_device", type(error).__name__, str(error).partition("\n")[0], 0, 0))
        return
    for entry in record.missing:
        journal.write(entry)
    if record.failure is not None:
        journal.write(record.failure)


def _device(name: str) -> Device:
    if name.startswith("sim:"):
        from live_probe.simulated import SimulatedDevice

        return SimulatedDevice.from_card(parse_card(name))
    return CudaDevice(int(name.partition(":")[2] or 0))


if __name__ == "__main__":
    main(sys.argv[1:])
