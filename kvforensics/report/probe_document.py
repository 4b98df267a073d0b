"""A probe as a document: verdict, where it ran, the measured ledger of every rank and run, every snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvforensics.report.document import Document, Figure, Grid, Listing, figures_of, filled
from kvforensics.report.probe_json import timings
from kvforensics.report.redaction import quoted
from kvforensics.report.sizes import UNKNOWN, amount, gib, whole
from kvforensics.report.wording import symbol
from live_probe.measurement import INTERRUPTED, Unread
from reconstruct.interval import Interval
from reconstruct.quantities import BY_NAME, ENGINE, RANK
from reconstruct.rounding import GIB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvforensics.probing import ProbeReport
    from kvforensics.report.look import Look
    from live_probe.measurement import Failure, ProbeRecord
    from reconstruct.ledger import Account

SIMULATED = "SIMULATED: no figure was measured on a card"
_FURTHER = {"replay_peak_headroom": "profile batch again, pool in place"}
_LEGEND = "Sizes in GiB unless said otherwise. other: in use on the card beyond torch's own; every byte: --format json"


def probe_document(report: ProbeReport, look: Look) -> Document:
    """Lay out one probe."""
    blocks: list[Grid | Listing] = [Listing("How it ended", _endings(report, look))]
    blocks += _ledgers(report)
    blocks.append(Listing("Not measured", _missing(report)))
    for record in report.records:
        blocks += [_snapshots(record), _timings(record)] if record.snapshots else []
    return Document(
        headline=_headline(report),
        mood="bad" if report.died else "open" if report.simulated else "good",
        facts=_facts(report, look),
        blocks=filled(blocks),
        notes=(*(quoted(note, mask=look.redact) for note in report.notes), _LEGEND),
        figures=tuple(_figures(report, look)),
    )


def _figures(report: ProbeReport, look: Look) -> Iterator[Figure]:
    model = quoted(report.model, mask=look.redact)
    for run, startup in enumerate(report.startups, start=1):
        for engine in startup.engines:
            several = f"DP{engine.dp} " if len(startup.engines) > 1 else ""
            for rank in engine.ranks:
                yield from figures_of(rank.account, model, f"run {run}", quoted(several + rank.name, mask=look.redact))
            yield from figures_of(engine.capacity, model, f"run {run}", several.rstrip())


def _headline(report: ProbeReport) -> str:
    version = report.startups[0].version
    outcomes = list(dict.fromkeys(startup.outcome for startup in report.startups))
    runs = f", {len(report.startups)} runs" if len(report.startups) > 1 else ""
    engine = "the torch engine" if report.engine == "torch" else "vLLM itself"
    told = f"vLLM {version.stated or version.low} by {engine}{runs}: {', '.join(outcomes)}"
    return f"{told}. {SIMULATED}" if report.simulated else told


def _facts(report: ProbeReport, look: Look) -> tuple[tuple[str, str], ...]:
    shown = next((r.environment for r in report.records if r.failure is None), report.records[-1].environment)
    found = [
        ("model", quoted(report.model, mask=look.redact)),
        ("card", shown.device),
        ("driver", shown.driver),
        ("torch", shown.torch),
        ("MIG", shown.mig),
        ("UMA", shown.uma),
        ("others", _others(report.records[0])),
        *(("note", note) for note in dict.fromkeys(n for r in report.records for n in r.environment.notes)),
    ]
    return tuple((label, quoted(text, mask=look.redact)) for label, text in found)


def _others(record: ProbeRecord) -> str:
    if isinstance(record.processes, Unread):
        return f"not read: {record.processes.reason}"
    if not record.processes:
        return "no process held memory at the start"
    sizes = [
        f"pid {p.pid}: {p.used.reason if isinstance(p.used, Unread) else gib(Interval.exactly(p.used)) + ' GiB'}"
        for p in record.processes
    ]
    return ", ".join(sizes)


def _endings(report: ProbeReport, look: Look) -> tuple[str, ...]:
    return tuple(
        f"run {r.run + 1}, {r.rank}: {ending(r.failure, mask=look.redact)}"
        for r in report.records
        if r.failure is not None
    )


def ending(failure: Failure, *, mask: bool = True) -> str:
    """Give a failure in words: the step, what was free, and the reason."""
    left = f" with {gib(Interval.exactly(failure.free))} of {gib(Interval.exactly(failure.total))} GiB free"
    free = left if failure.total else ""
    if failure.kind == INTERRUPTED:
        return f"interrupted in {failure.step}{free}"
    return f"died in {failure.step}{free} ({failure.kind}: {quoted(failure.message, mask=mask, most=300)})"


def last_words(report: ProbeReport) -> str:
    """Give the end of the last start in one line."""
    record = report.records[-1]
    return f"run {record.run + 1}, {record.rank}: {ending(record.failure)}" if record.failure else "interrupted"


def _ledgers(report: ProbeReport) -> list[Grid | Listing]:
    """Give one table for each rank and one for each engine, runs side by side."""
    runs = [f"run {record_run + 1}" for record_run in sorted({r.run for r in report.records})]
    runs = runs if len(runs) > 1 else ["measured", "bytes"]
    ranks: dict[str, list[Account | None]] = {}
    engines: dict[str, list[Account | None]] = {}
    for place, startup in enumerate(report.startups):
        for engine in startup.engines:
            title = "Capacity" if len(startup.engines) == 1 else f"Capacity of engine DP{engine.dp}"
            _put(engines, title, place, len(report.startups), engine.capacity)
            for rank in engine.ranks:
                binds = " (binds)" if rank.name == engine.binding_rank and len(engine.ranks) > 1 else ""
                title = f"{rank.name}{binds}: where the memory went"
                _put(ranks, title, place, len(report.startups), rank.account)
    names = [*(kind.name for kind in RANK), *_FURTHER]
    found = [_grid(title, names, held, runs) for title, held in ranks.items()]
    found += [_grid(title, [kind.name for kind in ENGINE], held, runs) for title, held in engines.items()]
    return list(found)


def _put(held: dict[str, list[Account | None]], title: str, place: int, count: int, account: Account) -> None:
    held.setdefault(title, [None] * count)[place] = account


def _grid(title: str, names: list[str], accounts: list[Account | None], runs: list[str]) -> Grid:
    rows = []
    for name in names:
        found = [account.get(name) if account else None for account in accounts]
        if not any(found):
            continue
        kind = BY_NAME.get(name)
        meaning = kind.meaning if kind and kind.symbol != kind.name else _FURTHER.get(name, "")
        cells = [_cell(name, q.interval) if q else UNKNOWN for q in found]
        if len(runs) > len(cells):
            cells.append(whole(found[0].interval) if found[0] and found[0].unit == "B" else "")
        rows.append((symbol(name) if kind else "H again", meaning, *cells))
    return Grid(title, ("", "", *runs), tuple(rows), tuple(runs))


def _cell(name: str, interval: Interval) -> str:
    return amount(name, interval) if name in BY_NAME else gib(interval)


def _missing(report: ProbeReport) -> tuple[str, ...]:
    reasons: dict[str, dict[str, None]] = {}
    for startup in report.startups:
        for engine in startup.engines:
            for account in (engine.capacity, *(rank.account for rank in engine.ranks)):
                for missing in account.missing.values():
                    reasons.setdefault(missing.reason, {})[symbol(missing.name)] = None
    return tuple(f"{', '.join(symbols)}: {reason}" for reason, symbols in reasons.items())


def _title(what: str, record: ProbeRecord) -> str:
    return f"{what}: {record.rank}, run {record.run + 1}"


def _snapshots(record: ProbeRecord) -> Grid:
    heads = ("step", "when", "free", "alloc.", "reserved", "peak", "other", "at, s")
    rows = tuple(
        (s.step, s.when, *(_gib(n) for n in (s.free, s.allocated, s.reserved, s.peak, s.non_torch)), f"{s.seconds:.1f}")
        for s in record.snapshots
    )
    return Grid(_title("Snapshots, GiB", record), heads, rows, heads[2:])


def _gib(size: int) -> str:
    """Give a size to the MiB, all of one width: a column of snapshots is read for what changes."""
    return f"{size / GIB:.3f}"


def _timings(record: ProbeRecord) -> Grid:
    what = "Time taken to simulate" if record.environment.simulated else "Time taken"
    rows = tuple((step, f"{seconds:.2f}") for step, seconds in timings(record))
    return Grid(_title(what, record), ("step", "seconds"), rows, ("seconds",))
