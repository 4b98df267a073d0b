"""A check as a document: verdict, every term rebuilt beside measured, and what stands between the two starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvforensics.checking import INSIDE, NOT_COMPARABLE, NOTHING, OUTSIDE
from kvforensics.report.document import Document, Figure, Grid, Listing, filled
from kvforensics.report.header import headline
from kvforensics.report.redaction import quoted
from kvforensics.report.sizes import amount, gib, percent, ratio, whole
from kvforensics.report.wording import symbol
from reconstruct.interval import Interval
from reconstruct.quantities import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvforensics.checking import Check, Comparison
    from kvforensics.report.look import Look

_MOODS = {INSIDE: "good", OUTSIDE: "bad", NOTHING: "open"}
_MARKS = {INSIDE: "inside", OUTSIDE: "OUTSIDE", NOT_COMPARABLE: "-"}


def check_document(check: Check, log: str, look: Look) -> Document:
    """Lay out one check of a log of that name."""
    blocks: list[Grid | Listing] = []
    for dp, rank in dict.fromkeys((term.dp, term.rank) for term in check.terms):
        terms = [term for term in check.terms if (term.dp, term.rank) == (dp, rank)]
        title = f"{quoted(rank, mask=look.redact)} (GiB)" if rank else "Capacity"
        several = len(check.startup.engines) > 1
        blocks.append(Grid(f"DP{dp}, {title}" if several else title, _HEADS, tuple(map(_row, terms)), _HEADS[1:3]))
    blocks.append(Listing("Not comparable", _reasons(check, look)))
    open_ends = f"one side does not state {', '.join(check.unstated)}: taken to be the same" if check.unstated else ""
    reading = check.reading
    runs = f", {len(reading.startups)} runs" if len(reading.startups) > 1 else ""
    simulated = " SIMULATED, on no card." if reading.simulated else ""
    return Document(
        headline=_headline(check),
        mood=_MOODS[check.verdict],
        facts=(
            ("log", f"{quoted(log, mask=look.redact)}: {headline(check.startup)}"),
            ("probe", f"{headline(reading.startups[0])}, {reading.engine} engine on {reading.card}{runs}.{simulated}"),
        ),
        blocks=filled(blocks),
        notes=(open_ends,) if open_ends else (),
        figures=tuple(_figures(check, log, look)),
    )


def _figures(check: Check, log: str, look: Look) -> Iterator[Figure]:
    several = len(check.startup.engines) > 1
    for t in check.terms:
        rank = quoted(f"DP{t.dp} {t.rank}" if several else t.rank, mask=look.redact)
        for side, interval in (("rebuilt", t.rebuilt), ("measured", t.measured)):
            if interval:
                yield Figure(
                    quoted(log, mask=look.redact), side, rank, "", t.name, interval, BY_NAME[t.name].unit, t.verdict
                )


_HEADS = ("", "rebuilt", "measured", "verdict")


def _headline(check: Check) -> str:
    counts = {v: sum(term.verdict == v for term in check.terms) for v in (INSIDE, OUTSIDE, NOT_COMPARABLE)}
    told = [f"{counts[v]} {v}" for v in (INSIDE, OUTSIDE, NOT_COMPARABLE) if counts[v]]
    return f"{check.verdict}: {', '.join(told) or 'no term on either side'}"


def _row(term: Comparison) -> tuple[str, ...]:
    rebuilt = amount(term.name, term.rebuilt) if term.rebuilt else ""
    measured = amount(term.name, term.measured) if term.measured else ""
    return (symbol(term.name), rebuilt, measured, f"{_MARKS[term.verdict]}{_how_much(term)}")


def _how_much(term: Comparison) -> str:
    """Give how far outside a term lies, and what share of the rebuilt value that is."""
    if term.verdict != OUTSIDE:
        return ""
    size, unit = Interval.exactly(abs(term.gap)), BY_NAME[term.name].unit
    how_far = f"{gib(size)} GiB" if unit == "B" and term.name != "bytes_per_block" else _plain(size, unit)
    share = percent(size, term.rebuilt) if term.rebuilt else ""
    return f" by {how_far}{f' ({share})' if share else ''}, {'above' if term.gap > 0 else 'below'}"


def _plain(size: Interval, unit: str) -> str:
    return ratio(size) if unit == "1" else f"{whole(size)} {unit}"


def _reasons(check: Check, look: Look) -> tuple[str, ...]:
    """Give each reason once, with the terms it is the reason of."""
    found: dict[str, dict[str, None]] = {}
    for term in check.terms:
        if term.why:
            found.setdefault(term.why, {})[symbol(term.name)] = None
    return tuple(
        f"{', '.join(symbols)}: {quoted(reason, mask=look.redact, most=300)}" for reason, symbols in found.items()
    )
