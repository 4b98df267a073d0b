"""The rebuilt ledger: frozen values that reports, findings and comparisons read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.interval import ANYTHING, Interval

if TYPE_CHECKING:
    from parsers.launch_settings import Settings
    from parsers.record import Record
    from parsers.startups import StartUpLog
    from reconstruct.eras import Era
    from reconstruct.geometry_ledger import GeometryLedger
    from reconstruct.releases import EngineVersion


class Quantity(NamedTuple):
    """One figure: every value the evidence allows, and where it comes from."""

    name: str
    interval: Interval
    unit: str
    origin: str
    """`printed`, `derived`, `config`, `catalogue`, `modelled`, `given`, `default` or `measured`."""
    lines: tuple[int, ...] = ()
    """For a printed value every line that states it; else the lines it follows from."""
    inputs: tuple[str, ...] = ()
    """The quantities it follows from, or that narrowed what was printed."""
    equation: str = ""
    """The relation that bound it last."""


class Missing(NamedTuple):
    """A figure that nothing bounds, and why."""

    name: str
    reason: str


class Account(NamedTuple):
    """The figures of one scope: a rank, or an engine's capacity."""

    quantities: dict[str, Quantity]
    missing: dict[str, Missing]

    def get(self, name: str) -> Quantity | None:
        """Give a quantity that has at least one bound."""
        return self.quantities.get(name)

    def interval(self, name: str) -> Interval:
        """Give a quantity's interval; unbounded where it is missing."""
        found = self.quantities.get(name)
        return found.interval if found else ANYTHING


def is_measured(interval: Interval) -> bool:
    """Whether an interval says how large a term is: its width is a tenth of the value at most, or 64 MiB."""
    if interval.low is None or interval.high is None:
        return False
    return interval.high - interval.low <= max(abs(interval.high) * 0.1, 64 << 20)


class RankLedger(NamedTuple):
    """The ledger of one worker."""

    name: str
    dp: int | None
    """None where several engines ran and nothing tells whose worker this is."""
    pp: int | None
    tp: int | None
    node: str | None
    account: Account
    modelled: tuple[Quantity, ...] = ()
    """The model's bands of H and of what else of C, N the lines leave open: beside the account, which never rests on them."""
    loaded_peak: Interval | None = None
    """The model's band of H had this start, which compiled its graphs, found them in the cache."""

    @property
    def unmeasured(self) -> tuple[Quantity, ...]:
        """The model's bands of those terms alone that the lines leave open."""
        return tuple(q for q in self.modelled if not is_measured(self.account.interval(q.name)))


class EngineLedger(NamedTuple):
    """One scheduler's ranks and the pool they share."""

    dp: int
    ranks: tuple[RankLedger, ...]
    capacity: Account
    binding_rank: str | None
    """The rank with the fewest blocks, where the log tells which."""
    residual: Interval | None
    """M - (R - C - H - G) on the binding rank: holds 0 where the ledger closes; None where a term is missing."""


class Claim(NamedTuple):
    """One side of a contradiction."""

    interval: Interval
    origin: str
    lines: tuple[int, ...]


class Conflict(NamedTuple):
    """Lines that cannot all be true."""

    quantity: str
    claims: tuple[Claim, ...]
    note: str


class StartUpLedger(NamedTuple):
    """One launch, rebuilt."""

    log: StartUpLog
    version: EngineVersion
    eras: tuple[Era, ...]
    """The eras that the log leaves open; one where the release is known."""
    outcome: str
    settings: Settings
    engines: tuple[EngineLedger, ...]
    conflicts: tuple[Conflict, ...]
    unread: tuple[Record, ...] = ()
    """Lines that look like memory and that no rule took."""
    geometry: GeometryLedger | None = None
    """What the model's own config added; None where none was looked for."""

    @property
    def compiles(self) -> bool | None:
        """Whether torch.compile ran anew; False where graphs came from its cache, None where no line tells."""
        if self.log.of("compile_cache_hit"):
            return False
        return True if self.log.of("compiled") else None
