"""The V0 engine's cache: one uniform cache of all attention layers (0.2 to 0.10, before and beside V1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.planner.errors import Unsupported, WouldNotStart
from reconstruct.planner.pages import cdiv, round_up
from reconstruct.planner.result import GroupPlan, KvPlan, RankPlan
from reconstruct.planner.rules import release_of
from reconstruct.planner.spec import CROSS, MAMBA, MLA_LIKE, dtype_size
from reconstruct.planner.stages import memory_per_rank

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconstruct.planner.launch import Launch
    from reconstruct.planner.spec import LayerSpec


class V0Rules(NamedTuple):
    """What changed within V0.

    latent_mla: MLA layers store one vector (before: keys and values as in any model). aligned_mla: an MLA entry is
    rounded up to 256 bytes. blocks_shared_by_stages: the length check splits the blocks among pipeline stages.
    """

    latent_mla: bool = False
    aligned_mla: bool = False
    blocks_shared_by_stages: bool = False


_ROWS: tuple[tuple[str, str, V0Rules], ...] = (
    ("0.2.0", "worker/cache_engine.py get_cache_block_size", V0Rules()),
    ("0.7.1", "worker/cache_engine.py get_cache_block_size, model_config.use_mla", V0Rules(latent_mla=True)),
    ("0.7.2", "worker/cache_engine.py _align_cache", V0Rules(latent_mla=True, aligned_mla=True)),
    (
        "0.8.0",
        "worker/cache_engine.py; worker/worker.py raise_if_cache_size_invalid",
        V0Rules(latent_mla=True, blocks_shared_by_stages=True),
    ),
)
_LAST_MINOR = (0, 10)


def v0_rules(version: str) -> V0Rules:
    """V0's rules for a release. Raises Unsupported outside 0.2 to 0.10."""
    release = release_of(version)
    known = [rules for first, _source, rules in _ROWS if release_of(first) <= release]
    if not known or release[:2] > _LAST_MINOR:
        raise Unsupported(f"vLLM {version} has no V0 engine that is planned here (0.2 to 0.10 have)")
    return known[-1]


def cache_block_bytes(layers: int, layer: LayerSpec, rules: V0Rules) -> int:
    """Bytes of one block over all attention layers of a rank (worker/cache_engine.py get_cache_block_size).

    `layer` gives heads, head size, dtype and block size; values are as wide as keys.
    """
    size = dtype_size(layer.dtype)
    entry = layer.num_kv_heads * layer.head_size
    vectors = 2
    if layer.kind in MLA_LIKE and rules.latent_mla:
        vectors = 1
        entry = round_up(entry, 256 // size) if rules.aligned_mla else entry
    return layers * layer.block_size * entry * vectors * size


def num_cpu_blocks(swap_space_bytes: int, block_bytes: int) -> int:
    """Blocks of the swap space in host memory (worker/worker.py determine_num_available_blocks)."""
    return max(swap_space_bytes // block_bytes, 0)


def plan_v0(stages: Sequence[Sequence[LayerSpec]], launch: Launch, available_memory: int | Sequence[int]) -> KvPlan:
    """Plan V0's cache: each rank divides its memory by its own block, the fewest blocks win.

    Source: worker/worker.py determine_num_available_blocks, raise_if_cache_size_invalid; executor_base.py
    initialize_cache for the concurrency. Windows make no difference; mamba layers have no blocks. Raises WouldNotStart
    and Unsupported as `plan_from_layers` does.
    """
    rules, length = v0_rules(launch.engine_version), launch.max_model_len
    if length is None or length < 1 or launch.autofit:
        raise Unsupported("V0 needs max_model_len: layer specs do not say how long the model's requests may be")
    attention = [[spec for spec in stage if spec.kind != MAMBA] for stage in stages]
    distinct = {_geometry(spec) for stage in attention for spec in stage}
    if len(distinct) != 1 or any(spec.kind == CROSS for stage in attention for spec in stage):
        raise Unsupported("V0 plans one geometry for all attention layers; these layers have none or several")
    layer = next(spec for stage in attention for spec in stage)
    sizes = [cache_block_bytes(len(stage), layer, rules) for stage in attention]
    memory = memory_per_rank(available_memory, len(stages), launch.tensor_parallel_size)
    share = len(memory) // len(stages)
    if not all(sizes):
        raise WouldNotStart("a pipeline stage holds no attention layer, and V0 gives it no blocks")
    blocks = [max(own // sizes[rank // share], 0) for rank, own in enumerate(memory)]
    num_blocks = launch.num_gpu_blocks_override or min(blocks)
    shares = len(stages) if rules.blocks_shared_by_stages else 1
    _check_blocks(num_blocks, length, layer.block_size, shares)
    ranks = _ranks(_groups(attention, layer, sizes, length), memory, blocks, sizes, num_blocks)
    return _as_plan(launch, layer.block_size, length, num_blocks, shares, ranks)


def _geometry(spec: LayerSpec) -> tuple[object, ...]:
    return spec.block_size, spec.num_kv_heads, spec.head_size, spec.dtype, spec.kind in MLA_LIKE


def _check_blocks(num_blocks: int, length: int, block_size: int, stages: int) -> None:
    if num_blocks <= 0:
        raise WouldNotStart("no memory is left for cache blocks; raise gpu_memory_utilization")
    held = block_size * (num_blocks // stages)
    if length > held:
        raise WouldNotStart(f"a request of {length} tokens does not fit into the {held} tokens of the cache")


def _ranks(
    groups: list[GroupPlan], memory: list[int], blocks: list[int], sizes: list[int], num_blocks: int
) -> tuple[RankPlan, ...]:
    stage_of = [rank // (len(memory) // len(sizes)) for rank in range(len(memory))]
    return tuple(
        RankPlan(rank, stage, own, sizes[stage], blocks[rank], own - num_blocks * sizes[stage], (groups[stage],))
        for rank, (stage, own) in enumerate(zip(stage_of, memory, strict=True))
    )


def _groups(attention: list[list[LayerSpec]], layer: LayerSpec, sizes: list[int], length: int) -> list[GroupPlan]:
    """Each stage's single group; layers are counted over all stages."""
    groups, start = [], 0
    for stage, size in zip(attention, sizes, strict=True):
        numbers = tuple(range(start, start + len(stage)))
        pages = (size // max(len(stage), 1),) * len(stage)
        needed = cdiv(length, layer.block_size)
        groups.append(GroupPlan(layer.kind, numbers, pages, layer.block_size, 0, 0, needed, grows=True))
        start += len(stage)
    return groups


def _as_plan(
    launch: Launch, block_size: int, length: int, num_blocks: int, shares: int, ranks: tuple[RankPlan, ...]
) -> KvPlan:
    """`shares`: the stages that share the blocks of a request."""
    bound = min(ranks, key=lambda rank: rank.blocks)
    return KvPlan(
        engine_version=launch.engine_version,
        bytes_per_block=bound.bytes_per_block,
        num_blocks=num_blocks,
        kv_cache_tokens=num_blocks * block_size,
        max_concurrency=num_blocks * block_size / length,
        max_model_len=length,
        block_size=block_size,
        request_fixed_bytes=0,
        request_bytes_per_token=bound.bytes_per_block / block_size,
        longest_request=num_blocks * block_size,
        least_memory=cdiv(length, block_size) * shares * bound.bytes_per_block,
        binding_rank=bound.rank,
        ranks=ranks,
    )
