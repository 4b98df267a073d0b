"""The head of a page: which engine, what it was asked for, how it ended, which lines say so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvforensics.findings.course import last_word
from kvforensics.report.redaction import quoted, quoted_line
from kvforensics.report.sizes import gib
from kvforensics.report.wording import source_of
from parsers.tuples import NamedTuple

if TYPE_CHECKING:
    from kvforensics.explanation import Report
    from kvforensics.report.look import Look
    from reconstruct.ledger import StartUpLedger

OTHERS_SHOWN = 4
"""Start-ups told apart in the line that lists those not shown."""
SIZES = (
    ("TP", "tensor_parallel_size"), ("PP", "pipeline_parallel_size"), ("DP", "data_parallel_size"),
    ("DCP", "decode_context_parallel_size"),
)  # fmt: skip

WORLD = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")


class Fact(NamedTuple):
    """One line of the head."""

    label: str
    text: str
    lines: tuple[int, ...] = ()
    alarm: bool = False
    """Whether the reader should not miss it."""


def headline(startup: StartUpLedger) -> str:
    """Give engine, release and outcome in one line."""
    version = startup.version
    span = version.low if version.low == version.high else f"{version.low} to {version.high}"
    stated = "".join(c if c.isalnum() or c in ".+-_" else "?" for c in (version.stated or "")[:60])
    release = span if stated in {"", version.low} else f"{stated} (as {span})"
    generation = "/".join(dict.fromkeys(era.engine for era in startup.eras))
    return f"vLLM {release}, {generation}: {startup.outcome}" if generation else f"vLLM {release}: {startup.outcome}"


def facts(report: Report, place: int, look: Look) -> tuple[Fact, ...]:
    """Give the lines of the head."""
    startup = report.startups[place]
    found = [
        Fact("log", _log(report, place, look)),
        Fact("model", _model(startup, look), _lines(startup, "model")),
        Fact("precision", _precision(startup, look), _lines(startup, "dtype", "kv_cache_dtype", "quantization")),
        Fact("GPU", _device(startup), ()),
        Fact("parallel", _parallel(startup), _lines(startup, *(name for _, name in SIZES))),
        Fact("start-ups", _others(report, place)),
        Fact("version", startup.version.note or ""),
        Fact("damage", quoted(report.damage, mask=look.redact) if report.damage else "", alarm=True),
    ]
    end = last_word(startup.log.statements) if startup.outcome == "failed" else None
    if end:
        text = quoted_line(end.record, mask=look.redact, most=240)
        found.append(Fact("ended by", f'"{text}"', end.lines, alarm=True))
    if startup.outcome == "unfinished":
        found.append(
            Fact("ended by", "no line: the log says neither that the engine came up nor that it failed", alarm=True)
        )
    return tuple(fact for fact in found if fact.text)


def _log(report: Report, place: int, look: Look) -> str:
    startup = report.startups[place]
    name = quoted(report.name, mask=look.redact)
    return f"{name}, lines {startup.log.first_line}-{startup.log.last_line} of {report.lines}"


def _lines(startup: StartUpLedger, *names: str) -> tuple[int, ...]:
    """Give the first line that states each of these settings."""
    stated = (startup.settings.values.get(name) for name in names)
    return tuple(sorted({setting.lines[0] for setting in stated if setting and setting.lines}))


def _model(startup: StartUpLedger, look: Look) -> str:
    name = startup.settings.text("model")
    return quoted(name, mask=look.redact) if name else ""


def _precision(startup: StartUpLedger, look: Look) -> str:
    settings = startup.settings
    dtype, cache, quantization = (settings.text(n) for n in ("dtype", "kv_cache_dtype", "quantization"))
    parts = [dtype] if dtype else []
    parts += [f"KV cache {cache}"] if cache else []
    parts += [f"quantization {quantization}"] if quantization else []
    return quoted(", ".join(parts), mask=look.redact)


def _device(startup: StartUpLedger) -> str:
    """Give the card's name where a line holds it, and its memory: the range over ranks is not one card's, so the first's."""
    totals = [r.account.get("total_memory") for e in startup.engines for r in e.ranks]
    total = next((q for q in totals if q and q.interval.width is not None), None)
    named = [s.text("path") or "" for s in startup.log.of("device_name")]
    name = next((p.partition("device_name=")[2] for p in named if "device_name=" in p), "")
    parts = [quoted(name.split(",")[0].removesuffix(".json").replace("_", " "), mask=False, most=60)] if name else []
    if total:
        parts.append(f"{gib(total.interval)} GiB ({source_of(total).text(16)})")
    return ", ".join(parts)


def _parallel(startup: StartUpLedger) -> str:
    sizes = [(short, startup.settings.number(name)) for short, name in SIZES]
    parts = [f"{short} {size}" for short, size in sizes if size is not None and (short != "DCP" or size > 1)]
    ranks = [r for e in startup.engines for r in e.ranks]
    nodes = len({r.node for r in ranks if r.node})
    world = 1
    for size in (startup.settings.number(name) for name in WORLD):
        world *= size or 1
    if ranks and (len(ranks) > 1 or world > 1):
        held = f"{len(ranks)} of {world} ranks" if len(ranks) < world else f"{len(ranks)} ranks"
        parts.append(f"{held} in the log" + (f", on {nodes} nodes" if nodes > 1 else ""))
    return ", ".join(parts)


def _others(report: Report, place: int) -> str:
    """Say which of several start-ups this is, and how the others ended."""
    count = len(report.startups)
    if count == 1:
        return ""
    rest = [f"{i + 1} {s.outcome}" for i, s in enumerate(report.startups) if i != place]
    more = f" and {len(rest) - OTHERS_SHOWN} more" if len(rest) > OTHERS_SHOWN else ""
    return (
        f"this is {place + 1} of {count}; number {', '.join(rest[:OTHERS_SHOWN])}{more} (--startup N or all shows them)"
    )
