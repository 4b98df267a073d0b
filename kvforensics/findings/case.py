"""What a rule may look at: one start-up's ledger and statements, and the start-ups around it in the same log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvforensics.findings.effects import Rate, tokens_for
from kvforensics.findings.finding import Cost
from parsers.tuples import NamedTuple
from reconstruct.interval import ANYTHING, Interval
from reconstruct.releases import index
from reconstruct.rounding import implied

if TYPE_CHECKING:
    from parsers.rule import Statement
    from reconstruct.eras import Era
    from reconstruct.ledger import EngineLedger, Quantity, RankLedger, StartUpLedger

DRAFTER = "drafter"
"""How the ledger names the rank of a drafter."""

DEFAULT_BLOCK = 16
"""Tokens in a block unless asked or forced otherwise (config/cache.py)."""

OWN_WORKERS = (
    "available", "cpu_auto", "cpu_explicit", "explicit_kv_memory", "load_started", "startup_plan", "usage", "usage_consumed",
    "v0_terms", "weights", "xpu_before",
)  # fmt: skip
"""What a worker of vLLM's own platforms says of its device or its model."""


class Held(NamedTuple):
    """A rank and one of its figures."""

    rank: RankLedger
    quantity: Quantity


class Case(NamedTuple):
    """One start-up among those of its log."""

    startups: tuple[StartUpLedger, ...]
    place: int

    @property
    def ledger(self) -> StartUpLedger:
        """The start-up in question."""
        return self.startups[self.place]

    # -- statements -------------------------------------------------------------------------------------------------

    def of(self, *kinds: str) -> list[Statement]:
        """Give the statements of these kinds, in order."""
        return self.ledger.log.of(*kinds)

    def lines(self, *kinds: str) -> tuple[int, ...]:
        """Give the first line of every statement of these kinds."""
        return tuple(s.line for s in self.of(*kinds))

    def setting_lines(self, name: str) -> tuple[int, ...]:
        """Give the lines that state a setting."""
        found = self.ledger.settings.values.get(name)
        return found.lines if found else ()

    @property
    def measured(self) -> bool:
        """Whether a worker of vLLM's own platforms speaks; plug-in engines print capacity lines alone."""
        return bool(self.of(*OWN_WORKERS)) or self.surely("charge", "device", "opaque") or self.surely("engine", "V0")

    # -- the release ------------------------------------------------------------------------------------------------

    def since(self, release: str) -> bool:
        """Whether every release that the log leaves open is at least this one."""
        return self.ledger.version.span.low >= index(release)

    def before(self, release: str) -> bool:
        """Whether every release that the log leaves open is older than this one."""
        return self.ledger.version.span.high < index(release)

    def surely(self, behaviour: str, *values: object) -> bool:
        """Whether every era left open has one of these values of a behaviour."""
        eras: tuple[Era, ...] = self.ledger.eras
        return bool(eras) and all(getattr(era, behaviour) in values for era in eras)

    # -- figures ----------------------------------------------------------------------------------------------------

    @property
    def engine(self) -> EngineLedger | None:
        """The engine with the fewest tokens, else the first: the one that limits."""
        engines = self.ledger.engines
        return min(engines, key=_size, default=None)

    @property
    def rank(self) -> RankLedger | None:
        """The rank whose ledger is read: the binding one, else the one that states most."""
        engine = self.engine
        if engine is None:
            return None
        ranks = [r for r in engine.ranks if r.name != DRAFTER]
        named = [r for r in ranks if r.name == engine.binding_rank]
        if named:
            return named[0]
        return max(ranks, key=lambda r: len(r.account.quantities), default=None)

    def held(self, name: str) -> list[Held]:
        """Give a rank-level figure of every rank that has it."""
        ranks = (r for engine in self.ledger.engines for r in engine.ranks if r.name != DRAFTER)
        return [Held(r, q) for r in ranks if (q := r.account.get(name)) is not None]

    def quantity(self, name: str) -> Quantity | None:
        """Give a figure of the limiting engine, else of the rank that is read."""
        engine, rank = self.engine, self.rank
        found = engine.capacity.get(name) if engine else None
        return found or (rank.account.get(name) if rank else None)

    def value(self, name: str) -> Interval:
        """Give the interval of a figure; unbounded where it is missing."""
        found = self.quantity(name)
        return found.interval if found else ANYTHING

    def evidence(self, *names: str) -> tuple[int, ...]:
        """Give the lines that state these figures."""
        found = [self.quantity(name) for name in names]
        return merged(*(q.lines for q in found if q))

    @property
    def rate(self) -> Rate:
        """Give how many tokens the limiting engine's pool holds."""
        block = self.value("block_size").high
        pool = self.value("kv_cache_bytes")
        if pool.low is None or pool.high is None:
            pool = self.value("kv_pool_memory")
        return Rate(self.value("kv_cache_tokens"), pool, None if block is None else int(block) * self.context_parallel)

    def cost(self, size: Interval) -> Cost:
        """Give what so many bytes of pool are worth."""
        tokens = tokens_for(size, self.rate)
        return Cost(size, at_least_zero(tokens) if low(size) >= 0 else tokens)

    @property
    def context_parallel(self) -> int:
        """How many ranks share a request's context as set (--decode-context-parallel-size)."""
        return self.ledger.settings.number("decode_context_parallel_size") or 1

    @property
    def world(self) -> int:
        """Workers of one engine: as set, else as many as were seen."""
        settings = self.ledger.settings
        asked = (settings.number("tensor_parallel_size") or 1) * (settings.number("pipeline_parallel_size") or 1)
        seen = max((len(e.ranks) for e in self.ledger.engines), default=1)
        told = [int(w) for s in self.of("world") if (w := s.text("world_size")) and w.isdigit()]
        return max(asked, seen, *told, 1)


def _size(engine: EngineLedger) -> float:
    tokens = engine.capacity.interval("kv_cache_tokens").high
    return float("inf") if tokens is None else tokens


def merged(*lines: tuple[int, ...]) -> tuple[int, ...]:
    """Give line numbers in order, each once."""
    return tuple(sorted({line for some in lines for line in some}))


def printed(statement: Statement, name: str) -> Interval:
    """Give what a statement's hole implies; unbounded where the wording has no such hole."""
    return next((implied(p) for p in statement.fields if p.name == name and p.text), ANYTHING)


def sentence(parts: list[str]) -> str:
    """Join clauses into a sentence that begins with a capital."""
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}."


def low(interval: Interval) -> float:
    """Give the lower end; minus infinity where it is open."""
    return float("-inf") if interval.low is None else interval.low


def high(interval: Interval) -> float:
    """Give the upper end; infinity where it is open."""
    return float("inf") if interval.high is None else interval.high


def at_least_zero(interval: Interval) -> Interval:
    """Give the interval with its negative part set to nothing."""
    bottom = None if interval.low is None else max(interval.low, 0)
    top = None if interval.high is None else max(interval.high, 0)
    return Interval(bottom, top)
