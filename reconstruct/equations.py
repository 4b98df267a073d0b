"""The equations that tie an engine's figures together, era by era. One formula stands here once."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.divisions import CeilDivision, FloorDivision, Multiple, Product, Quotient, TruncatedProduct
from reconstruct.relations import AtMost, Budget, Either, Minimum, OneOf, Relation, Same, Share, Sum, Term

if TYPE_CHECKING:
    from reconstruct.eras import Era

WORKER_COUNTS = ("kv_cache_tokens", "max_concurrency", "num_blocks")
"""Counts that the engine prints once for each worker up to 0.11.0."""

SUGGESTION_BUFFER = 150 << 20
"""What both suggestions leave free: v1/worker/gpu_worker.py compile_or_warm_up_model, 0.10.2-0.33."""


class Shape(NamedTuple):
    """What decides which equations hold for an engine, beside its era."""

    ranks: tuple[int, ...]
    """The workers that the log shows, drafters left out."""
    pooled: tuple[int, ...]
    """Those of them that surely share this engine's pool."""
    all_ranks: bool
    """Whether these are all the workers there are."""
    stages: int | None
    """Pipeline stages: with one, all ranks share bytes_per_block; None where nothing tells."""
    started: bool
    """Whether the check of free memory was passed."""
    charged: bool | None
    """Whether the graph estimate was charged; None where no line tells."""
    explicit_pool: bool
    """Whether the pool was given in bytes, so that nothing was profiled for it."""
    overridden: bool
    """Whether num_gpu_blocks_override was given."""
    cache_groups: int | None
    """Cache groups of the model; None where the log does not tell."""
    context_parallel: int = 1
    workers_tokens: tuple[int, ...] = ()
    """Ranks that have a token count of their own."""
    all_workers: bool = True
    """Whether every worker has one."""
    whole_length: bool = True
    """Whether a request in a single cache group takes blocks for its whole length: not so in a window."""
    merged_layers: bool = False
    """Whether layers that are unlike by themselves may stand in one cache group: the hybrid manager is off."""
    charges_external: bool = False
    """Whether external weights may be taken from the budget (0.32+)."""


def _budget(era: Era, shape: Shape, r: int) -> list[Relation]:
    rank = partial(Term, rank=r)
    total, requested, free = rank("total_memory"), rank("requested_memory"), rank("initial_free_memory")
    utilization, budget = Term("gpu_memory_utilization"), requested
    found: list[Relation] = []
    if shape.charges_external:
        budget = rank("utilization_budget")
        found.append(Sum("R = T x u - E", requested, (budget,), (rank("external_weight_memory"),)))
    rounded_up = era.budget == "ceil"
    found.append(
        Budget("R = ceil(T x u)" if rounded_up else "R = floor(T x u)", budget, total, utilization, rounded_up)
    )
    found.append(AtMost("F <= T", free, total))
    if shape.started and era.budget != "none" and era.engine == "V1":
        found.append(AtMost("R <= F: the start passed its check", requested, free))
    return found


def _charges(era: Era, shape: Shape, r: int) -> list[Relation]:
    """Give M's equation and what its terms are made of. Source of each: see reconstruct.eras."""
    rank = partial(Term, rank=r)
    requested, free = rank("requested_memory"), rank("initial_free_memory")
    consumed, headroom = rank("total_consumed"), rank("transient_peak_headroom")
    applied, estimate = rank("cudagraph_memory_applied"), rank("cudagraph_memory_estimate")
    found: list[Relation] = [Sum("C + H", rank("non_kv_cache_memory"), (consumed, headroom))]
    if not shape.explicit_pool:
        slack = 0 if era.budget == "ceil" else 1  # int() of a float budget; towards zero, so up where M is negative
        available, taken = rank("available_kv_cache_memory"), rank("non_kv_cache_memory")
        found.append(Sum("M = R - C - H - G", available, (requested,), (consumed, headroom, applied), slack))
        found.append(
            Sum("M = R - (C + H) - G", available, (requested,), (taken, applied), slack)
        )  # bounds the sum alone
    if era.charge == "consumed":
        found.append(Sum("C = F - free after profiling", consumed, (free,), (rank("free_after_profiling"),)))
    elif era.charge in {"terms", "device"}:
        found.append(Sum("C = W + N", consumed, (rank("model_memory"), rank("non_torch_increase"))))
        found.append(Same("H = P", headroom, rank("torch_peak_increase")))
    found.append(
        Sum(
            "free within budget = free after profiling - (F - R)",
            rank("free_within_requested"),
            (rank("free_after_profiling"), requested),
            (free,),
        )
    )
    if era.estimate != "none":
        found.append(Share("G_est = T x (u suggested - u)", estimate, rank("total_memory"), rank("graph_share")))
        if shape.charged is True:
            found.append(Same("G = G_est: the estimate is charged", applied, estimate))
        elif shape.charged is None:
            found.append(Either("G = G_est or 0: the switch is not printed", applied, estimate))
    return found


