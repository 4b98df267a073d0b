"""The answer to `compare` as a document: figures side by side, and each change split over what moved it."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

from kvforensics.report.brief_lines import BriefLine
from kvforensics.report.document import Document, Figure, Grid, Listing, figures_of, filled
from kvforensics.report.header import headline
from kvforensics.report.redaction import quoted
from kvforensics.report.side_bars import side_by_side
from kvforensics.report.sizes import UNKNOWN, amount, step
from kvforensics.report.wording import line_numbers, symbol
from reconstruct.interval import ANYTHING, Interval
from reconstruct.quantities import BY_NAME, ENGINE, RANK

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kvforensics.comparison import Comparison, Comparisons, PartOfChange, Subject
    from kvforensics.report.look import Look
    from reconstruct.change_causes import Cause
    from reconstruct.change_parts import Side

NAMES = {
    "pool": "M to pool", "bytes_per_block": "bytes per block", "rounding": "block rounding", "override": "override",
    "formula": "token formula",
}  # fmt: skip
M, POOL, BLOCKS, TOKENS = "available_kv_cache_memory", "kv_pool_memory", "num_blocks", "kv_cache_tokens"
UNITS = {M: " GiB of M", BLOCKS: " blocks", TOKENS: " tokens"}
MOST = 3
"""Parts of a change that the short answer names."""
MOST_DRAWN = 4
"""Logs that have bars: more of them would be a table of stripes."""
ZERO = Interval.exactly(0)
LEGEND = (
    "Each column adds up: every part is the mean of both orders of change. ±: what the printed digits leave open",
)


def compare_document(answer: Comparisons, look: Look) -> Document:
    """Lay out two logs or more."""
    blocks: list[Grid | Listing] = [_side_by_side(answer)]
    for i, change in enumerate(answer.changes):
        blocks += _split(answer, change, i + 1, look)
    facts = tuple((f"log {i + 1}", _subject(s, look)) for i, s in enumerate(answer.subjects))
    return Document(
        headline=_answer(answer.changes[-1]),
        mood="plain",
        facts=facts,
        blocks=filled(blocks),
        notes=LEGEND,
        figures=tuple(_figures(answer, look)),
        brief=_brief(answer, facts, look),
    )


def _sides(answer: Comparisons) -> list[Side]:
    return [answer.changes[0].before, *(c.after for c in answer.changes)]


def _figures(answer: Comparisons, look: Look) -> Iterator[Figure]:
    names = [quoted(subject.name, mask=look.redact) for subject in answer.subjects]
    for i, (name, side) in enumerate(zip(names, _sides(answer), strict=True), start=1):
        if side.rank:
            yield from figures_of(side.rank.account, name, f"log {i}", quoted(side.rank.name, mask=look.redact))
        yield from figures_of(side.engine.capacity, name, f"log {i}")
    for i, (source, change) in enumerate(zip(names[1:], answer.changes, strict=True), start=2):
        shares = [*((part.name, part.shares) for part in change.parts), ("change", change.change)]
        for part, shared in shares:
            for name in (M, BLOCKS, TOKENS):
                unit = BY_NAME[name].unit
                yield Figure(source, f"log 1 to log {i}", "", part, name, shared[name], unit, "derived")


def _brief(answer: Comparisons, facts: tuple[tuple[str, str], ...], look: Look) -> tuple[BriefLine, ...]:
    """Give the change from the first log to the last, and what moved most of it."""
    change = answer.changes[-1]
    column, parts = _by_weight(change)
    told = [f"{_name(part.name)} {step(column, part.shares[column])}{UNITS[column]}" for part in parts[:MOST]]
    why = next(
        (f"{_name(p.name)}: {text}" for p in parts if (text := _causes(p.causes, len(answer.changes), look))),
        "no line tells",
    )
    return (
        BriefLine("before", facts[0][1]),
        BriefLine("after", facts[-1][1]),
        BriefLine("change", _answer(change)),
        BriefLine("moved by", "; ".join(told) or "nothing that is known"),
        BriefLine("why", why),
    )


def _by_weight(change: Comparison) -> tuple[str, list[PartOfChange]]:
    """Give the first column whose change is known, and the parts that surely moved it, those first that moved it most."""
    column = next((name for name in (TOKENS, BLOCKS, M) if change.change[name] != ANYTHING), M)
    weights = [(_least(part.shares[column]), part) for part in change.parts]
    return column, [part for weight, part in sorted(weights, key=itemgetter(0), reverse=True) if weight > 0]


def _least(share: Interval) -> float:
    """Give how far from nothing a share is at least."""
    below = 0 if share.high is None else -share.high
    return max(share.low or 0, below, 0)


def _subject(subject: Subject, look: Look) -> str:
    model = subject.startup.settings.text("model") or ""
    parts = [quoted(subject.name, mask=look.redact)]
    if subject.held > 1:
        parts.append(f"start-up {subject.place} of {subject.held}")
    if len(subject.startup.engines) > 1:
        parts.append(f"engine DP{subject.engine.dp} of {len(subject.startup.engines)}, the one with the fewest blocks")
    parts.append(headline(subject.startup))
    return ", ".join([*parts, quoted(model, mask=look.redact)] if model else parts)


def _answer(change: Comparison) -> str:
    """Give the last log's change in one line."""
    tokens, blocks, pool = (change.change[name] for name in (TOKENS, BLOCKS, POOL))
    for name, interval, unit in ((TOKENS, tokens, "tokens"), (BLOCKS, blocks, "blocks"), (POOL, pool, "GiB of pool")):
        if interval != ANYTHING:
            moved = "no change" if interval == ZERO else step(name, interval)
            return f"{moved} in {unit}" if interval == ZERO else f"{moved} {unit}"
    return "the change of the pool is not known"


