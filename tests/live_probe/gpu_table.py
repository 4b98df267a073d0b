"""Checks one card against its model and prints a table: `python tests/live_probe/gpu_table.py [sim:H100-80GB]`.

A minute or two on a card of which half is free. Exit code 1 if a check failed, 2 if there is none to check. With a `sim:`
card it shows what the table looks like; nothing in it is measured on a card then.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from kvforensics.probe_cache import cache_plans
from live_probe.cards import parse_card
from live_probe.device import CudaDevice, allocator_settings
from live_probe.selfcheck import check_device, table
from live_probe.simulated import SimulatedDevice


def main(arguments: list[str]) -> int:
    """Run every check on the card named, or on the first real one."""
    started = time.monotonic()
    if allocator_settings():
        sys.stderr.write(f"unset PYTORCH_ALLOC_CONF and PYTORCH_CUDA_ALLOC_CONF: {allocator_settings()}\n")
        return 2
    try:
        device = SimulatedDevice.from_card(parse_card(arguments[0])) if arguments else CudaDevice()
    except LookupError as error:
        sys.stderr.write(f"{error.args[0]}\n")
        return 2
    checks = list(check_device(device, cache_plans))
    failed = sum(check.holds is False for check in checks)
    sys.stdout.write(f"{device.name}\n{table(checks)}\n{failed} failed, {time.monotonic() - started:.0f} s\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
