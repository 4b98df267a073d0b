"""A probe as JSON, schema `kvforensics.probe/1`: start-ups as in `explain`, every snapshot, the environment; and back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kvforensics.checking import Reading
from kvforensics.errors import UsageFault
from kvforensics.probe_ledger import MEASURED, NO_LOG
from kvforensics.report.json import startup_object
from kvforensics.report.redaction import quoted
from live_probe.measurement import Unread
from parsers.launch_settings import Setting, Settings
from reconstruct.interval import Interval
from reconstruct.ledger import Account, EngineLedger, Missing, Quantity, RankLedger, StartUpLedger
from reconstruct.releases import narrow

if TYPE_CHECKING:
    from kvforensics.probing import ProbeReport
    from kvforensics.report.json import JsonObject
    from live_probe.measurement import ProbeRecord
    from reconstruct.interval import Number

PROBE_SCHEMA = "kvforensics.probe/1"
FURTHER_KEYS = ("kv_cache_memory_bytes", "num_gpu_blocks_override")
"""Settings beyond those of `explain` that a check asks for."""


class UnreadableProbe(UsageFault):
    """A file that is no probe's JSON."""


def render(report: ProbeReport) -> str:
    """Give the report as one JSON document on one line."""
    return json.dumps(probe_object(report), ensure_ascii=False)


def probe_object(report: ProbeReport) -> JsonObject:
    """Give the whole report. Runs are kept apart by `run`, in start-ups, snapshots, timings and processes alike."""
    runs = sorted({record.run for record in report.records})
    return {
        "schema": PROBE_SCHEMA,
        "startups": [_startup(s, run, report) for s, run in zip(report.startups, runs, strict=True)],
        "environment": _environment(report),
        "snapshots": [
            {"run": r.run, **s.row(), "non_torch": s.non_torch} for r in report.records for s in r.snapshots
        ],
        "timings": [{"run": r.run, "rank": r.rank, "step": n, "seconds": t} for r in report.records for n, t in timings(r)],
        "notes": list(report.notes),
    }  # fmt: skip


def timings(record: ProbeRecord) -> tuple[tuple[str, float], ...]:
    """Give how long each step took, in the order in which they ended; one that did not end has no time."""
    begun: list[tuple[str, float]] = []
    found = []
    for snapshot in record.snapshots:
        if snapshot.when == "before":
            begun.append((snapshot.step, snapshot.seconds))
        elif begun and begun[-1][0] == snapshot.step:
            found.append((snapshot.step, round(snapshot.seconds - begun.pop()[1], 3)))
    return tuple(found)


def _startup(startup: StartUpLedger, run: int, report: ProbeReport) -> JsonObject:
    """Give one run; there is no log, and so no line."""
    failures = [
        {"rank": r.rank, **r.failure._asdict(), "message": quoted(r.failure.message, mask=True, most=400)}
        for r in report.records
        if r.run == run and r.failure is not None
    ]
    found = startup_object(startup)
    more = {name: startup.settings.get(name) for name in FURTHER_KEYS}
    found["config"] |= {**more, "model": quoted(report.model, mask=True)}
    return {**found, "first_line": None, "last_line": None, "run": run, "failures": failures}


def _environment(report: ProbeReport) -> JsonObject:
    """Say where it ran: of people and other programs nothing but sizes and process numbers."""
    shown = next((r.environment for r in report.records if r.failure is None), report.records[-1].environment)
    notes = dict.fromkeys(note for r in report.records for note in r.environment.notes)
    return {
        **shown._asdict(),
        "notes": [quoted(note, mask=True) for note in notes],
        "processes": [entry for r in report.records for entry in _processes(r)],
        "processes_unread": {f"run {r.run} {r.rank}": r.processes.reason for r in report.records
                             if isinstance(r.processes, Unread)},
    }  # fmt: skip


def _processes(record: ProbeRecord) -> list[JsonObject]:
    if isinstance(record.processes, Unread):
        return []
    found = []
    for process in record.processes:
        size = (
            {"used": None, "reason": process.used.reason}
            if isinstance(process.used, Unread)
            else {"used": process.used}
        )
        found.append({"run": record.run, "rank": record.rank, "pid": process.pid, **size})
    return found


def read(text: str, name: str) -> Reading:
    """Read what `render` wrote. Raises UnreadableProbe where the text is something else; `name` says whose it is."""
    try:
        document = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise UnreadableProbe(f"{name} is no JSON; pass what kvforensics probe --format json wrote") from None
    if not isinstance(document, dict) or document.get("schema") != PROBE_SCHEMA:
        raise UnreadableProbe(
            f"{name} is not of schema {PROBE_SCHEMA}; pass what kvforensics probe --format json wrote"
        )
    try:
        environment = document["environment"]
        startups = tuple(_read_startup(startup) for startup in document["startups"])
        return Reading(startups, str(environment["engine"]), bool(environment["simulated"]), str(environment["device"]))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise UnreadableProbe(f"{name} is damaged: {type(error).__name__} {error}; measure again") from None


def _no_number(constant: str) -> float:
    raise ValueError(constant)


def _read_startup(written: dict[str, Any]) -> StartUpLedger:
    version = narrow(written["version"]["stated"], ())
    values = {str(name): Setting(_setting(value), ()) for name, value in written["config"].items() if value is not None}
    engines = tuple(_read_engine(engine) for engine in written["engines"])
    settings = Settings(values, lists_changes=False, lists_all=False)
    return StartUpLedger(NO_LOG, version, (), str(written["outcome"]), settings, engines, ())


def _setting(value: object) -> str | int | float | bool:
    if isinstance(value, str | int | float | bool):
        return value
    raise TypeError("a setting is neither text nor number")


def _read_engine(written: dict[str, Any]) -> EngineLedger:
    dp = int(written["dp"])
    ranks = tuple(
        RankLedger(str(r["name"]), dp, _place(r["pp"]), _place(r["tp"]), None, _read_account(r))
        for r in written["ranks"]
    )
    capacity = written["capacity"]
    return EngineLedger(dp, ranks, _read_account(capacity), capacity["binding_rank"], None)


def _place(written: object) -> int | None:
    return written if isinstance(written, int) else None


def _read_account(written: dict[str, Any]) -> Account:
    held = {str(name): _read_quantity(str(name), q) for name, q in written["quantities"].items()}
    return Account(held, {str(n): Missing(str(n), str(reason)) for n, reason in written["missing"].items()})


def _read_quantity(name: str, written: dict[str, Any]) -> Quantity:
    interval = Interval(_number(written["low"]), _number(written["high"]))
    if interval.low is not None and interval.high is not None and interval.low > interval.high:
        raise ValueError(f"{name} ends below its beginning")
    return Quantity(name, interval, str(written["unit"]), str(written.get("origin", MEASURED)))


def _number(written: object) -> Number | None:
    if written is None or (isinstance(written, int | float) and not isinstance(written, bool)):
        return written
    raise TypeError("an end of an interval is no number")