def _side_by_side(answer: Comparisons) -> Grid:
    sides = _sides(answer)
    rows, names = [], []
    for kind in (*RANK, *ENGINE):
        values = [_figure(side, kind.name, of_rank=kind in RANK) for side in sides]
        if all(v == ANYTHING for v in values):
            continue
        meaning = kind.meaning if kind.symbol != kind.name else ""
        names.append(kind.name)
        rows.append((symbol(kind.name), meaning, *(amount(kind.name, v) for v in values)))
    heads = tuple(f"log {i + 1}" for i in range(len(sides)))
    drawn = side_by_side([{k.name: _figure(s, k.name, of_rank=k in RANK) for k in (*RANK, *ENGINE)} for s in sides])
    bars = tuple(drawn.get(name) for name in names) if drawn and len(sides) <= MOST_DRAWN else ()
    return Grid("Side by side (bytes in GiB)", ("", "", *heads), tuple(rows), heads, bars, heads)


def _figure(side: Side, name: str, *, of_rank: bool) -> Interval:
    if not of_rank:
        return side.engine.capacity.interval(name)
    return side.rank.account.interval(name) if side.rank else ANYTHING


def _split(answer: Comparisons, change: Comparison, place: int, look: Look) -> list[Grid | Listing]:
    several = len(answer.changes) > 1
    sides = (change.before, change.after)
    ranks = " and ".join(quoted(s.rank.name, mask=look.redact) if s.rank else "none" for s in sides)
    title = f"From log 1 to log {place + 1}" if several else "What moved it"
    rows = [_row(part.name, part.shares) for part in change.parts if _counts(part)]
    rows.append(("change", *(step(n, change.change[n]) for n in (M, BLOCKS, TOKENS))))
    heads = ("", "M, GiB", "blocks", "tokens")
    causes = tuple(
        f"{_name(part.name)}: {text}" for part in change.parts if (text := _causes(part.causes, place, look))
    )
    return [
        Grid(f"{title} ({ranks}: {change.why_rank})", heads, tuple(rows), heads[1:]),
        Listing("Why", causes),
    ]


def _counts(part: PartOfChange) -> bool:
    return any(share != ZERO for share in part.shares.values())


def _name(name: str) -> str:
    return NAMES.get(name) or symbol(name)


def _row(name: str, shares: Mapping[str, Interval]) -> tuple[str, ...]:
    sign = {"total_consumed": "-", "transient_peak_headroom": "-", "cudagraph_memory_applied": "-"}.get(name, "")
    cells = []
    for column in (M, BLOCKS, TOKENS):
        share = shares[column]
        cells.append("" if share == ZERO else UNKNOWN if share == ANYTHING else step(column, share))
    return (sign + _name(name), *cells)


def _causes(causes: tuple[Cause, ...], place: int, look: Look) -> str:
    return "; ".join(_cause(c, place, look) for c in causes)


def _cause(cause: Cause, place: int, look: Look) -> str:
    """Give a cause with the lines that tell of it, in the first log and in the one at `place`."""
    text = quoted(cause.text, mask=look.redact, most=200)
    held = ((1, cause.before), (place + 1, cause.after))
    lines = [f"log {log} {line_numbers(found, 12)}" for log, found in held if found]
    return f"{text} ({', '.join(lines)})" if lines else text
