"""One line of a log, freed of everything that transport put around it."""

from __future__ import annotations

from parsers.tuples import NamedTuple


class Speaker(NamedTuple):
    """Who printed a line, as far as the line itself says."""

    name: str | None = None
    """Process name as printed: `Worker_PP0`, `EngineCore_DP1`, `APIServer`, `RayWorkerWrapper`."""
    pid: int | None = None
    host: str | None = None
    """What tells machines or containers apart: Ray's ip, a pod, a compose service, an srun task."""


NOBODY = Speaker()


class Record(NamedTuple):
    """One line's message; `line` counts as `sed -n` does, from 1."""

    line: int
    text: str
    """The message: no wrapper, no colour, no engine prefix."""
    prefixed: bool = False
    """Whether the engine's own prefix stood before the message; without it, it may continue the line above."""
    level: str | None = None
    time: str | None = None
    """`MM-DD HH:MM:SS` as the engine printed it."""
    file: str | None = None
    """Source file as printed, `gpu_worker.py`; files move between releases, so never a key."""
    speaker: Speaker = NOBODY
    last_line: int = 0
    """Where the message ends, if a terminal's width cut it; 0 where it ends on `line`."""

    @property
    def lines(self) -> range:
        """Every physical line the message stands on."""
        return range(self.line, max(self.line, self.last_line) + 1)
