"""What a report for people says, before any renderer: one page for each start-up shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvforensics.errors import UsageFault
from kvforensics.report.findings_section import NO_FINDINGS, FindingsSection, findings_section
from kvforensics.report.gaps import Gap, Quote, contradictions, gaps, hints, unread
from kvforensics.report.geometry_section import GeometrySection, geometry_section
from kvforensics.report.header import Fact, facts, headline
from kvforensics.report.redaction import machines, quoted
from kvforensics.report.sizes import UNKNOWN, bytes_text, gib, gib_text, ratio, whole
from kvforensics.report.waterfall import Waterfall, waterfall
from kvforensics.report.wording import NOWHERE, Source, legend, source_of
from parsers.tuples import NamedTuple
from reconstruct.quantities import BY_NAME, ENGINE
from reconstruct.rounding import MIB

if TYPE_CHECKING:
    from kvforensics.explanation import Report
    from kvforensics.report.look import Look
    from reconstruct.interval import Interval
    from reconstruct.ledger import Account, EngineLedger, RankLedger


class Figure(NamedTuple):
    """One line of the capacity table."""

    symbol: str
    meaning: str
    value: str
    source: Source


class RankLine(NamedTuple):
    """One worker beside the others."""

    name: str
    node: str
    weights: str
    available: str
    """Both in GiB."""
    blocks: str
    """Its own count, where the release prints one for each worker; else its engine's."""
    binds: bool
    source: Source

    @property
    def told(self) -> bool:
        """Whether the log tells anything that sets this worker apart."""
        return {self.weights, self.available, self.blocks} != {UNKNOWN} or bool(self.node)


class EngineSection(NamedTuple):
    """One engine: its waterfalls and its capacity."""

    title: str
    """Empty where the start-up has one engine."""
    key: str
    """The answer in one line."""
    waterfalls: tuple[Waterfall, ...]
    notes: tuple[str, ...]
    """Which rank is shown and why, and whether the ledger closes."""
    capacity: tuple[Figure, ...]

    def titled(self, text: str) -> str:
        """Give text under the engine's title, where it has one."""
        return f"{self.title}: {text}" if self.title else text


class Page(NamedTuple):
    """One start-up."""

    headline: str
    outcome: str
    facts: tuple[Fact, ...]
    engines: tuple[EngineSection, ...]
    ranks: tuple[RankLine, ...]
    """Every worker of the start-up where there are several and anything is known of one."""
    conflicts: tuple[str, ...]
    gaps: tuple[Gap, ...]
    hints: tuple[str, ...]
    unread: tuple[Quote, ...]
    unread_more: int
    """Further lines of that kind."""
    legend: tuple[str, ...]
    geometry: GeometrySection | None = None
    """What the model's own config adds to the engines shown."""
    verdict: FindingsSection = NO_FINDINGS

    @property
    def missing(self) -> list[str]:
        """What the log does not tell, why, and how to get it."""
        return [*(f"{gap.symbols}: {gap.reason}" for gap in self.gaps), *self.hints, *self.verdict.unsaid]

    @property
    def unquoted(self) -> list[str]:
        """How many unread lines are not quoted, where there are any."""
        return [f"and {self.unread_more} more"] if self.unread_more else []


def pages(report: Report, look: Look) -> tuple[Page, ...]:
    """Give the page of each start-up that `look` asks for. Raises UsageFault where there is no such start-up."""
    return tuple(_page(report, place, look) for place in chosen(report, look))


def chosen(report: Report, look: Look) -> tuple[int, ...]:
    """Give the places of the start-ups that `look` asks for. Raises UsageFault where there is no such start-up."""
    count = len(report.startups)
    if look.startup == "all":
        return tuple(range(count))
    if look.startup == "last":
        return (count - 1,)
    if isinstance(look.startup, int) and 0 < look.startup <= count:
        return (look.startup - 1,)
    held = "1 start-up" if count == 1 else f"{count} start-ups"
    raise UsageFault(f"--startup {look.startup}: {report.name} holds {held}; write 1 to {count}, last or all")


def _page(report: Report, place: int, look: Look) -> Page:
    startup = report.startups[place]
    shown = startup.engines if look.all_ranks else _tightest(startup.engines)
    sections = tuple(_section(e, look, count=len(startup.engines)) for e in shown)
    nodes = machines(startup, mask=look.redact)
    names = [rank.name for engine in startup.engines for rank in engine.ranks]
    unique = {name for name in names if names.count(name) == 1}
    ranks = [_rank_line(engine, rank, nodes, unique) for engine in startup.engines for rank in engine.ranks]
    gap_list = gaps(startup, shown)
    lines, more = unread(startup, mask=look.redact)
    sources = [s.source for e in sections for w in e.waterfalls for s in w.steps]
    sources += [f.source for e in sections for f in e.capacity]
    return Page(
        headline=headline(startup),
        outcome=startup.outcome,
        facts=facts(report, place, look),
        engines=sections,
        ranks=tuple(ranks) if len(ranks) > 1 and any(line.told for line in ranks) else (),
        conflicts=contradictions(startup),
        gaps=gap_list,
        hints=hints(gap_list),
        unread=lines,
        unread_more=more,
        legend=legend(sources),
        geometry=geometry_section(startup, shown, look),
        verdict=findings_section(report.verdicts[place], mask=look.redact) if report.verdicts else NO_FINDINGS,
    )


def _tightest(engines: tuple[EngineLedger, ...]) -> tuple[EngineLedger, ...]:
    """Give the engine with the fewest blocks, else the smallest pool; the first where nothing tells."""
    for name in ("num_blocks", "kv_pool_memory"):
        known = [(e.capacity.interval(name).high, i) for i, e in enumerate(engines)]
        bounded = [(high, i) for high, i in known if high is not None]
        if bounded:
            return (engines[min(bounded)[1]],)
    return engines[:1]


