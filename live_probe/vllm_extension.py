"""A mixin that vLLM adds to its workers by name: `worker_extension_cls="live_probe.vllm_extension.ProbeExtension"`.

For engines whose worker class is already taken: `collective_rpc("kvf_read")` then reads every rank after the start.
Available from 0.8.0. vLLM refuses a mixin with names of its own, hence the prefix and the missing constructor.
"""

from __future__ import annotations

from typing import Any, TypedDict

from live_probe.vllm_worker import rank_name, reader_of, reading_of


class RankReading(TypedDict):
    """What one rank answers: plain values only, so that no engine needs to trust foreign classes."""

    rank: str
    measurements: list[dict[str, Any]]
    missing: list[dict[str, str]]
    memory: dict[str, int]


class ProbeExtension:
    """Methods for `collective_rpc`, run inside every worker."""

    def kvf_read(self) -> RankReading:
        """Read this worker's quantities and the memory of its device now; sizes are bytes."""
        reading = reading_of(self)
        reader = reader_of(self)
        now = {} if reader is None else {**reader.memory()._asdict(), **reader.stats()._asdict()}
        return RankReading(
            rank=rank_name(self),
            measurements=[measurement._asdict() for measurement in reading.measurements],
            missing=[absent._asdict() for absent in reading.missing],
            memory=now,
        )
