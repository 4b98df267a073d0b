"""Groups and bytes to blocks, tokens and concurrency."""

from __future__ import annotations

from collections import Counter
from math import lcm
from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.planner.errors import Unsupported, WouldNotStart
from reconstruct.planner.packing import most_common_count
from reconstruct.planner.pages import block_stride_alignment, cdiv, page_size_bytes, page_sizes, round_up
from reconstruct.planner.requests import blocks_per_request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconstruct.planner.group import Group
    from reconstruct.planner.requests import RequestScope
    from reconstruct.planner.rules import PlannerRules
    from reconstruct.planner.spec import LayerSpec


class Planning(NamedTuple):
    """What every capacity question needs: the release's rules, the request's scope, the layout."""

    rules: PlannerRules
    scope: RequestScope
    block_outer: bool


def group_page_bytes(group: Group, rules: PlannerRules) -> int:
    """Bytes of one block of the group's spec: one layer's page, or all pages of a mixed group."""
    return sum(page_sizes(group.specs, rules))


def group_bytes(group: Group, rules: PlannerRules) -> int:
    """Bytes that one block of the group fills on this worker: the pages of its layers there."""
    return group_page_bytes(group, rules) * (bool(group.layers) if group.mixed else len(group.layers))


def bytes_per_block(groups: Sequence[Group], planning: Planning) -> int:
    """Bytes of one block of the shared pool on one worker: the divisor of its memory.

    Source: KU _get_kv_cache_config_uniform_type (0.8.4), get_kv_cache_config_from_groups (0.11.0),
    _pool_bytes_per_block (0.20.1), _get_kv_cache_bytes_per_block (0.29.0). Raises WouldNotStart for a worker that has
    groups but none of their layers.
    """
    rules = planning.rules
    if rules.packing == "block_outer":
        size = _widest(groups, planning)
    elif len(groups) == 1 and groups[0].mixed:
        size = group_page_bytes(groups[0], rules)
    elif all(group.mixed for group in groups):
        size = _tuple_pool_bytes(groups, rules)
    else:
        size = max(group_bytes(group, rules) for group in groups)
    if size == 0:
        raise WouldNotStart("a pipeline stage holds no cache layer; give every stage at least one attention layer")
    return size


def _widest(groups: Sequence[Group], planning: Planning) -> int:
    rules = planning.rules
    if rules.stride_alignment == "layer" and not planning.block_outer:
        return max(sum(_layer_stride(spec, rules) for spec in group.layer_specs()) for group in groups)
    widest = max(group_bytes(group, rules) for group in groups)
    if rules.stride_alignment == "none":
        return widest
    return round_up(widest, lcm(*(block_stride_alignment(s, rules) for g in groups if g.layers for s in g.specs)))


def _layer_stride(spec: LayerSpec, rules: PlannerRules) -> int:
    return round_up(page_size_bytes(spec, rules), block_stride_alignment(spec, rules))


def _tuple_pool_bytes(groups: Sequence[Group], rules: PlannerRules) -> int:
    """Bytes per block of DeepSeek-V4's groups: page tuples, slots by page size (0.23.0), the widest group (0.27.0)."""
    if rules.tuple_pool == "widest":
        return max(group_bytes(group, rules) for group in groups)
    slots: dict[int, int] = {}
    for group in groups:
        # A group without layers on this worker still lists the whole model's specs.
        for page, count in Counter(page_sizes(group.specs, rules) if group.layers else ()).items():
            slots[page] = max(slots.get(page, 0), count)
    if rules.tuple_pool == "tuples":
        if not slots.keys() <= set(page_sizes(groups[0].specs, rules)):
            # v1/worker/gpu_model_runner.py asserts that every layer has a tensor; only these page sizes get some.
            raise WouldNotStart("a pipeline stage has cache pages of a size that its full MLA layers do not have")
        return _tuple_page_bytes(groups, rules) * max(slots.values(), default=0)
    return sum(page * count for page, count in slots.items())


def _tuple_page_bytes(groups: Sequence[Group], rules: PlannerRules) -> int:
    """One page of each size that the full MLA layers have."""
    return sum(set(page_sizes(groups[0].specs, rules)))


def request_blocks(group: Group, length: int, planning: Planning) -> int:
    """Blocks that one request of `length` tokens takes from the group's table."""
    distinct = dict.fromkeys(group.specs)
    return max(blocks_per_request(spec, length, planning.scope, planning.rules) for spec in distinct)


class NeedTerm(NamedTuple):
    """Part of a request's need: bytes per block of all groups alike, and the layers whose longest table counts."""

    block_bytes: int
    specs: tuple[LayerSpec, ...]


