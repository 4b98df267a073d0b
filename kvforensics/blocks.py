"""The cache of a model before any start: its layers, its groups, and what a given memory holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kvforensics.errors import UsageFault
from parsers.tuples import NamedTuple
from reconstruct.geometry import AMPLE, ORIGINS
from reconstruct.interval import Interval
from reconstruct.ledger import Account, Missing, Quantity
from reconstruct.planner.config import layer_specs
from reconstruct.planner.config_sources import FoundConfig, UnreadableConfig, find_config
from reconstruct.planner.errors import BadSetting, WouldNotStart
from reconstruct.planner.plan import plan_from_layers
from reconstruct.planner.result import KvPlan, NotStated

if TYPE_CHECKING:
    from reconstruct.planner.config import ConfigSpecs
    from reconstruct.planner.launch import Launch
    from reconstruct.planner.spec import LayerSpec

STARTS, MAY_START, REFUSED, NO_MEMORY = "starts", "may start", "does not start", "fits no stated memory"

GROWING = ("num_blocks", "kv_cache_bytes", "kv_cache_tokens", "max_concurrency")
"""What more memory never lowers."""


class NoConfig(UsageFault):
    """No config is known for a model's name."""


class LikeLayers(NamedTuple):
    """Layers of one stage that ask the same of the cache."""

    stage: int
    layers: tuple[int, ...]
    """Numbers over all stages, in the order in which the model registers them."""
    spec: LayerSpec


class Blocks(NamedTuple):
    """One answer."""

    model: str
    found: FoundConfig
    launch: Launch
    """As settled: the length is the model's where none was asked for."""
    memory: Interval | None
    """Bytes for the cache of each rank; None where none was given."""
    outcome: str
    """`starts`, `may start` (at one end of the memory only), `does not start`, or `fits no stated memory`."""
    reason: str
    """Why it does not start; empty where it does."""
    layers: tuple[LikeLayers, ...]
    plan: KvPlan | None
    """The plan whose groups hold: at the given memory, else at plenty; None where the engine refuses any memory."""
    account: Account

    @property
    def origin(self) -> str:
        """The origin of what follows from the config."""
        return ORIGINS[self.found.source]


class _Ends(NamedTuple):
    """Plans at both ends of the memory; a refusal where the engine refuses."""

    low: KvPlan | WouldNotStart
    high: KvPlan | WouldNotStart


def blocks(model: str, launch: Launch, memory: Interval | None = None, *, fetch: bool = False) -> Blocks:
    """Plan the cache of `model`: an id that the local cache or the catalogue holds, a config.json, or its folder.

    `memory` is one rank's, in bytes; where it is an interval, every figure is one. Raises NoConfig and UsageFault for a
    model or setting that makes no sense, Unsupported where the answer is not known.
    """
    found = _config(model, fetch=fetch)
    try:
        return _planned(model, found, launch, memory)
    except BadSetting as error:
        raise UsageFault(str(error)) from None


def _config(model: str, *, fetch: bool) -> FoundConfig:
    path = Path(model).expanduser()
    try:
        given = path if path.is_file() or (path / "config.json").is_file() else None
        found = find_config(model, given, fetch=fetch)
    except UnreadableConfig as error:
        raise UsageFault(str(error)) from None
    if found is None:
        raise NoConfig(f"no config is known for {model}: pass its config.json, or --fetch to ask the Hugging Face hub")
    return found


def _planned(model: str, found: FoundConfig, launch: Launch, memory: Interval | None) -> Blocks:
    try:
        built = layer_specs(found.config, launch)
        ample = plan_from_layers(built.stages, built.launch, AMPLE)
    except WouldNotStart as refusal:
        return Blocks(model, found, launch, memory, REFUSED, str(refusal), (), None, Account({}, {}))
    layers = _alike(built)
    origin = ORIGINS[found.source]
    if memory is None:
        account = _account(ample, None, built, memory, origin)
        return Blocks(model, found, built.launch, None, NO_MEMORY, "", layers, ample, account)
    ends = _Ends(_at(built, int(memory.low or 0)), _at(built, int(memory.high or 0)))
    account = _account(ample, ends, built, memory, origin)
    plan = next((end for end in ends if isinstance(end, KvPlan)), ample)
    refusals = [str(end) for end in ends if isinstance(end, WouldNotStart)]
    outcome = {0: STARTS, 1: MAY_START, 2: REFUSED}[len(refusals)]
    return Blocks(model, found, built.launch, memory, outcome, refusals[0] if refusals else "", layers, plan, account)


def _at(built: ConfigSpecs, memory: int) -> KvPlan | WouldNotStart:
    try:
        return plan_from_layers(built.stages, built.launch, memory)
    except WouldNotStart as refusal:
        return refusal


