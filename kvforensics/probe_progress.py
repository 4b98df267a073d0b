"""What a running probe shows on the terminal: the step each rank is in, how long, and what is free."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from live_probe.measurement import SnapshotRow

TAIL = 16384
"""Bytes read from a journal's end; a line has a few hundred."""
SHOWN = 8
"""Ranks listed."""
_GIB = 1 << 30


def progress(repeat: int, console: Console | None = None) -> Callable[[Path, int], AbstractContextManager[object]]:
    """Give what watches a run: a display on stderr while it lasts, nothing where stderr is no terminal."""
    shown_on = console or Console(stderr=True)

    @contextmanager
    def watch(folder: Path, run: int) -> Iterator[None]:
        if not shown_on.is_terminal:
            yield
            return
        title = f"run {run + 1} of {repeat}" if repeat > 1 else "probe"
        with Live(
            get_renderable=lambda: Text("\n".join(lines(folder, title))), console=shown_on, refresh_per_second=4,
            transient=True,
        ):  # fmt: skip
            yield

    return watch


def lines(folder: Path, title: str) -> tuple[str, ...]:
    """Give one line for each rank that has journalled so far, and where: what is left should the probe itself be killed."""
    found = []
    for path in sorted(folder.glob("*.jsonl"))[:SHOWN]:
        snapshot = _last_snapshot(path)
        if snapshot is not None:
            doing = "in" if snapshot["when"] == "before" else "after"
            free = f"{snapshot['free'] / _GIB:.2f} of {snapshot['total'] / _GIB:.2f} GiB free"
            found.append(
                f"{title}, {snapshot['rank']}: {doing} {snapshot['step']}, {snapshot['seconds']:.0f} s, {free}"
            )
    return (*(found or (f"{title}: starting",)), f"journals: {folder.parent}")


def _last_snapshot(path: Path) -> SnapshotRow | None:
    """Read the last whole snapshot of a journal that is being written."""
    with path.open("rb") as file:
        file.seek(0, 2)
        file.seek(max(0, file.tell() - TAIL))
        written = file.read().decode("utf-8", errors="replace").split("\n")[:-1]
    for line in reversed(written):
        if '"kind": "snapshot"' in line and line.startswith("{"):
            found: SnapshotRow = json.loads(line)["value"]
            return found
    return None
