"""Layer specs and memory to a plan, step by step as the engine's core does at start-up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.planner.capacity import (
    Planning,
    kv_cache_tokens,
    longest_fitting,
    max_concurrency,
    need_terms,
    request_bytes,
)
from reconstruct.planner.errors import Unsupported, WouldNotStart
from reconstruct.planner.requests import request_scope
from reconstruct.planner.result import KvPlan, NotStated, RankPlan
from reconstruct.planner.rules import precedes_v1, rules_for
from reconstruct.planner.spec import CIRCULAR, SLIDING_MLA
from reconstruct.planner.stages import least_per_stage, memory_per_rank, numbered_layers, plan_stages
from reconstruct.planner.summary import final_block_size, group_plans, request_parts
from reconstruct.planner.v0 import plan_v0, v0_rules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconstruct.planner.capacity import NeedTerm
    from reconstruct.planner.launch import Launch
    from reconstruct.planner.rules import PlannerRules
    from reconstruct.planner.spec import LayerSpec
    from reconstruct.planner.stages import Stage
    from reconstruct.planner.v0 import V0Rules

_LONGEST_REQUEST = 1 << 40

_Checks = list[tuple[tuple["NeedTerm", ...], int]]
"""For each worker what one request needs, and the memory that it must fit into."""


class _Settled(NamedTuple):
    """All that the engine decides: per stage the groups and checks, per rank memory and blocks, and the length."""

    stages: list[Stage]
    checks: _Checks
    memory: list[int]
    blocks: list[int]
    num_blocks: int
    length: int


def plan_from_layers(
    stages: Sequence[Sequence[LayerSpec]], launch: Launch, available_memory: int | Sequence[int]
) -> KvPlan:
    """Plan the cache from given layer specs.

    `stages`: the layers of each pipeline stage, in registration order. `available_memory`: bytes, one number for all
    ranks, one per stage, or one per rank (stage outer, tensor-parallel rank inner). `launch.max_model_len` must be
    given: the layers do not say what the model supports. Raises WouldNotStart where the engine refuses, Unsupported
    where the answer is not known, BadSetting for numbers that make no sense.
    """
    if _is_v0(launch):
        return plan_v0(stages, launch, available_memory)
    rules = rules_for(launch.engine_version)
    length = _checked_length(launch, rules)
    planning = Planning(rules, request_scope(launch, rules), _is_block_outer(stages, launch, rules))
    layers = numbered_layers(stages, rules)
    memory = memory_per_rank(available_memory, len(stages), launch.tensor_parallel_size)
    if rules.need == "layers":
        # Older releases ask for a request's memory before they look at the kinds of layers.
        own = [need_terms([], tuple(stage.values()), planning) for stage in layers]
        _check_memory(list(zip(own, least_per_stage(memory, len(layers), rules), strict=True)), length, planning)
    planned = plan_stages(layers, launch.disable_hybrid_kv_cache_manager, planning)
    return _result(_settle(planned, memory, length, launch, planning), launch, planning)


def rules_of(launch: Launch) -> PlannerRules | V0Rules:
    """Give the arithmetic of a launch's release and engine: equal rules plan alike. Raises Unsupported."""
    return v0_rules(launch.engine_version) if _is_v0(launch) else rules_for(launch.engine_version)


def _is_v0(launch: Launch) -> bool:
    if launch.use_v1 is not None:
        return not launch.use_v1
    return precedes_v1(launch.engine_version)


def _checked_length(launch: Launch, rules: PlannerRules) -> int:
    if launch.max_model_len is None or launch.max_model_len < 1:
        raise Unsupported("max_model_len is needed: layer specs do not say how long the model's requests may be")
    if launch.autofit and not rules.auto_fit:
        raise Unsupported(f"vLLM {launch.engine_version} cannot fit max_model_len to the memory (0.14.0 on can)")
    if launch.decode_context_parallel_size > 1 and rules.length_split == "none":
        raise Unsupported(f"vLLM {launch.engine_version} has no decode context parallelism (0.10.2 on has)")
    return launch.max_model_len


def _is_block_outer(stages: Sequence[Sequence[LayerSpec]], launch: Launch, rules: PlannerRules) -> bool:
    """Whether a block's layers lie side by side: as asked, else where an attention backend takes no other layout.

    Source: 0.29.0 v1/attention/backends/utils.py resolve_kv_cache_layout; only DeepSeek-V4's and the ring-buffer
    backends insist.
    """
    if rules.packing != "block_outer":
        return False
    if launch.kv_cache_layout is not None:
        return launch.kv_cache_layout.upper().startswith("B")
    return any(spec.kind in {SLIDING_MLA, CIRCULAR} for stage in stages for spec in dict.fromkeys(stage))


def _check_memory(checks: _Checks, length: int, planning: Planning) -> None:
    """Refuse a start that cannot hold one request (KU check_enough_kv_cache_memory)."""
    for terms, memory in checks:
        if terms and memory <= 0:
            raise WouldNotStart("no memory is left for cache blocks; raise gpu_memory_utilization")
        if (need := request_bytes(terms, length, planning)) > memory:
            longest = longest_fitting(terms, memory, length, planning)
            raise WouldNotStart(
                f"one request of {length} tokens needs {need} bytes of cache and {memory} are available: "
                f"the longest that fits has {longest} tokens; lower max_model_len or raise gpu_memory_utilization"
            )


