"""`check`: a ledger rebuilt from a log beside a measured one, term by term.

A term is compared only where both starts were alike in everything that moves it; otherwise it is shown with the reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvforensics.check_conditions import Difference, differences, unstated
from kvforensics.errors import UsageFault
from parsers.tuples import NamedTuple
from reconstruct.interval import Interval
from reconstruct.quantities import BY_NAME, ENGINE, RANK
from reconstruct.releases import index

if TYPE_CHECKING:
    from kvforensics.probing import ProbeReport
    from reconstruct.interval import Number
    from reconstruct.ledger import Account, EngineLedger, RankLedger, StartUpLedger

INSIDE, OUTSIDE, NOT_COMPARABLE = "inside", "outside", "not comparable"
NOTHING = "nothing comparable"

STAND_IN_ERROR = 0.1
"""How far the torch engine's activation peak may lie from vLLM's. Public logs show a quarter of a percent where sampling is
the peak, 8 % where the forward pass is, 5 % in the V2 runner (the bands of reconstruct/predict/constants.json)."""
STOOD_IN = frozenset(("torch_peak_increase", "transient_peak_headroom"))
NOT_STOOD_IN = frozenset(
    (
        "non_torch_increase", "total_consumed", "non_kv_cache_memory", "cudagraph_memory_estimate",
        "cudagraph_memory_applied", "cudagraph_memory_actual", "available_kv_cache_memory",
    )
)  # fmt: skip
"""What holds vLLM's own libraries, kernels and graphs, of which the torch engine loads none, or follows from them."""
FROM_POOL = frozenset(
    ("kv_pool_memory", "num_blocks", "kv_cache_bytes", "unused_kv_memory", "kv_cache_tokens", "max_concurrency")
)
"""What follows from M, unless the pool is given in bytes."""
WIDE = ("float32", "float")
_SAMPLES_TWICE = index("0.33.0")
_STANDS_IN = "the torch engine stands in for vLLM, without its libraries, kernels and compiled graphs"
_SIMULATED = "simulated: no driver, no context and no other process was there"


class Reading(NamedTuple):
    """What a probe measured, from a run just made or from its JSON. card: the card's name."""

    startups: tuple[StartUpLedger, ...]
    engine: str
    simulated: bool
    card: str


class Comparison(NamedTuple):
    """One term on both sides.

    rank: empty for an engine's own. measured: from the smallest to the largest value of all runs. gap: how far the
    measured values lie above (below: negative) the rebuilt interval, 0 unless outside. why: of what is not comparable.
    """

    dp: int
    rank: str
    name: str
    rebuilt: Interval | None
    measured: Interval | None
    verdict: str
    gap: Number = 0
    why: str = ""


class Check(NamedTuple):
    """All terms, what differs between the two starts, and what the log does not state of them."""

    startup: StartUpLedger
    reading: Reading
    terms: tuple[Comparison, ...]
    differences: tuple[Difference, ...]
    unstated: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """`outside` if a term is, `inside` if all that can be compared are, else `nothing comparable`."""
        verdicts = {term.verdict for term in self.terms}
        return OUTSIDE if OUTSIDE in verdicts else INSIDE if INSIDE in verdicts else NOTHING


def reading_of(report: ProbeReport) -> Reading:
    """Give a report just made as what it measured."""
    cards = [r.environment.device for r in report.records if r.environment.device]
    return Reading(report.startups, report.engine, report.simulated, cards[-1] if cards else "")


def check(startup: StartUpLedger, reading: Reading, tolerance: int = 0) -> Check:
    """Compare a rebuilt start-up with a measured one. Bytes up to `tolerance` outside count as inside.

    Raises UsageFault for a reading without any start-up.
    """
    if not reading.startups:
        raise UsageFault("the probe holds no start-up: measure again with kvforensics probe")
    moved = differences(startup, reading)
    terms = []
    for engine in startup.engines:
        terms += _of_engine(engine, reading, moved, tolerance)
    return Check(startup, reading, tuple(terms), moved, unstated(startup, reading))


def _of_engine(
    engine: EngineLedger, reading: Reading, moved: tuple[Difference, ...], tolerance: int
) -> list[Comparison]:
    found = []
    for rank in engine.ranks:
        accounts = (
            tuple(a for s in reading.startups for a in _ranks_of(s, engine.dp, rank)) if rank.name != "drafter" else ()
        )
        for kind in RANK:
            term = _compared(kind.name, rank.account, accounts, reading, moved, tolerance)
            found += [term._replace(dp=engine.dp, rank=rank.name)] if term else []
    capacities = tuple(e.capacity for s in reading.startups for e in s.engines if e.dp == engine.dp)
    for kind in ENGINE:
        term = _compared(kind.name, engine.capacity, capacities, reading, moved, tolerance)
        found += [term._replace(dp=engine.dp)] if term else []
    return found