def _usage(era: Era, r: int) -> list[Relation]:
    """Give what the usage line's figures are sums of."""
    rank = partial(Term, rank=r)
    peak, headroom = rank("peak_activation_memory"), rank("transient_peak_headroom")
    to_requested, to_gpu = rank("kv_cache_memory_to_requested"), rank("kv_cache_memory_to_gpu")
    spent = (
        (rank("total_consumed"),) if era.charge == "consumed" else (rank("model_memory"), rank("non_torch_increase"))
    )
    spent = (*spent, peak, rank("cudagraph_memory_actual"), rank("suggestion_buffer"))
    return [
        Sum("printed peak = H + G", peak, (headroom, rank("cudagraph_memory_applied")))
        if era.peak_has_estimate
        else Same("printed peak = H", peak, headroom),
        Sum(
            "the two --kv-cache-memory suggestions differ by F - R",
            to_gpu,
            (to_requested, rank("initial_free_memory")),
            (rank("requested_memory"),),
        ),
        Sum("suggestion = R - C - peak - G_act - 150 MiB", to_requested, (rank("requested_memory"),), spent),
    ]


def _pools(shape: Shape) -> list[Relation]:
    """Give how M becomes the planner's pool, and the pool blocks."""
    pool, per_block = Term("kv_pool_memory"), Term("bytes_per_block")
    found: list[Relation] = []
    members = []
    for r in shape.pooled:
        rank_pool = Term("rank_pool_memory", r)
        members.append(rank_pool)
        source = Term("explicit_pool" if shape.explicit_pool else "available_kv_cache_memory", r)
        found.append(Sum("M' = M - multimodal reservation", rank_pool, (source,), (Term("mm_ipc_reservation", r),)))
    if shape.stages == 1 and members:
        found.append(Minimum("M' = the smallest rank's", pool, tuple(members), open_ended=not shape.all_ranks))
    elif members and shape.all_ranks:
        found.append(OneOf("M' = the binding rank's", pool, tuple(members)))
    computed = Term("computed_num_blocks")
    found.append(FloorDivision("num_blocks = M' // bytes_per_block", computed, pool, per_block))
    if shape.stages != 1:
        name = "num_blocks <= M' // bytes_per_block of the rank"
        found += [
            FloorDivision(name, computed, Term("rank_pool_memory", r), Term("bytes_per_block", r), whole_pool=False)
            for r in shape.pooled
        ]
    return found


