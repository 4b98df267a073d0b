"""From T down to the pool: one rank's figures in the order in which the release takes them from the budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvforensics.report.bars import Bar, anchored_left, anchored_right
from kvforensics.report.sizes import gib, percent, ratio
from kvforensics.report.wording import NOWHERE, Source, source_of, symbol
from parsers.tuples import NamedTuple
from reconstruct.interval import ANYTHING, Interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconstruct.ledger import Account, RankLedger

NARROW_SCALE = 0.2
"""A scale known worse than this share of itself would put every bar in the wrong place."""


class Step(NamedTuple):
    """One line of a waterfall."""

    kind: str
    """`total`, `unused`, `budget`, `taken`, `part` (of what was taken), `pool` or `beside` (no part of the budget)."""
    symbol: str
    label: str
    size: str
    """In GiB."""
    share: str
    """Of the waterfall's scale."""
    bar: Bar | None
    source: Source


class Waterfall(NamedTuple):
    """Where one rank's memory went."""

    rank: str
    scale: str
    """The symbol of what shares and bars are measured against, T or R; empty where neither is known."""
    steps: tuple[Step, ...]


class _Row(NamedTuple):
    kind: str
    symbol: str
    label: str
    interval: Interval
    source: Source


def waterfall(rank: RankLedger, capacity: Account, *, binds: bool) -> Waterfall:
    """Lay out one rank; the pool closes it where `binds`, since only the binding rank's memory is what was divided."""
    account = rank.account
    total, budget = account.interval("total_memory"), account.interval("requested_memory")
    scale, name = next(((s, n) for s, n in ((total, "T"), (budget, "R")) if _is_scale(s)), (ANYTHING, ""))
    rows = [] if rank.name == "drafter" else [*_budget(account, capacity), *_taken(account)]
    if rank.name == "drafter":
        rows.append(_row("part", account, "model_memory", "weights"))
    else:
        rows += _left(account, capacity, binds=binds)
    rows += [*_beside(account), *_modelled(rank)]
    bars = placed([(row.kind, row.interval) for row in rows], scale, budget)
    steps = [
        Step(
            r.kind,
            r.symbol,
            r.label,
            gib(r.interval),
            "100%" if r.symbol == name else percent(r.interval, scale, inside=name == "T"),
            bar,
            r.source,
        )
        for r, bar in zip(rows, bars, strict=True)
    ]
    return Waterfall(rank.name, name, tuple(steps))


def _is_scale(interval: Interval) -> bool:
    width = interval.width
    return width is not None and interval.low is not None and interval.low > 0 and width <= NARROW_SCALE * interval.low


def _row(kind: str, account: Account, name: str, label: str) -> _Row:
    interval = account.interval(name)
    if interval.high is None and interval.low is not None and interval.low < 0:
        return _Row(kind, symbol(name), label, ANYTHING, NOWHERE)  # a bound that tells a reader nothing
    return _Row(kind, symbol(name), label, account.interval(name), source_of(account.get(name)))


def _known(account: Account, *names: str) -> bool:
    """Whether each of these has both ends."""
    return all(account.interval(name).width is not None for name in names)


def _budget(account: Account, capacity: Account) -> list[_Row]:
    """Give T, what was not asked for, and R."""
    rows = [_row("total", account, "total_memory", "device memory")]
    external = account.get("external_weight_memory")
    shared = external is not None and external.interval != Interval.exactly(0)
    if _known(account, "total_memory", "requested_memory"):
        unused = account.interval("total_memory").minus(account.interval("requested_memory"))
        unused = unused.meet(Interval(0, None)) or unused  # u is at most 1
        rows.append(_Row("unused", "T-R", "not for vLLM" if shared else "not requested", unused, Source("T - R")))
    if shared:
        rows.append(_row("part", account, "external_weight_memory", "external weights"))
    fraction = capacity.interval("gpu_memory_utilization")
    asked = f", u = {ratio(fraction)}" if fraction.is_point else ""
    rows.append(_row("budget", account, "requested_memory", f"requested{asked}"))
    return rows


