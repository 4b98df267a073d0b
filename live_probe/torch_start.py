"""What the torch engine is asked to do, as it travels to the process that does it; knows no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from live_probe.cache_plan import CachePlan
from live_probe.child_process import records_of, run_to_end
from live_probe.launch import LaunchOptions

if TYPE_CHECKING:
    from live_probe.child_process import EngineRun
    from live_probe.measurement import ProbeRecord
    from live_probe.shape import JsonObject

CHILD = "live_probe.torch_child"


class TorchStart(NamedTuple):
    """One start-up by the torch engine.

    `config` is a config.json, `device` is `cuda`, `cuda:1` or a `sim:` specification, `version` the release whose
    sequence is gone through, `plans` how its cache is divided, by the size of the batch. Others may hold up to `limit`
    bytes of the card unless `share` allows more.
    """

    config: JsonObject
    device: str
    version: str
    options: LaunchOptions
    plans: tuple[CachePlan, ...]
    share: bool
    limit: int


def probe_torch(start: TorchStart, engine: EngineRun, run: int = 0) -> tuple[ProbeRecord, ...]:
    """Go through the start in a process of its own, so that nothing of it is left, and give its record.

    Raises:
        OSError: the folder cannot be written or the interpreter not started.
        KeyboardInterrupt: the user interrupted; the process has ended.

    """
    plans = [plan._asdict() for plan in start.plans]
    ending = run_to_end(CHILD, {**start._asdict(), "options": start.options._asdict(), "plans": plans}, engine)
    return records_of(engine.folder, "torch", run, ending)


def from_argument(written: dict[str, Any]) -> TorchStart:
    """Rebuild the start that `probe_torch` wrote."""
    options = dict(written["options"])
    sizes = options["cudagraph_capture_sizes"]
    options["cudagraph_capture_sizes"] = None if sizes is None else tuple(sizes)
    plans = tuple(CachePlan(**{**plan, "pages": tuple(plan["pages"])}) for plan in written["plans"])
    return TorchStart(**{**written, "options": LaunchOptions(**options), "plans": plans})
