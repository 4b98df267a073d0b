"""What a probe leaves beside its journals: with it its report can be had from its folder, even where it was killed itself."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kvforensics.errors import UsageFault
from kvforensics.probe_flags import Flags
from live_probe.cards_here import as_object, from_object
from live_probe.child_process import BY_USER, ending_of, interrupted, records_of
from parsers.tuples import NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

    from live_probe.cards_here import EngineHere
    from live_probe.measurement import ProbeRecord
    from live_probe.shape import JsonObject

ASKED_NAME = "asked.json"


class Asked(NamedTuple):
    """All that a report rests on beside the journals: what was asked for, and what was found before the first start.

    engine, device: the ones that it came to. config: the model's, for the torch engine. here: for vLLM.
    """

    model: str
    flags: Flags
    engine: str
    device: str
    notes: tuple[str, ...]
    engine_version: str | None
    load_format: str
    share: bool
    config: JsonObject | None = None
    here: EngineHere | None = None


def write_asked(folder: Path, asked: Asked) -> None:
    """Note it before the first start. Raises OSError where the folder cannot be written."""
    here = None if asked.here is None else as_object(asked.here)
    written = {**asked._asdict(), "flags": asked.flags._asdict(), "here": here}
    (folder / ASKED_NAME).write_text(json.dumps(written), encoding="utf-8")


def read_asked(folder: Path) -> Asked:
    """Read what `write_asked` wrote. Raises UsageFault where the folder is no probe's."""
    try:
        written: dict[str, Any] = json.loads((folder / ASKED_NAME).read_text(encoding="utf-8"))
        here = written["here"] and from_object(written["here"])
        return Asked(**{**written, "flags": Flags(**written["flags"]), "notes": tuple(written["notes"]), "here": here})
    except OSError as error:
        raise UsageFault(
            f"{folder} is no folder of a probe ({ASKED_NAME}: {error.strerror or error}): pass what --keep named, "
            "or kvforensics-probe-... in $TMPDIR or /tmp"
        ) from None
    except (ValueError, TypeError, KeyError, RecursionError):
        raise UsageFault(f"{folder / ASKED_NAME} is damaged: the probe ended before its first start") from None


def records_left(folder: Path, engine: str) -> tuple[ProbeRecord, ...]:
    """Give every rank of every run that was begun. Raises UsageFault where none was, or a journal is damaged."""
    found: list[ProbeRecord] = []
    try:
        for run, place in enumerate(_runs(folder)):
            ending = ending_of(place)
            records = records_of(place, engine, run, ending)
            found += [interrupted(record) for record in records] if ending == BY_USER else records
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise UsageFault(f"{folder} is damaged: {type(error).__name__} {error}; measure again") from None
    if not found:
        raise UsageFault(f"{folder} holds no journal: the probe ended before its first start")
    return tuple(found)


def _runs(folder: Path) -> list[Path]:
    places = [path for path in folder.glob("run-*") if path.name.removeprefix("run-").isdecimal()]
    return sorted(places, key=lambda path: int(path.name.removeprefix("run-")))
