"""How many blocks one request takes from a layer's block table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.planner.errors import Unsupported, WouldNotStart
from reconstruct.planner.pages import cdiv, is_full
from reconstruct.planner.spec import CHUNKED, CIRCULAR, CROSS, MAMBA, SLIDING_LIKE

if TYPE_CHECKING:
    from reconstruct.planner.launch import Launch
    from reconstruct.planner.rules import PlannerRules
    from reconstruct.planner.spec import LayerSpec


class RequestScope(NamedTuple):
    """What the launch says about a request, apart from its length.

    in_flight_tokens: tokens scheduled but not settled, least and most (they differ only where the model runner is not
    known). dcp, pcp: context-parallel sizes. encoder_tokens: length of an encoder's output, None when the release asks
    the model for it. mamba_cache_mode: None leaves it to each spec.
    """

    in_flight_tokens: tuple[int, int]
    dcp: int
    pcp: int
    encoder_tokens: int | None
    mamba_cache_mode: str | None


def request_scope(launch: Launch, rules: PlannerRules) -> RequestScope:
    """Read the scope off the launch settings.

    Source of the concurrent batches: 0.26.0 config/vllm.py max_concurrent_batches, max_in_flight_tokens; asynchronous
    scheduling is on unless the launch says otherwise.
    """
    encoder = launch.max_num_encoder_input_tokens
    if encoder is None and rules.encoder_length == "scheduler":
        encoder = launch.max_num_batched_tokens
    least, most = _concurrent_batches(launch, rules)
    return RequestScope(
        in_flight_tokens=(least * launch.max_num_batched_tokens, most * launch.max_num_batched_tokens),
        dcp=launch.decode_context_parallel_size,
        pcp=launch.prefill_context_parallel_size,
        encoder_tokens=encoder,
        mamba_cache_mode=launch.mamba_cache_mode,
    )


def _concurrent_batches(launch: Launch, rules: PlannerRules) -> tuple[int, int]:
    stages = launch.pipeline_parallel_size
    if rules.in_flight == "batch":
        return 1, 1
    if launch.async_scheduling is False:
        return stages, stages
    if stages == 1:
        return 2, 2
    if rules.runner == "by_model":
        return stages, stages + 1
    return stages + 1, stages + 1


def blocks_per_request(spec: LayerSpec, length: int, scope: RequestScope, rules: PlannerRules) -> int:
    """Blocks that a request of `length` tokens holds at most in one layer's table.

    Source: v1/kv_cache_interface.py `max_memory_usage_bytes` of each kind, divided by the page. Raises WouldNotStart
    where the engine asserts, Unsupported where the length is not known.
    """
    if is_full(spec):
        return cdiv(cdiv(length, length_share(spec, scope, rules)), spec.block_size)
    if spec.kind in SLIDING_LIKE or spec.kind == CHUNKED:
        least, most = (_local_blocks(spec, length, tokens, scope, rules) for tokens in scope.in_flight_tokens)
        if least != most:
            raise Unsupported("the model runner under pipeline parallelism is not known, and the window depends on it")
        return least
    if spec.kind == MAMBA:
        return _state_blocks(spec, length, scope, rules)
    if spec.kind == CIRCULAR:
        return 1
    if spec.kind == CROSS:
        if scope.encoder_tokens is None:
            raise Unsupported("this release takes the encoder length from the model; give max_num_encoder_input_tokens")
        return cdiv(scope.encoder_tokens, spec.block_size)
    raise Unsupported(f"the blocks of a request in a {spec.kind} are not known")


def length_share(spec: LayerSpec, scope: RequestScope, rules: PlannerRules) -> int:
    """How many ranks share a request's tokens."""
    if rules.length_split == "dcp_if_sharded":
        return scope.dcp if spec.dcp_sharded else 1
    if rules.length_split == "dcp_pcp":
        return scope.dcp * scope.pcp
    return scope.dcp if rules.length_split == "dcp" else 1


def _local_blocks(spec: LayerSpec, length: int, in_flight: int, scope: RequestScope, rules: PlannerRules) -> int:
    if spec.kind == CHUNKED:
        return cdiv(min((spec.attention_chunk_size or 0) + in_flight, length), spec.block_size)
    if scope.dcp > 1 and (rules.length_split != "dcp_if_sharded" or spec.dcp_sharded):
        raise WouldNotStart("decode context parallelism does not work with sliding windows in this release")
    window = (spec.sliding_window or 0) - 1 + spec.extra_retained_tokens
    # One more block: the window need not start at a block's first token.
    return cdiv(min(window + in_flight, length), spec.block_size) + 1


def _state_blocks(spec: LayerSpec, length: int, scope: RequestScope, rules: PlannerRules) -> int:
    if rules.mamba_blocks == "one":
        return 1
    if rules.mamba_blocks == "length":
        return cdiv(length, spec.block_size)
    mode = scope.mamba_cache_mode or spec.mamba_cache_mode
    speculative = spec.num_speculative_blocks
    if mode == "all":
        return cdiv(length, spec.block_size) + (speculative if rules.mamba_all_speculates else 0)
    if mode == "align":
        return 2 + speculative + spec.num_prefill_checkpoint_blocks
    return 1 + speculative


def grows_with_length(spec: LayerSpec, scope: RequestScope, rules: PlannerRules) -> bool:
    """Whether a longer request keeps taking more blocks from this layer's table."""
    if spec.kind == MAMBA:
        mode = scope.mamba_cache_mode or spec.mamba_cache_mode
        return rules.mamba_blocks == "length" or (rules.mamba_blocks == "mode" and mode == "all")
    return is_full(spec)