def _taken(account: Account) -> list[_Row]:
    """Give what was taken from R: C split into weights and the rest, H and G."""
    consumed, headroom = account.get("total_consumed"), account.get("transient_peak_headroom")
    rows = []
    if consumed:
        rows.append(_row("taken", account, "total_consumed", "consumed at rest"))
    elif headroom is None or _known(account, "non_kv_cache_memory"):
        rows.append(_row("taken", account, "non_kv_cache_memory", "consumed and peak"))
    else:
        rows.append(_Row("taken", "C", "consumed at rest", ANYTHING, NOWHERE))
    if account.get("model_memory"):
        rows.append(_row("part", account, "model_memory", "weights"))
    if account.get("non_torch_increase"):
        rows.append(_row("part", account, "non_torch_increase", "NCCL, cuBLAS, ..."))
    elif _known(account, "total_consumed", "model_memory"):
        rest = account.interval("total_consumed").minus(account.interval("model_memory"))
        rows.append(_Row("part", "C-W", "all but weights", rest, Source("C - W")))
    merged = rows[0].symbol == "C+H"
    if headroom or not merged:
        rows.append(_row("part" if merged else "taken", account, "transient_peak_headroom", "activation peak"))
    rows.append(_row("taken", account, "cudagraph_memory_applied", "CUDA graphs"))
    return rows


def _left(account: Account, capacity: Account, *, binds: bool) -> list[_Row]:
    rows = [_row("pool", account, "available_kv_cache_memory", "left for KV cache")]
    if binds and capacity.get("kv_pool_memory"):
        rows.append(_row("pool", capacity, "kv_pool_memory", "pool, as divided"))
    return rows


def _beside(account: Account) -> list[_Row]:
    named = (
        ("initial_free_memory", "free at the start"),
        ("cudagraph_memory_estimate", "graphs, estimated"),
        ("cudagraph_memory_actual", "graphs, as captured"),
    )
    return [_row("beside", account, name, label) for name, label in named if account.get(name)]


def _modelled(rank: RankLedger) -> list[_Row]:
    """Give the model's figures for what the lines leave open."""
    labels = {"total_consumed": "consumed", "non_torch_increase": "non-torch", "transient_peak_headroom": "peak"}
    return [
        _Row("beside", symbol(q.name), f"{labels[q.name]}, modelled", q.interval, source_of(q)) for q in rank.unmeasured
    ]


def placed(rows: Sequence[tuple[str, Interval]], scale: Interval, budget: Interval) -> list[Bar | None]:
    """Place figures, each with its kind, on a scale; nothing where that is not known.

    What is taken hangs below what was taken from the budget before it, the rest stands on zero.
    """
    unit = _middle(scale)
    if not unit:
        return [None] * len(rows)
    edges = _upper_edges(rows, unit, _middle(budget))
    return [_bar(kind, interval, edge, unit) for (kind, interval), edge in zip(rows, edges, strict=True)]


def _upper_edges(rows: Sequence[tuple[str, Interval]], total: float, budget: float | None) -> list[float | None]:
    """Give where each figure that hangs begins: counted down from R, or up from M where a term above is not known."""
    edges: list[float | None] = [total if kind == "unused" else None for kind, _ in rows]
    taken = [i for i, (kind, _) in enumerate(rows) if kind == "taken"]
    top = budget
    for i in taken:
        edges[i] = top
        top = _less(top, rows[i][1])
    floor = next((_middle(interval) for kind, interval in rows if kind == "pool"), None)
    for i in reversed(taken):
        middle = _middle(rows[i][1])
        floor = None if floor is None or middle is None else floor + middle
        edges[i] = floor if edges[i] is None else edges[i]
    under: float | None = None
    for i, (kind, interval) in enumerate(rows):
        if kind == "taken":
            under = edges[i]
        elif kind == "part":
            edges[i] = under
            under = _less(under, interval)
    return edges


def _bar(kind: str, interval: Interval, edge: float | None, unit: float) -> Bar | None:
    low, high = interval.low, interval.high
    if low is None or kind == "beside" or (high is not None and high <= 0):
        return None
    if kind in {"total", "budget", "pool"}:
        return anchored_left(low / unit, (low if high is None else high) / unit)
    if edge is None or high is None:
        return None
    return anchored_right(edge / unit, max(low, 0) / unit, high / unit)


def _less(edge: float | None, taken: Interval) -> float | None:
    middle = _middle(taken)
    return None if edge is None or middle is None else edge - middle


def _middle(interval: Interval) -> float | None:
    return None if interval.low is None or interval.high is None else (interval.low + interval.high) / 2
