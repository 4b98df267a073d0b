"""The answer to `compare` as a document: figures side by side, and each change split over what moved it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvforensics.report.document import Document, Grid, Listing
from kvforensics.report.header import headline
from kvforensics.report.redaction import quoted
from kvforensics.report.sizes import UNKNOWN, amount, step
from kvforensics.report.wording import line_numbers, symbol
from reconstruct.interval import ANYTHING, Interval
from reconstruct.quantities import ENGINE, RANK

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvforensics.comparison import Comparison, Comparisons, PartOfChange, Subject
    from kvforensics.report.look import Look
    from reconstruct.change_causes import Cause
    from reconstruct.change_parts import Side

NAMES = {
    "pool": "M to pool", "bytes_per_block": "bytes per block", "rounding": "block rounding", "override": "override",
    "formula": "token formula",
}  # fmt: skip
M, POOL, BLOCKS, TOKENS = "available_kv_cache_memory", "kv_pool_memory", "num_blocks", "kv_cache_tokens"
ZERO = Interval.exactly(0)
LEGEND = (
    "Each column adds up: every part is the mean of both orders of change. ±: what the printed digits leave open",
)


def compare_document(answer: Comparisons, look: Look) -> Document:
    """Lay out two logs or more."""
    blocks: list[Grid | Listing] = [_side_by_side(answer)]
    for i, change in enumerate(answer.changes):
        blocks += _split(answer, change, i + 1)
    return Document(
        headline=_answer(answer.changes[-1]),
        mood="open",
        facts=tuple((f"log {i + 1}", _subject(s, look)) for i, s in enumerate(answer.subjects)),
        blocks=tuple(b for b in blocks if not isinstance(b, Listing) or b.lines),
        notes=LEGEND,
    )


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
    sides = [answer.changes[0].before, *(c.after for c in answer.changes)]
    rows = []
    for kind in (*RANK, *ENGINE):
        values = [_figure(side, kind.name, of_rank=kind in RANK) for side in sides]
        if all(v == ANYTHING for v in values):
            continue
        meaning = kind.meaning if kind.symbol != kind.name else ""
        rows.append((symbol(kind.name), meaning, *(amount(kind.name, v) for v in values)))
    heads = tuple(f"log {i + 1}" for i in range(len(sides)))
    return Grid("Side by side (bytes in GiB)", ("", "", *heads), tuple(rows), heads)


def _figure(side: Side, name: str, *, of_rank: bool) -> Interval:
    if not of_rank:
        return side.engine.capacity.interval(name)
    return side.rank.account.interval(name) if side.rank else ANYTHING


def _split(answer: Comparisons, change: Comparison, place: int) -> list[Grid | Listing]:
    several = len(answer.changes) > 1
    ranks = " and ".join(quoted(s.rank.name, mask=False) if s.rank else "none" for s in (change.before, change.after))
    title = f"From log 1 to log {place + 1}" if several else "What moved it"
    rows = [_row(part.name, part.shares) for part in change.parts if _counts(part)]
    rows.append(("change", *(step(n, change.change[n]) for n in (M, BLOCKS, TOKENS))))
    heads = ("", "M, GiB", "blocks", "tokens")
    causes = tuple(f"{_name(part.name)}: {text}" for part in change.parts if (text := _causes(part.causes)))
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


def _causes(causes: tuple[Cause, ...]) -> str:
    return "; ".join(_cause(c) for c in causes)


def _cause(cause: Cause) -> str:
    text = quoted(cause.text, mask=True, most=200)
    lines = [f"log {i + 1} {line_numbers(held, 12)}" for i, held in enumerate((cause.before, cause.after)) if held]
    return f"{text} ({', '.join(lines)})" if lines else text
