"""What a probe leaves behind: snapshots, measured quantities and the account of a start that died."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

When = Literal["before", "after"]

INTERRUPTED = "interrupted"
"""The kind of a failure that the user caused (Ctrl-C)."""
KILLED = "killed"
"""The kind of a failure whose process ended inside a step, without a word."""


SnapshotRow = dict[str, Any]
"""The fields of a `Snapshot` by name, as JSON holds them."""

ONLY_RANK = "rank 0"
"""The torch engine's one rank; also what a start is named after whose workers never came."""


class Snapshot(NamedTuple):
    """What the device and torch's allocator said just before or after a step; sizes are bytes.

    `peak` is the highest `allocated` since the counter was last reset, not of the step alone. `seconds` counts
    from the start of the probe.
    """

    step: str
    when: When
    rank: str
    free: int
    total: int
    allocated: int
    reserved: int
    peak: int
    seconds: float = 0.0

    @property
    def non_torch(self) -> int:
        """Bytes in use on the card that this process' allocator does not hold.

        vLLM 0.9.1-0.33, vllm/utils: MemorySnapshot.measure (device memory in use less memory_reserved). It holds
        every other process' memory too, so only differences of it say anything about the engine.
        """
        return self.total - self.free - self.reserved

    def row(self) -> SnapshotRow:
        """Give the element of `snapshots` in `kvforensics.probe/1`."""
        return {**self._asdict(), "seconds": round(self.seconds, 3)}


class Measurement(NamedTuple):
    """One quantity of the ledger, exact, under the contract's name.

    `equation` names the engine's terms it was computed from, `steps` the snapshots they were read at.
    """

    name: str
    value: int
    unit: Literal["B", "tokens", "blocks"] = "B"
    equation: str = ""
    steps: tuple[str, ...] = ()


class NotMeasured(NamedTuple):
    """A quantity that this probe could not take, and why."""

    name: str
    reason: str


class Failure(NamedTuple):
    """The step that a start-up died in, with the card as it was found right after; sizes are bytes."""

    step: str
    kind: str
    message: str
    free: int
    total: int


class Unread(NamedTuple):
    """A reading that the machine did not give, and why."""

    reason: str


class DeviceProcess(NamedTuple):
    """A process that holds device memory, as the driver lists it."""

    pid: int
    used: int | Unread


class Environment(NamedTuple):
    """Where the probe ran. Free text, for the reader of a report; no figure is computed from it.

    `mig` says whether the card is a slice of one, `uma` whether its memory is the host's.
    """

    device: str
    simulated: bool
    engine: str
    version: str
    torch: str
    driver: str
    notes: tuple[str, ...] = ()
    mig: str = "not read"
    uma: str = "not read"


class ProbeRecord(NamedTuple):
    """One start-up as one rank measured it.

    `run` tells repeated runs apart, from 0. Quantities that could not be taken are in `missing` and never in
    `measurements`. `failure` is None when the start reached the end.
    """

    rank: str
    run: int
    environment: Environment
    measurements: tuple[Measurement, ...]
    missing: tuple[NotMeasured, ...]
    snapshots: tuple[Snapshot, ...]
    processes: tuple[DeviceProcess, ...] | Unread
    failure: Failure | None = None

    @property
    def outcome(self) -> Literal["ready", "failed"]:
        """How the start-up ended, in the contract's words."""
        return "ready" if self.failure is None else "failed"

    def value(self, name: str) -> int:
        """Give a measured quantity in its own unit.

        Raises:
            KeyError: this start-up has no such quantity; `missing` says why.

        """
        for measurement in self.measurements:
            if measurement.name == name:
                return measurement.value
        raise KeyError(name)