def _section(engine: EngineLedger, look: Look, *, count: int) -> EngineSection:
    shown, why = _shown_ranks(engine, look)
    hidden = f"The smallest of {count} engines; --all-ranks shows them all." if count > 1 and not look.all_ranks else ""
    name = {rank.name for rank in shown} & {engine.binding_rank}
    only = [r for r in engine.ranks if r.name != "drafter"]
    falls = tuple(
        waterfall(r, engine.capacity, binds=r.name in name or (len(only) == 1 and r is only[0])) for r in shown
    )
    return EngineSection(
        title="" if count == 1 else f"Engine DP{engine.dp}",
        key=_key(engine.capacity),
        waterfalls=tuple(w._replace(rank=quoted(w.rank, mask=look.redact)) for w in falls),
        notes=tuple(filter(None, (hidden, why, _closes(engine) if shown else ""))),
        capacity=_capacity(engine.capacity),
    )


def _shown_ranks(engine: EngineLedger, look: Look) -> tuple[tuple[RankLedger, ...], str]:
    """Give the ranks to draw, and in words why these."""
    binding = engine.binding_rank
    if not engine.ranks:
        return (), "No worker has said anything of its memory."
    if look.all_ranks or len(engine.ranks) == 1:
        if len(engine.ranks) == 1:
            return engine.ranks, ""
        return (
            engine.ranks,
            f"{binding} binds: it has the fewest blocks." if binding else "No line tells which rank binds.",
        )
    found = [r for r in engine.ranks if r.name == binding]
    if found:
        return (found[0],), f"It binds: no other of {len(engine.ranks)} ranks has fewer blocks."
    bounded = [(r.account.interval("available_kv_cache_memory").high, i) for i, r in enumerate(engine.ranks)]
    known = [(high, i) for high, i in bounded if high is not None]
    if not known:
        return engine.ranks[:1], f"One of {len(engine.ranks)} ranks; no line tells which rank binds."
    why = f"Of {len(engine.ranks)} ranks, the smallest M of those that state one; no line tells which rank binds."
    return (engine.ranks[min(known)[1]],), why


def _key(capacity: Account) -> str:
    """Give the answer in one line."""
    pool = capacity.interval("kv_pool_memory")
    if pool.high is not None and pool.high <= 0:
        return f"no room for a KV pool: {gib(pool)} GiB"
    worth_saying = (pool.low is not None and pool.low >= MIB) or pool.high is not None
    parts = [f"KV pool {gib(pool)} GiB"] if worth_saying else []
    for name, unit in (("num_blocks", "blocks"), ("kv_cache_tokens", "tokens")):
        if capacity.get(name):
            parts.append(f"{whole(capacity.interval(name))} {unit}")
    fits, length = capacity.get("max_concurrency"), capacity.get("max_model_len")
    if fits and length:
        parts.append(f"{ratio(fits.interval)} requests of {whole(length.interval)} tokens")
    return " = ".join(parts) or "no KV pool was planned"


def _closes(engine: EngineLedger) -> str:
    """Say what M - (R - C - H - G) comes to."""
    residual = engine.residual
    if residual is None or residual.low is None or residual.high is None:
        return "M = R - C - H - G cannot be checked: the log does not state every term."
    if residual.contains(0):
        within = gib(type(residual)(None, max(-residual.low, residual.high))).removeprefix("≤ ")
        return f"M = R - C - H - G closes within ±{within} GiB, as the lines state the terms."
    return f"M = R - C - H - G does not close: {gib(residual)} GiB remain."


def _capacity(capacity: Account) -> tuple[Figure, ...]:
    """Give the engine's figures; those that nothing bounds stand with the gaps."""
    pool = capacity.interval("kv_pool_memory").high
    rest = capacity.get("num_blocks") and (pool is None or pool > 0)
    return tuple(
        Figure(kind.symbol, _MEANINGS.get(kind.name, kind.meaning), _value(kind.name, found.interval), source_of(found))
        for kind in ENGINE
        if (found := capacity.get(kind.name)) and (kind.name != "unused_kv_memory" or rest)
    )


_MEANINGS = {
    "gpu_memory_utilization": "share of T asked for",
    "kv_pool_memory": "pool that was divided",
    "bytes_per_block": "planner's divisor",
    "kv_cache_bytes": "blocks x bytes each",
    "unused_kv_memory": "rest, no whole block",
    "kv_cache_tokens": "as the log counts",
    "max_concurrency": "full requests",
}
"""Where the ledger's own words are too long for a table."""


def _value(name: str, interval: Interval) -> str:
    unit = BY_NAME[name].unit
    if name == "bytes_per_block":
        return bytes_text(interval)
    if unit == "B":
        return gib_text(interval)
    return ratio(interval) if unit == "1" else whole(interval)


def _rank_line(engine: EngineLedger, rank: RankLedger, nodes: dict[str, str], unique: set[str]) -> RankLine:
    account = rank.account
    weights, available = account.get("model_memory"), account.get("available_kv_cache_memory")
    own = account.get("num_blocks") or engine.capacity.get("num_blocks")
    lines = sorted({line for q in (weights, available) if q and q.origin == "printed" for line in q.lines})
    return RankLine(
        name=quoted(rank.name if rank.name in unique else f"DP{engine.dp} {rank.name}", mask=False),
        node=nodes.get(rank.node or "", ""),
        weights=gib(weights.interval) if weights else UNKNOWN,
        available=gib(available.interval) if available else UNKNOWN,
        blocks=whole(own.interval) if own else UNKNOWN,
        binds=rank.name == engine.binding_rank,
        source=Source("printed", tuple(lines)) if lines else NOWHERE,
    )