def need_terms(groups: Sequence[Group], own: Sequence[LayerSpec], planning: Planning) -> tuple[NeedTerm, ...]:
    """List what the start-up check adds up for one request on one worker.

    `own`: the worker's layers as reported, before grouping. Source: KU check_enough_kv_cache_memory to 0.13.0, then
    _max_memory_usage_bytes_from_groups (0.14.0: the blocks of group 0 only; 0.19.0: of all groups; 0.29.0: times the
    bytes per block).
    """
    rules = planning.rules
    if rules.need == "layers":
        return _layer_terms(own, rules)
    if not groups:
        return ()
    if rules.need == "blocks":
        block_bytes = bytes_per_block(groups, planning)
    elif len(groups) == 1 and groups[0].mixed:
        return _layer_terms(groups[0].specs, rules)
    elif all(group.mixed for group in groups):
        tuples = max(most_common_count(group.specs, rules) for group in groups)
        block_bytes = _tuple_page_bytes(groups, rules) * tuples
    else:
        block_bytes = bytes_per_block(groups, planning)
        groups = groups[:1] if rules.need.startswith("first_group") else groups
    tables = Counter(tuple(dict.fromkeys(group.specs)) for group in groups)
    return tuple(NeedTerm(block_bytes * count, specs) for specs, count in tables.items())


def _layer_terms(specs: Sequence[LayerSpec], rules: PlannerRules) -> tuple[NeedTerm, ...]:
    """Each layer's own blocks times its own page (KU max_memory_usage_bytes)."""
    counts = Counter(specs)
    return tuple(NeedTerm(count * page_size_bytes(spec, rules), (spec,)) for spec, count in counts.items())


def request_bytes(terms: Sequence[NeedTerm], length: int, planning: Planning) -> int:
    """Bytes that the start-up check asks for one request of `length` tokens."""
    return sum(
        term.block_bytes * max(blocks_per_request(spec, length, planning.scope, planning.rules) for spec in term.specs)
        for term in terms
    )


def longest_fitting(terms: Sequence[NeedTerm], memory: int, limit: int, planning: Planning) -> int:
    """Length of the longest request up to `limit` whose need fits, 0 for none (KU estimate_max_model_len)."""
    if request_bytes(terms, 1, planning) > memory:
        return 0
    low, high = 1, limit
    while low < high:
        middle = (low + high + 1) // 2
        if request_bytes(terms, middle, planning) <= memory:
            low = middle
        else:
            high = middle - 1
    return low


def total_request_blocks(groups: Sequence[Group], length: int, planning: Planning) -> int:
    """Blocks of one request over all groups, as the concurrency line counts them.

    Source: 0.9.1 KU get_max_concurrency_for_kv_cache_config: bytes of all groups over the page of the first one; from
    0.27.0 a plain sum. Raises Unsupported for a model whose requests take no blocks.
    """
    blocks = [request_blocks(group, length, planning) for group in groups]
    if planning.rules.concurrency == "first_page":
        pages = [group_page_bytes(group, planning.rules) for group in groups]
        total = cdiv(sum(page * count for page, count in zip(pages, blocks, strict=True)), pages[0])
    else:
        total = sum(blocks)
    if total == 0:
        raise Unsupported("a request of this model takes no cache blocks, so there is no concurrency to state")
    return total


def max_concurrency(blocks: int, groups: Sequence[Group], length: int, cache_block: int, planning: Planning) -> float:
    """Count the requests of `length` tokens that fit at once, as the log states it.

    Source: 0.7.3 KU: tokens over length; 0.9.1 get_max_concurrency_for_kv_cache_config: blocks over a request's blocks.
    """
    if planning.rules.concurrency == "tokens":
        return blocks * cache_block / length
    return blocks / total_request_blocks(groups, length, planning)


def kv_cache_tokens(blocks: int, groups: Sequence[Group], length: int, cache_block: int, planning: Planning) -> int:
    """Tokens of the line `GPU KV cache size` (0.7.3, which has no such line: blocks times block size).

    Source: KU _get_kv_cache_config_uniform_type (0.8.0), _get_kv_cache_config_uniform_page_size (0.9.1, 0.9.2),
    get_kv_cache_config_from_groups (0.11.0), _report_kv_cache_config (0.20.1: concurrency times length).
    """
    rules, scope = planning.rules, planning.scope
    if rules.tokens == "concurrency":
        return int(max_concurrency(blocks, groups, length, cache_block, planning) * length)
    smallest = min(group.block_size for group in groups)
    by_group = rules.tokens == "group_block" or (rules.tokens == "hybrid_group_block" and len(groups) > 1)
    tokens = blocks // len(groups) * (smallest if by_group else cache_block)
    times = {"dcp": scope.dcp, "dcp_pcp": scope.dcp * scope.pcp, "dcp_if_uniform": scope.dcp if len(groups) == 1 else 1}
    return tokens * times.get(rules.tokens_times, 1)
