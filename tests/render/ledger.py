"""The exact ledger of a Truth, under the names the product reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.render.parts import Failure, Rank, Scope

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.render.truth import Truth

Value = int | float


def rank_terms(truth: Truth, rank: Rank) -> dict[str, Value]:
    """One rank's quantities, as far as the start-up got."""
    got = truth.reached
    terms: dict[str, Value] = {"total_memory": rank.total_memory, "initial_free_memory": rank.initial_free_memory}
    if truth.since("0.32.0"):
        terms["external_weight_memory"] = rank.external_weight_memory
    if truth.failure is Failure.EXTERNAL_ABOVE_DESIRED:
        return terms
    terms["requested_memory"] = truth.requested(rank)
    if got.load:
        terms["model_memory"] = rank.model_memory
    if got.profile:
        terms |= {} if truth.profiles_nothing else profiled_terms(truth, rank)
        terms["bytes_per_block"] = rank.bytes_per_block
    if got.capture and not truth.enforce_eager:
        terms["cudagraph_memory_actual"] = rank.cudagraph_actual
    return terms


def profiled_terms(truth: Truth, rank: Rank) -> dict[str, Value]:
    """What profiling measured and what followed from it."""
    terms: dict[str, Value] = {
        "torch_peak_increase": rank.torch_peak_increase,
        "total_consumed": truth.consumed(rank),
        "transient_peak_headroom": truth.headroom(rank),
        "non_kv_cache_memory": truth.non_kv(rank),
        "cudagraph_memory_applied": truth.graphs_applied(rank),
        "available_kv_cache_memory": truth.available(rank),
    }
    if not truth.by_consumption:
        terms["non_torch_increase"] = truth.non_torch(rank)
    if truth.estimates_graphs:
        terms["cudagraph_memory_estimate"] = truth.graph_estimate(rank)
    return terms


def engine_terms(truth: Truth, dp: int) -> dict[str, Value]:
    """One engine's quantities, as far as the start-up got."""
    terms: dict[str, Value] = {"gpu_memory_utilization": truth.gpu_memory_utilization}
    if not truth.auto_fit:
        terms["max_model_len"] = truth.max_model_len
    if not truth.reached.profile:
        return terms
    terms["block_size"] = truth.block_size
    if truth.max_model_len <= 0:
        return terms
    capacity = truth.capacity(dp)
    terms["kv_pool_memory"] = capacity.pool
    terms["bytes_per_block"] = capacity.bytes_per_block
    if truth.failure is Failure.NO_KV_MEMORY:
        return terms
    used = capacity.num_blocks * capacity.bytes_per_block
    return terms | {
        "max_model_len": truth.max_model_len,
        "num_blocks": capacity.num_blocks,
        "kv_cache_bytes": used,
        "unused_kv_memory": capacity.pool - used,
        "kv_cache_tokens": capacity.tokens,
        "max_concurrency": capacity.concurrency,
    }


def per_worker_terms(truth: Truth, index: int) -> dict[str, Value]:
    """What the engine printed once per worker before the minimum: blocks in 0.7.3, tokens up to 0.11.0 (V1)."""
    if truth.v0 or not truth.reached.plan or truth.since("0.11.1"):
        return {}
    own = truth.overridden(truth.own_blocks(index))
    return {"kv_cache_tokens": truth.tokens(own)} if truth.since("0.8.0") else {"num_blocks": own}


def expected(truth: Truth) -> dict[tuple[Scope, str], Value]:
    """Every quantity by scope and name."""
    found: dict[tuple[Scope, str], Value] = {}
    for index, rank in enumerate(truth.ranks):
        terms = rank_terms(truth, rank) | per_worker_terms(truth, index)
        found |= {(truth.scope(index), name): value for name, value in terms.items()}
    for dp in range(truth.dp):
        found |= {(Scope(dp), name): value for name, value in engine_terms(truth, dp).items()}
    return found


def as_json(truths: Iterable[Truth]) -> dict[str, Any]:
    """The ledger file beside a sample: the shape of a report, each quantity one exact number."""
    return {"schema": "kvforensics.truth/1", "startups": [_startup(truth) for truth in truths]}


def _startup(truth: Truth) -> dict[str, Any]:
    return {
        "engine": "vllm",
        "version": truth.version,
        "generation": truth.engine,
        "outcome": truth.outcome,
        "failure": truth.failure.value,
        "config": {
            "model": truth.model,
            "dtype": truth.dtype,
            "tensor_parallel_size": truth.tp,
            "pipeline_parallel_size": truth.pp,
            "data_parallel_size": truth.dp,
            "decode_context_parallel_size": truth.dcp,
            "enforce_eager": truth.enforce_eager,
            "max_model_len": truth.full_model_len,
        },
        "engines": [_engine(truth, dp) for dp in range(truth.dp)],
    }


def _engine(truth: Truth, dp: int) -> dict[str, Any]:
    ranks = []
    for index in truth.of_engine(dp):
        scope = truth.scope(index)
        terms = rank_terms(truth, truth.ranks[index]) | per_worker_terms(truth, index)
        ranks.append({"pp": scope.pp, "tp": scope.tp, "quantities": dict(sorted(terms.items()))})
    return {"dp": dp, "ranks": ranks, "capacity": {"quantities": dict(sorted(engine_terms(truth, dp).items()))}}
