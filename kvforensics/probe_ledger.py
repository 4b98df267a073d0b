"""One measured start-up as a ledger: the same values as a rebuilt one, with the origin `measured`."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from live_probe.measurement import INTERRUPTED
from parsers.launch_settings import Setting, Settings
from parsers.startups import StartUpLog
from parsers.tuples import NamedTuple
from reconstruct.eras import possible
from reconstruct.interval import Interval
from reconstruct.ledger import Account, EngineLedger, Missing, Quantity, RankLedger, StartUpLedger
from reconstruct.planner.result import NotStated
from reconstruct.quantities import BY_NAME, ENGINE, RANK
from reconstruct.releases import narrow

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvforensics.probe_flags import Flags
    from live_probe.measurement import ProbeRecord
    from parsers.launch_settings import Value
    from reconstruct.planner.result import KvPlan

MEASURED = "measured"
NO_LOG = StartUpLog(0, 0, (), ())
"""A probe reads no log: its start-up has no lines."""
_OF_ENGINE = frozenset(kind.name for kind in ENGINE)
_ALSO_OF_RANK = frozenset(("bytes_per_block",))


class Run(NamedTuple):
    """How a start-up was asked for. settled: the settings that defaults came to.

    plan: what the measured pool holds, where the engine itself states no tokens.
    """

    engine: str
    version: str
    flags: Flags
    settled: Mapping[str, Value]
    model: str
    plan: KvPlan | None = None


def startup_of(records: tuple[ProbeRecord, ...], run: Run) -> StartUpLedger:
    """Give the ledger of one run from what each of its ranks measured."""
    version = narrow(run.version, ())
    engines: dict[int, list[ProbeRecord]] = {}
    for record in records:
        engines.setdefault(_place(record.rank)[0], []).append(record)
    kinds = {record.failure.kind for record in records if record.failure is not None}
    outcome = "unfinished" if INTERRUPTED in kinds else "failed" if kinds else "ready"
    return StartUpLedger(
        log=NO_LOG,
        version=version,
        eras=tuple(era for era, _ in possible(version.span, ("V1",))),
        outcome=outcome,
        settings=_settings(records, run),
        engines=tuple(_engine(dp, tuple(held), run) for dp, held in sorted(engines.items())),
        conflicts=(),
    )


def _settings(records: tuple[ProbeRecord, ...], run: Run) -> Settings:
    """Give the settings in force: as asked, as defaults came to, and as the engine itself settled them."""
    read = {m.name: m.value for r in records for m in r.measurements if m.name in ("block_size", "max_model_len")}
    found: dict[str, Value] = {
        "model": run.model, "tensor_parallel_size": 1, "pipeline_parallel_size": 1, "data_parallel_size": 1,
        "decode_context_parallel_size": 1, "enforce_eager": False, "kv_cache_dtype": "auto",
    }  # fmt: skip
    found |= {**run.settled, **run.flags.given, **read}
    return Settings({name: Setting(value, ()) for name, value in found.items()}, lists_changes=False, lists_all=False)


def _place(rank: str) -> tuple[int, int]:
    """Read engine and rank off `rank 3` or `dp 1 rank 3`."""
    words = rank.split()
    numbers = {name: int(number) for name, number in pairwise(words) if number.isdigit()}
    return numbers.get("dp", 0), numbers.get("rank", 0)


def _engine(dp: int, records: tuple[ProbeRecord, ...], run: Run) -> EngineLedger:
    tensor, pipeline = run.flags.tensor_parallel_size or 1, run.flags.pipeline_parallel_size or 1
    ranks = []
    for record in records:
        place = _place(record.rank)[1] % (tensor * pipeline)
        ranks.append(RankLedger(record.rank, dp, place // tensor, place % tensor, None, _rank_account(record)))
    binding = _binding(records)
    capacity = _capacity(records, binding, run)
    account = next(rank.account for rank in ranks if rank.name == binding.rank)
    return EngineLedger(dp, tuple(ranks), capacity, binding.rank, _residual(account))


def _binding(records: tuple[ProbeRecord, ...]) -> ProbeRecord:
    """Give the rank with the fewest blocks, the first of equals; the smallest pool where blocks are not known."""

    def blocks(record: ProbeRecord) -> float:
        known = {m.name: m.value for m in record.measurements}
        pool = known.get("kv_pool_memory", known.get("available_kv_cache_memory"))
        per_block = known.get("bytes_per_block")
        if pool is None:
            return float(known.get("num_blocks", float("inf")))
        return pool // per_block if per_block else pool

    return min(records, key=blocks)


def _exact(name: str, value: float, equation: str = "", origin: str = MEASURED, unit: str = "") -> Quantity:
    kind = BY_NAME.get(name)
    return Quantity(name, Interval.exactly(value), kind.unit if kind else unit, origin, equation=equation)


def _rank_account(record: ProbeRecord) -> Account:
    held = {
        m.name: _exact(m.name, m.value, m.equation, unit=m.unit)
        for m in record.measurements
        if m.name not in _OF_ENGINE or m.name in _ALSO_OF_RANK
    }
    both = [held.get(name) for name in ("total_consumed", "transient_peak_headroom")]
    if both[0] and both[1] and "non_kv_cache_memory" not in held:
        size = (both[0].interval.low or 0) + (both[1].interval.low or 0)
        held["non_kv_cache_memory"] = _exact("non_kv_cache_memory", size, "total_consumed + transient_peak_headroom")
    ordered = {kind.name: held.pop(kind.name) for kind in RANK if kind.name in held} | held
    missing = {k.name: Missing(k.name, _why(record, k.name)) for k in RANK if k.name not in ordered}
    return Account(ordered, missing)


def _why(record: ProbeRecord, name: str) -> str:
    """Say why a quantity was not measured."""
    for absent in record.missing:
        if absent.name == name:
            return absent.reason
    if name == "external_weight_memory":
        return "the probe reads no weights of other processes"
    if record.failure is not None:
        return f"the start ended in {record.failure.step}, before it was known"
    return "this engine and release do not keep it"


def _capacity(records: tuple[ProbeRecord, ...], binding: ProbeRecord, run: Run) -> Account:
    figures = {m.name: _exact(m.name, m.value, m.equation) for m in binding.measurements if m.name in _OF_ENGINE}
    counts = [m.value for r in records for m in r.measurements if m.name == "num_blocks"]
    per_block, pool = figures.get("bytes_per_block"), figures.get("kv_pool_memory")
    if counts and per_block:
        size = min(counts) * int(per_block.interval.low or 0)
        figures["num_blocks"] = _exact("num_blocks", min(counts))
        figures["kv_cache_bytes"] = _exact("kv_cache_bytes", size, "num_blocks * bytes_per_block")
        if pool:
            rest = int(pool.interval.low or 0) - size
            figures["unused_kv_memory"] = _exact("unused_kv_memory", rest, "kv_pool_memory - kv_cache_bytes")
    for name in ("kv_cache_tokens", "max_concurrency") if run.plan is not None else ():
        value = getattr(run.plan, name)
        if not isinstance(value, NotStated):
            figures[name] = _exact(name, value)
    share = run.flags.gpu_memory_utilization
    if share is not None or "gpu_memory_utilization" in run.settled:
        value = float(run.settled["gpu_memory_utilization"]) if share is None else share
        origin = "default" if share is None else "given"
        figures["gpu_memory_utilization"] = _exact("gpu_memory_utilization", value, origin=origin)
    missing = {k.name: Missing(k.name, _why(binding, k.name)) for k in ENGINE if k.name not in figures}
    return Account({k.name: figures[k.name] for k in ENGINE if k.name in figures}, missing)


def _residual(account: Account) -> Interval | None:
    """Give M - (R - C - H - G)."""
    names = ("requested_memory", "total_consumed", "transient_peak_headroom", "cudagraph_memory_applied")
    terms = [account.get(name) for name in ("available_kv_cache_memory", *names)]
    values = [int(term.interval.low or 0) for term in terms if term]
    if len(values) < len(terms):
        return None
    left, requested, *taken = values
    return Interval.exactly(left - (requested - sum(taken)))
