"""`compare`: two start-ups or more, the change of each against the first split over what moved it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvforensics.errors import UsageFault
from kvforensics.explanation import NothingToExplain, explain
from parsers.tuples import NamedTuple
from reconstruct.change import NothingToChange, tightest
from reconstruct.change_causes import causes_of, pair_of, same_blocks
from reconstruct.change_parts import BLOCKS, COLUMNS, TOKENS, M, Side, split

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kvforensics.explanation import Report
    from parsers.source import Input
    from reconstruct.change_causes import Cause
    from reconstruct.facts import Given
    from reconstruct.interval import Interval
    from reconstruct.ledger import EngineLedger, RankLedger, StartUpLedger


class Subject(NamedTuple):
    """One log, and what of it is compared."""

    name: str
    lines: int
    place: int
    """The start-up's number from 1."""
    held: int
    startup: StartUpLedger
    engine: EngineLedger


class PartOfChange(NamedTuple):
    """What one term adds to each column, and why."""

    name: str
    shares: Mapping[str, Interval]
    causes: tuple[Cause, ...]


class Comparison(NamedTuple):
    """The change from one subject to another."""

    before: Side
    after: Side
    parts: tuple[PartOfChange, ...]
    change: Mapping[str, Interval]
    why_rank: str


class Comparisons(NamedTuple):
    """All subjects, and each but the first against it."""

    subjects: tuple[Subject, ...]
    changes: tuple[Comparison, ...]


def compare(sources: Sequence[Input], which: str | int = "last", given: Sequence[Given] = ()) -> Comparisons:
    """Compare the start-ups of several logs with the first log's.

    which: the start-up of each log, its number from 1 or `last`. Raises UsageFault for fewer than two logs or no such
    start-up, and what `explain` raises.
    """
    if len(sources) < 2:
        raise UsageFault("compare needs two logs or more: BEFORE AFTER [MORE...]")
    subjects = tuple(_subject(explain(source, given), which) for source in sources)
    first = subjects[0]
    return Comparisons(subjects, tuple(_compared(first, other) for other in subjects[1:]))


def chosen(report: Report, which: str | int) -> int:
    """Give the place of the start-up asked for. Raises UsageFault where the log has none such."""
    count = len(report.startups)
    if which == "last":
        return count - 1
    if isinstance(which, int) and 0 < which <= count:
        return which - 1
    raise UsageFault(f"--startup {which}: {report.name} holds {count}; write 1 to {count} or last")


def _subject(report: Report, which: str | int) -> Subject:
    place = chosen(report, which)
    startup = report.startups[place]
    try:
        engine = tightest(startup.engines)
    except NothingToChange as fault:
        raise NothingToExplain(f"{report.name}: {fault}") from None
    return Subject(report.name, report.lines, place + 1, len(report.startups), startup, engine)


def _compared(first: Subject, second: Subject) -> Comparison:
    ranks, why = _ranks(first.engine, second.engine)
    before, after = (_side(s, r) for s, r in zip((first, second), ranks, strict=True))
    pair = pair_of(before, after)
    found = split(before, after, same_blocks=same_blocks(pair))
    parts = tuple(
        PartOfChange(p.name, p.shares, causes_of(p.name, pair, _telling(p.name, p.shares))) for p in found.parts
    )
    return Comparison(before, after, parts, found.change, why)


def _telling(name: str, shares: Mapping[str, Interval]) -> Interval:
    """Give the column that a part is about."""
    if name == "formula":
        return shares[TOKENS]
    if name in {"bytes_per_block", "rounding", "override"}:
        return shares[BLOCKS]
    return shares["kv_pool_memory"] if name == "pool" else shares[M]


def _side(subject: Subject, rank: RankLedger | None) -> Side:
    settings, log = subject.startup.settings, subject.startup.log
    told = any(s.text("computed_num_blocks") != "0" for s in log.of("override"))
    overridden = told or settings.number("num_gpu_blocks_override") is not None
    ignored = all(e.override_ignored for e in subject.startup.eras)
    explicit = settings.number("kv_cache_memory_bytes") is not None or bool(
        log.of("cpu_explicit", "explicit_kv_memory", "startup_plan")
    )
    return Side(subject.startup, subject.engine, rank, overridden and not ignored, explicit)


def _ranks(first: EngineLedger, second: EngineLedger) -> tuple[tuple[RankLedger | None, RankLedger | None], str]:
    """Choose the ranks to compare: both binding ones, else ranks of one name, else the smallest of each; and say which."""
    sides = [[r for r in e.ranks if r.name != "drafter"] for e in (first, second)]
    binding = [
        next((r for r in ranks if r.name == e.binding_rank), None)
        for ranks, e in zip(sides, (first, second), strict=True)
    ]
    if binding[0] and binding[1]:
        return (binding[0], binding[1]), "the binding rank of each: the one with the fewest blocks"
    common = [(a, b) for a in sides[0] for b in sides[1] if a.name == b.name and _states(a) and _states(b)]
    if common:  # several may share a name: Ray's workers do
        poorest = min(common, key=lambda pair: (_high(pair[0]), _high(pair[1])))
        return poorest, "ranks of one name; no line tells which rank binds on both sides"
    smallest = [
        binding[i] or min(filter(_states, ranks), key=_high, default=ranks[0] if ranks else None)
        for i, ranks in enumerate(sides)
    ]
    return (smallest[0], smallest[1]), "the binding rank where a log tells it, else its smallest M"


def _states(rank: RankLedger) -> bool:
    return rank.account.get(M) is not None


def _high(rank: RankLedger) -> float:
    high = rank.account.interval(M).high
    return float("inf") if high is None else high


__all__ = ["COLUMNS", "Comparison", "Comparisons", "PartOfChange", "Subject", "chosen", "compare"]
