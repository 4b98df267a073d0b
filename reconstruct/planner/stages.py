"""Pipeline stages: which layers and which share of the cache groups each worker has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.planner.capacity import bytes_per_block, group_page_bytes, need_terms
from reconstruct.planner.errors import BadSetting, WouldNotStart
from reconstruct.planner.group import Group
from reconstruct.planner.grouping import cache_groups
from reconstruct.planner.merging import type_text
from reconstruct.planner.pages import as_reported
from reconstruct.planner.spec import FULL, MAMBA, MLA_LIKE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconstruct.planner.capacity import NeedTerm, Planning
    from reconstruct.planner.group import Layers
    from reconstruct.planner.rules import PlannerRules
    from reconstruct.planner.spec import LayerSpec


class Stage(NamedTuple):
    """One pipeline stage as its workers plan it.

    layers: its layers by number; groups: its share of the cache groups; block_bytes: divisor of its memory, 0 without a
    cache; terms: what the start-up check adds up for one request.
    """

    layers: Layers
    groups: list[Group]
    block_bytes: int
    terms: tuple[NeedTerm, ...]


def numbered_layers(stages: Sequence[Sequence[LayerSpec]], rules: PlannerRules) -> list[Layers]:
    """Give the layers numbers over all stages, each as the release's own workers report it."""
    reported: dict[LayerSpec, LayerSpec] = {}
    numbered: list[Layers] = []
    start = 0
    for stage in stages:
        for spec in stage:
            if spec not in reported:
                reported[spec] = as_reported(spec, rules)
        numbered.append({start + i: reported[spec] for i, spec in enumerate(stage)})
        start += len(stage)
    return numbered


def memory_per_rank(available: int | Sequence[int], stages: int, tensor_parallel: int) -> list[int]:
    """Memory of each rank, stage outer and tensor-parallel rank inner.

    Raises BadSetting when the numbers fit neither the ranks nor the stages.
    """
    if isinstance(available, int):
        return [available] * (stages * tensor_parallel)
    if len(available) == stages * tensor_parallel:
        return list(available)
    if len(available) == stages:
        return [memory for memory in available for _ in range(tensor_parallel)]
    raise BadSetting(f"available_memory must be one number, or {stages * tensor_parallel} of them, one a rank")


def least_per_stage(memory: Sequence[int], stages: int, rules: PlannerRules) -> list[int]:
    """Least memory of each stage's ranks; of all ranks in releases whose check takes one figure for all."""
    share = len(memory) // stages
    least = [min(memory[i * share : (i + 1) * share]) for i in range(stages)]
    shared = rules.shared_divisor or rules.need == "first_group_all_stages"
    return [min(least)] * stages if shared else least


def plan_stages(layers: list[Layers], disable_hybrid: bool, planning: Planning) -> list[Stage]:
    """Group the layers, stage by stage (to 0.10.2) or for the whole model, and size each stage's blocks.

    Source: 0.8.4 v1/engine/core.py _initialize_kv_caches; 0.11.0 KU get_kv_cache_configs. Raises WouldNotStart and
    Unsupported as `cache_groups` does.
    """
    rules = planning.rules
    whole: list[Group] = []
    if rules.global_groups:
        everything = {number: spec for own in layers for number, spec in own.items()}
        whole = cache_groups(everything, disable_hybrid, planning.block_outer, rules)
        shares = [_project(whole, own, rules) for own in layers]
    else:
        shares = [cache_groups(own, disable_hybrid, planning.block_outer, rules) for own in layers]
        shares = shares if rules.shared_divisor else _agreed(shares, rules)
    if rules.single_group_context_parallel and len(whole) > 1 and planning.scope.dcp * planning.scope.pcp > 1:
        raise WouldNotStart("this release allows context parallelism with a single cache group only")
    sizes = [bytes_per_block(groups, planning) if groups else 0 for groups in shares]
    if rules.shared_divisor:
        most = max(len(own) for own in layers)
        sizes = [group_page_bytes(groups[0], rules) * most for groups in shares]
    counted = [whole] * len(shares) if rules.need == "first_group_all_stages" else shares
    return [
        Stage(own, groups, size, need_terms(check, tuple(own.values()), planning))
        for own, groups, size, check in zip(layers, shares, sizes, counted, strict=True)
    ]


def _agreed(shares: list[list[Group]], rules: PlannerRules) -> list[list[Group]]:
    """Sort each stage's groups and compare them pairwise, as 0.8.2 to 0.10.2 assert (KU unify_kv_cache_configs)."""
    try:
        shares = [sorted(groups, key=lambda group: _sort_key(group.specs[0], rules)) for groups in shares]
    except TypeError:
        raise WouldNotStart("this release cannot order groups of which some have a window and some have none") from None
    for others in shares[1:]:
        for ours, theirs in zip(shares[0], others, strict=False):
            if ours.specs != theirs.specs:
                raise WouldNotStart("the pipeline stages would form different cache groups; split the layers evenly")
    return shares


def _sort_key(spec: LayerSpec, rules: PlannerRules) -> tuple[object, ...]:
    """Give the order of groups: by `type_id` text, from 0.10.1 by class name and fields."""
    if rules.uniform_by == "type_id":
        return (type_text(spec, rules),)
    if spec.kind == MAMBA:
        return spec.kind, spec.block_size, spec.shapes, spec.dtypes, spec.page_size_padded
    kind = FULL if spec.kind in MLA_LIKE else spec.kind
    geometry = (spec.block_size, spec.num_kv_heads, spec.head_size, spec.dtype, spec.kind in MLA_LIKE)
    return kind, *geometry, spec.sliding_window, spec.attention_chunk_size


def _project(groups: list[Group], own: Layers, rules: PlannerRules) -> list[Group]:
    """Cut the model's groups to one worker's layers.

    Source: 0.11.0 KU get_kv_cache_configs, 0.17.0 _project_kv_cache_groups_to_worker. Before 0.17.0 a mixed group keeps
    the pages of all stages, so its worker plans too few blocks.
    """
    shares = []
    for group in groups:
        kept = [i for i, layer in enumerate(group.layers) if layer in own]
        cut = group.mixed and rules.projects_uniform_type and bool(kept)
        specs = tuple(group.specs[i] for i in kept) if cut else group.specs
        shares.append(Group(tuple(group.layers[i] for i in kept), specs, group.mixed))
    return shares