def _capacity(era: Era, shape: Shape) -> list[Relation]:
    """Give how blocks, tokens and concurrency hang together."""
    blocks, size, length = Term("num_blocks"), Term("block_size"), Term("max_model_len")
    per_block, tokens, concurrency = Term("bytes_per_block"), Term("kv_cache_tokens"), Term("max_concurrency")
    kv_bytes = Term("kv_cache_bytes")
    found: list[Relation] = [
        Product("KV = num_blocks x bytes_per_block", kv_bytes, blocks, per_block),
        Sum("unused = M' - KV", Term("unused_kv_memory"), (Term("kv_pool_memory"),), (kv_bytes,)),
    ]
    if not shape.overridden or era.override_ignored:
        found.append(Same("num_blocks is what fits: no override", blocks, Term("computed_num_blocks")))
    found += _tokens(era, shape, tokens, blocks)
    if era.concurrency == "length":
        found.append(Product("tokens = num_blocks x block_size", Term("block_tokens"), blocks, size))
        found.append(Quotient("concurrency = tokens / max_model_len", concurrency, Term("block_tokens"), length))
        stages = shape.stages if era.storable_per_stage else 1
        name = "storable = num_blocks // stages x block_size"
        found += [Multiple(name, Term("storable_tokens"), blocks, size, stages)] if stages else []
    else:
        per_request = Term("blocks_per_request")
        found.append(Quotient("concurrency = num_blocks / blocks of a request", concurrency, blocks, per_request))
        if shape.cache_groups == 1 and shape.whole_length and shape.context_parallel == 1:
            found.append(CeilDivision("blocks of a request = ceil(length / block_size)", per_request, length, size))
            # several stages: another one's bytes, in 0.14-0.16 those of all, are asked for
            if shape.stages == 1 and (era.checks_groups or not shape.merged_layers):
                name = "needed = blocks of a request x bytes_per_block"
                found.append(Product(name, Term("needed_kv_cache_memory"), per_request, per_block))
    checked = Term("checked_kv_cache_memory")
    pool = Term("kv_pool_memory")
    if shape.overridden:
        return found  # the check then sees the blocks asked for
    alone = len(shape.ranks) == 1 and shape.all_ranks
    if not alone and not era.null_block:
        found.append(AtMost("M' <= what the check saw: some worker's", pool, checked))
    elif alone and era.null_block:
        found.append(Sum("checked = M' - one null block", checked, (pool,), (per_block,)))
    elif alone:
        found.append(Same("checked = M'", checked, pool))
    return found


def _tokens(era: Era, shape: Shape, tokens: Term, blocks: Term) -> list[Relation]:
    size = Term("block_size")
    if era.tokens == "blocks":
        return [Multiple("tokens = num_blocks x block_size", tokens, blocks, size, 1)]
    if era.tokens == "groups" and shape.cache_groups is not None:
        name = (
            "tokens = num_blocks x block_size"
            if shape.cache_groups == 1
            else "tokens = num_blocks // groups x block_size"
        )
        return [Multiple(name, tokens, blocks, size, shape.cache_groups, shape.context_parallel)]
    if era.tokens == "requests":
        return [
            TruncatedProduct(
                "tokens = int(concurrency x max_model_len)", tokens, Term("max_concurrency"), Term("max_model_len")
            )
        ]
    return []


def _workers(era: Era, shape: Shape) -> list[Relation]:
    """Give how the counts that the engine prints for each worker become its own: by their minimum."""
    if not shape.workers_tokens:
        return []
    found: list[Relation] = []
    for name in ("kv_cache_tokens", "max_concurrency") if shape.overridden else WORKER_COUNTS:
        members = tuple(Term(name, r) for r in shape.workers_tokens)
        found.append(Minimum(f"{name} = the smallest worker's", Term(name), members, open_ended=not shape.all_workers))
    if era.tokens in {"blocks", "groups"} and shape.cache_groups is not None:
        for r in shape.workers_tokens:
            tokens, blocks = Term("kv_cache_tokens", r), Term("num_blocks", r)
            groups = 1 if era.tokens == "blocks" else shape.cache_groups
            found.append(
                Multiple(
                    "tokens = num_blocks x block_size",
                    tokens,
                    blocks,
                    Term("block_size"),
                    groups,
                    shape.context_parallel,
                )
            )
            if shape.stages == 1 and r in shape.pooled and not shape.overridden:
                pool = Term("rank_pool_memory", r)
                found.append(FloorDivision("num_blocks = M' // bytes_per_block", blocks, pool, Term("bytes_per_block")))
    return found


def equations(era: Era, shape: Shape) -> list[Relation]:
    """Give every relation that holds for an engine of this era and shape."""
    found: list[Relation] = []
    for r in shape.ranks:
        found += _budget(era, shape, r) + _charges(era, shape, r) + _usage(era, r)
    return found + _pools(shape) + _capacity(era, shape) + _workers(era, shape)