def _ranks_of(startup: StartUpLedger, dp: int, rank: RankLedger) -> tuple[Account, ...]:
    """Give the measured rank that a log's rank is, by its coordinates or its number.

    Where the log does not tell its engine, those of all engines; where it tells neither, all ranks.
    """
    everyone = tuple(r for engine in startup.engines for r in engine.ranks)
    held = everyone if rank.dp is None else next((e.ranks for e in startup.engines if e.dp == dp), ())
    if rank.pp is not None or rank.tp is not None:
        wanted = (rank.pp or 0, rank.tp or 0)
        return tuple(r.account for r in held if (r.pp, r.tp) == wanted)
    return tuple(r.account for r in held if r.name == rank.name) or tuple(r.account for r in everyone)


def _compared(
    name: str, rebuilt: Account, measured: tuple[Account, ...], reading: Reading,
    moved: tuple[Difference, ...], tolerance: int,
) -> Comparison | None:  # fmt: skip
    """Compare one term; None where neither side has it."""
    left = rebuilt.get(name)
    right = _values(name, measured)
    if left is None and right is None:
        return None
    found = Comparison(0, "", name, left.interval if left else None, right, NOT_COMPARABLE)
    why = _absent(name, rebuilt, measured, found) or _incomparable(name, reading, moved)
    if why:
        return found._replace(why=why)
    if left is None or right is None:
        raise AssertionError
    if reading.engine == "torch" and name in STOOD_IN:
        right = _widened(right)
    gap = _gap(left.interval, right)
    if abs(gap) <= (tolerance if BY_NAME[name].unit == "B" else 0):
        return found._replace(verdict=INSIDE)
    return found._replace(verdict=OUTSIDE, gap=gap)


def _values(name: str, accounts: tuple[Account, ...]) -> Interval | None:
    """Give the span of all runs' values."""
    span: Interval | None = None
    for account in accounts:
        quantity = account.get(name)
        if quantity is not None:
            span = quantity.interval if span is None else span.hull(quantity.interval)
    return span


def _absent(name: str, rebuilt: Account, measured: tuple[Account, ...], found: Comparison) -> str:
    """Say which side lacks a term, and why."""
    if found.rebuilt is None:
        gone = rebuilt.missing.get(name)
        return f"the log does not tell it: {gone.reason}" if gone else "the log does not tell it"
    if found.measured is None:
        reasons = [account.missing[name].reason for account in measured if name in account.missing]
        return f"not measured: {reasons[0]}" if reasons else "not measured: the probe has no such rank"
    return ""


def _incomparable(name: str, reading: Reading, moved: tuple[Difference, ...]) -> str:
    """Say what keeps two values of one term from being comparable; empty if nothing does."""
    reasons = [difference.text for difference in moved if name in difference.moves]
    given_pool = all(s.settings.get("kv_cache_memory_bytes") is not None for s in reading.startups)
    if reading.engine == "torch" and (name in NOT_STOOD_IN or (name in FROM_POOL and not given_pool)):
        reasons.append(_STANDS_IN)
    if reading.engine == "torch" and name in STOOD_IN:
        reasons += _unproved(reading)
    if reading.simulated and name == "initial_free_memory":
        reasons.append(_SIMULATED)
    return "; ".join(reasons)


def _unproved(reading: Reading) -> list[str]:
    """Say why the stated error of the torch engine's peak does not hold of a start."""
    found = []
    if any(s.settings.text("dtype") in WIDE for s in reading.startups):
        found.append("in float32 vLLM takes more than the torch engine knows of")
    if any(s.version.span.high >= _SAMPLES_TWICE for s in reading.startups):
        found.append("the second sampling pass of 0.33 is read off its code and held against no card")
    return found


def _widened(measured: Interval) -> Interval:
    """Give a stand-in's figure with its stated error."""
    low, high = measured.low or 0, measured.high or 0
    return Interval(int(low * (1 - STAND_IN_ERROR)), int(high * (1 + STAND_IN_ERROR)) + 1)


def _gap(rebuilt: Interval, measured: Interval) -> Number:
    """Give how far the measured values lie above (negative: below) what is rebuilt; 0 where they meet."""
    if rebuilt.high is not None and measured.low is not None and measured.low > rebuilt.high:
        return measured.low - rebuilt.high
    if rebuilt.low is not None and measured.high is not None and measured.high < rebuilt.low:
        return measured.high - rebuilt.low
    return 0