def _settle(stages: list[Stage], memory: list[int], length: int, launch: Launch, planning: Planning) -> _Settled:
    """Apply the override, fit the length, check the memory and divide it.

    Source: KU get_kv_cache_configs; from 0.20.1 an override redefines the memory, from 0.29.0 the check leaves out the
    null block that the block pool keeps.
    """
    rules, share, override = planning.rules, len(memory) // len(stages), launch.num_gpu_blocks_override
    stage_of = [stages[rank // share] for rank in range(len(memory))]
    usable = memory
    if override is not None and rules.override == "memory":
        usable = [override * s.block_bytes if s.groups else own for s, own in zip(stage_of, memory, strict=True)]
    free = least_per_stage(usable, len(stages), rules)
    if rules.reserves_null_block:
        free = [own - stage.block_bytes for own, stage in zip(free, stages, strict=True)]
    checks = [(stage.terms, own) for stage, own in zip(stages, free, strict=True)]
    if launch.autofit:
        length = _fitted(checks, length, planning)
    if rules.need != "layers":
        _check_memory(checks, length, planning)
    divided = [min(memory)] * len(memory) if rules.shared_divisor else memory
    blocks = [own // stage.block_bytes if stage.groups else 1 for stage, own in zip(stage_of, divided, strict=True)]
    num_blocks = min(blocks)
    if rules.shared_divisor and override is None and len(set(blocks)) > 1:
        raise WouldNotStart("this release needs the same number of blocks on every pipeline stage")
    if override is not None and rules.override != "ignored" and any(stage.groups for stage in stages):
        num_blocks = override
    return _Settled(stages, checks, memory, blocks, num_blocks, length)


def _fitted(checks: _Checks, length: int, planning: Planning) -> int:
    """Length of the longest request that fits on every worker, at most `length` (0.14.0 KU _auto_fit_max_model_len)."""
    longest = min((longest_fitting(terms, own, length, planning) for terms, own in checks if terms), default=length)
    if longest <= 0:
        raise WouldNotStart("not even one token fits into the cache memory; raise gpu_memory_utilization")
    return longest


def _result(settled: _Settled, launch: Launch, planning: Planning) -> KvPlan:
    stages, blocks, num_blocks = settled.stages, settled.blocks, settled.num_blocks
    share = len(blocks) // len(stages)
    binding = blocks.index(min(blocks))
    bound = stages[binding // share]
    shown = [group_plans(stage, settled.length, planning) for stage in stages]
    fixed, per_token = request_parts(bound, settled.length, planning)
    tokens, concurrency = _capacity(settled, launch, planning)
    return KvPlan(
        engine_version=launch.engine_version,
        bytes_per_block=bound.block_bytes,
        num_blocks=num_blocks,
        kv_cache_tokens=tokens,
        max_concurrency=concurrency,
        max_model_len=settled.length,
        block_size=final_block_size(stages[0].groups, launch.block_size, planning),
        request_fixed_bytes=fixed,
        request_bytes_per_token=per_token,
        longest_request=_longest(settled, planning),
        least_memory=_least_memory(bound, settled.length, planning),
        binding_rank=binding,
        ranks=tuple(
            RankPlan(
                rank=rank,
                stage=rank // share,
                available_memory=own,
                bytes_per_block=stages[rank // share].block_bytes,
                blocks=blocks[rank],
                unused_bytes=own - num_blocks * stages[rank // share].block_bytes,
                groups=shown[rank // share],
            )
            for rank, own in enumerate(settled.memory)
        ),
    )


def _least_memory(stage: Stage, length: int, planning: Planning) -> int:
    """Bytes at which the check of one request passes, the null block with them where it is left out (`_settle`)."""
    kept = stage.block_bytes if planning.rules.reserves_null_block else 0
    return kept + request_bytes(stage.terms, length, planning)


def _capacity(settled: _Settled, launch: Launch, planning: Planning) -> tuple[int | NotStated, float | NotStated]:
    """Tokens and concurrency as the log states them: the first worker's, before 0.11.0 the fewest tokens of any.

    Source: 0.9.1 KU, where each worker logs its own blocks before the least is taken; v1/engine/core.py, where the
    scheduler takes the first worker's groups.
    """
    stages, share = settled.stages, len(settled.blocks) // len(settled.stages)
    cached = [(i, stage) for i, stage in enumerate(stages) if stage.groups]
    if not cached:
        reason = NotStated("the model has no cache layers: one block is planned and no capacity is logged")
        return reason, reason
    rules, length, first = planning.rules, settled.length, cached[0][1]
    cache_block = launch.block_size or min(group.block_size for group in first.groups)
    concurrency = max_concurrency(settled.num_blocks, first.groups, length, cache_block, planning)
    if rules.global_groups or rules.shared_divisor:
        return kv_cache_tokens(settled.num_blocks, first.groups, length, cache_block, planning), concurrency
    own_blocks = [min(settled.blocks[i * share : (i + 1) * share]) for i in range(len(stages))]
    if launch.num_gpu_blocks_override is not None and rules.override != "ignored":
        own_blocks = [settled.num_blocks] * len(stages)
    tokens = (kv_cache_tokens(own_blocks[i], stage.groups, length, cache_block, planning) for i, stage in cached)
    return min(tokens), concurrency


def _longest(settled: _Settled, planning: Planning) -> int | NotStated:
    checks = dict.fromkeys((terms, own) for terms, own in settled.checks if terms)
    if not checks:
        return NotStated("the model has no cache layers")
    try:
        longest = min(longest_fitting(terms, own, _LONGEST_REQUEST, planning) for terms, own in checks)
    except Unsupported as unknown:
        return NotStated(str(unknown))
    if 0 < longest < _LONGEST_REQUEST:
        return longest
    return NotStated("no cache group grows with the request" if longest else "one request does not fit")
