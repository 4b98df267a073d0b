"""The cache that a predicted pool holds: the release's own planner, run at both ends of M."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.interval import Interval
from reconstruct.ledger import Account, Missing, Quantity
from reconstruct.planner.errors import WouldNotStart
from reconstruct.planner.plan import plan_from_layers
from reconstruct.planner.result import NotStated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconstruct.planner.config import ConfigSpecs
    from reconstruct.planner.result import KvPlan
    from reconstruct.predict.defaults import Settled
    from reconstruct.predict.scenario import Scenario
    from reconstruct.predict.terms import StageTerms


class Capacity(NamedTuple):
    """The engine's quantities, the plans at both ends, and why an end has none.

    least, most: the plan at the low and at the high end of M; a sentence where the engine refuses it.
    """

    account: Account
    least: KvPlan | str
    most: KvPlan | str
    binding_stage: int | None


def capacity_of(scenario: Scenario, settled: Settled, built: ConfigSpecs, stages: Sequence[StageTerms]) -> Capacity:
    """Plan the pool. Raises Unsupported where the planner does not know the release."""
    low, high = _pools(scenario, stages)
    launch = built.launch._replace(max_num_seqs=settled.sequences, max_num_batched_tokens=settled.batched_tokens)
    ends: list[KvPlan | str] = []
    for pools in (low, high):
        try:
            ends.append(plan_from_layers(built.stages, launch, pools))
        except WouldNotStart as refusal:
            ends.append(str(refusal))
    least, most = ends
    account = _account(scenario, settled, least, most, (low, high))
    known = most if not isinstance(most, str) else None
    binding = known.ranks[known.binding_rank].stage if known else None
    return Capacity(account, least, most, binding)


def _pools(scenario: Scenario, stages: Sequence[StageTerms]) -> tuple[list[int], list[int]]:
    if scenario.cache_bytes is not None:
        return [scenario.cache_bytes] * len(stages), [scenario.cache_bytes] * len(stages)
    return [int(s.available.low or 0) for s in stages], [int(s.available.high or 0) for s in stages]


def _account(
    scenario: Scenario, settled: Settled, least: KvPlan | str, most: KvPlan | str, pools: tuple[list[int], list[int]]
) -> Account:
    found: dict[str, Quantity] = {}
    missing: dict[str, Missing] = {}
    given = "gpu_memory_utilization" not in settled.defaulted
    found["gpu_memory_utilization"] = Quantity(
        "gpu_memory_utilization", Interval.exactly(settled.utilization), "1", "config" if given else "default"
    )
    if isinstance(most, str):
        for name in ("kv_pool_memory", "bytes_per_block", "num_blocks", "kv_cache_bytes", "kv_cache_tokens"):
            missing[name] = Missing(name, most)
        return Account(found, missing)
    stage = most.ranks[most.binding_rank].stage
    least_stage = stage if isinstance(least, str) else least.ranks[least.binding_rank].stage
    exact = scenario.cache_bytes is not None
    pool = Interval(pools[0][least_stage], pools[1][stage])
    found["kv_pool_memory"] = Quantity("kv_pool_memory", pool, "B", "config" if exact else "modelled")
    for name, unit in (("num_blocks", "blocks"), ("kv_cache_tokens", "tokens"), ("max_concurrency", "1")):
        high = getattr(most, name)
        low = 0 if isinstance(least, str) else getattr(least, name)
        if isinstance(high, NotStated):
            missing[name] = Missing(name, high.reason)
            continue
        found[name] = Quantity(
            name, Interval(low, high), unit, "config" if exact else "modelled", (), ("kv_pool_memory",)
        )
    _add_exact(found, missing, least, most)
    return Account(found, missing)


def _add_exact(found: dict[str, Quantity], missing: dict[str, Missing], least: KvPlan | str, most: KvPlan) -> None:
    """Tell what follows from the config alone, whatever M is."""
    low = most if isinstance(least, str) else least
    block = Interval(min(low.bytes_per_block, most.bytes_per_block), max(low.bytes_per_block, most.bytes_per_block))
    found["bytes_per_block"] = Quantity("bytes_per_block", block, "B", "config")
    blocks = found.get("num_blocks")
    if blocks is not None and blocks.interval.low is not None and blocks.interval.high is not None:
        size = Interval(blocks.interval.low * low.bytes_per_block, blocks.interval.high * most.bytes_per_block)
        found["kv_cache_bytes"] = Quantity(
            "kv_cache_bytes", size, "B", blocks.origin, (), ("num_blocks", "bytes_per_block")
        )
    if isinstance(most.block_size, NotStated):
        missing["block_size"] = Missing("block_size", most.block_size.reason)
    else:
        found["block_size"] = Quantity("block_size", Interval.exactly(most.block_size), "tokens", "config")
    length = Interval(min(low.max_model_len, most.max_model_len), max(low.max_model_len, most.max_model_len))
    found["max_model_len"] = Quantity("max_model_len", length, "tokens", "config" if length.is_point else "modelled")