def _alike(built: ConfigSpecs) -> tuple[LikeLayers, ...]:
    found: list[LikeLayers] = []
    start = 0
    for number, stage in enumerate(built.stages):
        numbers: dict[LayerSpec, list[int]] = {}
        for i, spec in enumerate(stage):
            numbers.setdefault(spec, []).append(start + i)
        found += [LikeLayers(number, tuple(own), spec) for spec, own in numbers.items()]
        start += len(stage)
    return tuple(found)


def _account(ample: KvPlan, ends: _Ends | None, built: ConfigSpecs, memory: Interval | None, origin: str) -> Account:
    """Give every figure, or why there is none."""
    account = Account({}, {})
    plans = [end for end in ends or () if isinstance(end, KvPlan)] or [ample]
    _add(account, "bytes_per_block", "B", origin, *[p.bytes_per_block for p in plans])
    _add(account, "block_size", "tokens", origin, *[p.block_size for p in plans])
    _add(account, "request_fixed_bytes", "B", origin, *[p.request_fixed_bytes for p in plans])
    _add(account, "request_bytes_per_token", "B/token", origin, *[p.request_bytes_per_token for p in plans])
    _add(account, "padding_share", "1", origin, *[p.padding_share for p in plans])
    if ends is None or memory is None:
        _add(account, "max_model_len", "tokens", "config", ample.max_model_len)
        for name in (*GROWING, "unused_kv_memory", "longest_request"):
            account.missing[name] = Missing(name, "no memory was given (--memory 41.73GiB)")
        return account
    account.quantities["kv_pool_memory"] = Quantity("kv_pool_memory", memory, "B", "given")
    _add_capacity(account, ends, built, memory)
    return account


def _add_capacity(account: Account, ends: _Ends, built: ConfigSpecs, memory: Interval) -> None:
    """Give what grows with the memory. Where only its high end starts, the least that would start is not known."""
    plans = [end for end in ends if isinstance(end, KvPlan)]
    if plans:
        length_origin = "derived" if built.launch.autofit else "config"
        _add(account, "max_model_len", "tokens", length_origin, *_of(plans, "max_model_len"))
        for name, unit in (("num_blocks", "blocks"), ("kv_cache_tokens", "tokens"), ("max_concurrency", "1")):
            _add(account, name, unit, "derived", *_of(plans, name))
        _add(account, "kv_cache_bytes", "B", "derived", *[p.num_blocks * p.bytes_per_block for p in plans])
        account.quantities["unused_kv_memory"] = Quantity("unused_kv_memory", _unused(plans, memory), "B", "derived")
        if len(plans) < len(ends):
            _open_below(account)
    else:
        _add(account, "max_model_len", "tokens", "config", built.launch.max_model_len or 0)
        for name in (*GROWING, "unused_kv_memory"):
            account.missing[name] = Missing(name, "the engine does not start with this memory")
    longest = [_longest(built, end, int(at or 0)) for end, at in zip(ends, memory, strict=True)]
    _add(account, "longest_request", "tokens", "derived", *longest)


def _open_below(account: Account) -> None:
    for name in GROWING:
        if found := account.get(name):
            account.quantities[name] = found._replace(interval=Interval(None, found.interval.high))


def _of(plans: list[KvPlan], name: str) -> list[float | NotStated]:
    return [getattr(plan, name) for plan in plans]


def _unused(plans: list[KvPlan], memory: Interval) -> Interval:
    """Give what fills no block: it grows with the memory only until the next block fits."""
    first, last = plans[0], plans[-1]
    alike = (first.num_blocks, first.binding_rank) == (last.num_blocks, last.binding_rank)
    if alike and (len(plans) > 1 or memory.is_point):
        return Interval(first.unused_bytes, last.unused_bytes)
    return Interval(0, max(plan.bytes_per_block for plan in plans) - 1)


def _longest(built: ConfigSpecs, end: KvPlan | WouldNotStart, memory: int) -> int | NotStated:
    """Give the longest request that passes the check, where the engine refuses the one asked for too."""
    if isinstance(end, KvPlan):
        return end.longest_request
    try:
        return plan_from_layers(
            built.stages, built.launch._replace(max_model_len=1, autofit=False), memory
        ).longest_request
    except WouldNotStart:
        return NotStated("not even one token fits into this memory")


def _add(account: Account, name: str, unit: str, origin: str, *values: float | NotStated) -> None:
    """Add a figure over all its values; one that is not stated is missing."""
    unstated = next((value for value in values if isinstance(value, NotStated)), None)
    if unstated is not None:
        account.missing[name] = Missing(name, unstated.reason)
        return
    numbers = [value for value in values if not isinstance(value, NotStated)]
    account.quantities[name] = Quantity(name, Interval(min(numbers), max(numbers)), unit, origin)
