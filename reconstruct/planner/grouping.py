"""Layers to cache groups: the layers of a group share one block table."""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING

from reconstruct.planner.errors import Unsupported, WouldNotStart
from reconstruct.planner.group import Group, mixed
from reconstruct.planner.merging import WindowsDiffer, are_one_type, are_uniform, mergeable, type_text
from reconstruct.planner.packing import packed_groups, tuple_groups
from reconstruct.planner.pages import cdiv, is_full, page_size_bytes
from reconstruct.planner.promotion import promote
from reconstruct.planner.spec import CHUNKED, HIDDEN, MAMBA, MLA, MLA_LIKE, SLIDING, SLIDING_MLA, dtype_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from reconstruct.planner.group import Layers
    from reconstruct.planner.rules import PlannerRules
    from reconstruct.planner.spec import LayerSpec


class PagesDiffer(WouldNotStart):
    """Page sizes cannot be made equal; the engine raises NotImplementedError."""


def merged(layers: Iterable[int], specs: Layers, rules: PlannerRules) -> Group:
    """One group planned by its first layer's spec (KU create_kv_cache_group_specs, KI `merge`)."""
    chosen = tuple(layers)
    distinct = tuple(dict.fromkeys(specs[layer] for layer in chosen))
    if rules.groups_need_equal_specs and len(distinct) > 1:
        raise WouldNotStart("layers with equal pages but different geometry cannot share a group in this release")
    first = distinct[0]
    if is_full(first):
        window = _only(spec.sliding_window for spec in distinct)
        first = first._replace(
            sliding_window=window, attention_chunk_size=_only(s.attention_chunk_size for s in distinct)
        )
    return Group(chosen, (first,))


def _only(windows: Iterable[int | None]) -> int | None:
    """Give the one window that any full layer of a group has."""
    sizes = {window for window in windows if window is not None}
    if len(sizes) > 1:
        raise WindowsDiffer("all attention layers of one group must have the same window size")
    return sizes.pop() if sizes else None


def cache_groups(specs: Layers, disable_hybrid: bool, block_outer: bool, rules: PlannerRules) -> list[Group]:
    """Split the layers into groups as the release does.

    `block_outer`: the cache layout puts a block's layers side by side. Source: KU get_kv_cache_groups (0.11.0 on),
    get_kv_cache_config (0.8.4-0.10.2), get_kv_cache_configs (0.7.3, 0.8.0). Raises WouldNotStart where the engine
    raises, Unsupported where the outcome depends on something that the specs do not say.
    """
    if specs and (rules.promotes == "always" or (disable_hybrid and rules.promotes == "disabled")):
        specs = dict(zip(specs, promote(tuple(specs.values()), rules), strict=True))
    if not specs:
        if rules.empty_stage:
            return []
        raise WouldNotStart("this release cannot plan a stage without cache layers")
    values = tuple(specs.values())
    distinct = tuple(dict.fromkeys(values))
    if are_uniform(distinct, rules):
        return [merged(specs, specs, rules)]
    if are_one_type(distinct, rules):
        return [mixed(specs)]
    _check_glm_layout(distinct, rules)
    if not rules.hybrid_groups:
        raise PagesDiffer("this release plans models with one kind of cache layer only")
    return _hybrid_groups(specs, block_outer, rules)


def _check_glm_layout(distinct: Sequence[LayerSpec], rules: PlannerRules) -> None:
    """Refuse GLM-5.3-Flash in 0.30 and 0.31 (KU _get_kv_cache_groups_glm5_next)."""
    compressed = any(spec.tokens_per_state > 1 for spec in distinct)
    if rules.own_glm_layout and compressed and {spec.kind for spec in distinct} == {MAMBA, MLA}:
        raise Unsupported("this release lays out mamba beside compressed MLA in a way that is not planned here")


def _hybrid_groups(specs: Layers, block_outer: bool, rules: PlannerRules) -> list[Group]:
    if rules.packing == "tuples" and (groups := tuple_groups(specs, rules)):
        return groups
    hidden = {layer: spec for layer, spec in specs.items() if spec.kind == HIDDEN}
    shown = {layer: spec for layer, spec in specs.items() if spec.kind != HIDDEN}
    if rules.packing == "block_outer" and block_outer and (groups := packed_groups(shown, rules)):
        return groups + [Group((layer,), (spec,)) for layer, spec in hidden.items()]
    if not rules.unifies_pages:
        if len({page_size_bytes(spec, rules) for spec in set(specs.values())}) > 1:
            raise PagesDiffer("this release plans hybrid models only when all layers have the same page size")
        return uniform_page_groups(shown, rules)
    try:
        shown = unify_page_sizes(shown, rules)
    except PagesDiffer:
        if rules.full_fallback and (group := _full_fallback(specs, rules)):
            return [group]
        raise
    groups = uniform_page_groups(shown, rules)
    return _with_hidden(groups, hidden, rules) if hidden else groups


def unify_page_sizes(specs: Layers, rules: PlannerRules) -> Layers:
    """Give every layer the largest page, by more tokens per block or by padding.

    Source: 0.12.0 KU unify_kv_cache_spec_page_size; padding of mamba 0.26.0, of attention 0.24.0 and 0.29.0.
    """
    largest = max(page_size_bytes(spec, rules) for spec in set(specs.values()))
    unified = {spec: _with_page(spec, largest, rules) for spec in dict.fromkeys(specs.values())}
    return {layer: unified[spec] for layer, spec in specs.items()}


def _with_page(spec: LayerSpec, largest: int, rules: PlannerRules) -> LayerSpec:
    page = page_size_bytes(spec, rules)
    if page == largest:
        return spec
    if spec.kind == MAMBA and rules.pads_mamba:
        return spec._replace(page_size_padded=largest)
    if largest % page == 0:
        grown = spec._replace(block_size=spec.block_size * (largest // page))
        if page_size_bytes(grown, rules) != largest:
            raise WouldNotStart(f"a {spec.kind} page of {page} bytes does not grow to {largest} with its block size")
        return grown
    if spec.kind == MAMBA or rules.pads_attention == "no":
        raise PagesDiffer(f"a {spec.kind} page of {page} bytes does not divide the largest page of {largest}")
    if rules.pads_attention == "by_backend":
        raise Unsupported(f"whether the attention backend pads a page of {page} bytes to {largest} is not known")
    if spec.kind in MLA_LIKE:
        raise PagesDiffer(f"an MLA page of {page} bytes neither divides the largest page of {largest} nor is padded")
    return spec._replace(page_size_padded=largest, alignment=None)


def _full_fallback(specs: Layers, rules: PlannerRules) -> Group | None:
    """MLA beside ordinary windows as one full group (0.27.0 KU _try_get_full_allocation_fallback_groups)."""
    kinds = {spec.kind for spec in specs.values()}
    if kinds & {HIDDEN, SLIDING_MLA, CHUNKED} or SLIDING not in kinds or not kinds & MLA_LIKE:
        return None
    try:
        promoted = dict(zip(specs, promote(tuple(specs.values()), rules), strict=True))
    except WouldNotStart:
        return None
    return mixed(promoted) if are_one_type(tuple(dict.fromkeys(promoted.values())), rules) else None


def uniform_page_groups(specs: Layers, rules: PlannerRules) -> list[Group]:
    """Make groups of about equal size from layers with equal pages.

    Source: KU _get_kv_cache_config_uniform_page_size, from 0.11.0 _get_kv_cache_groups_uniform_page_size: the smallest
    bucket sets the group size, unless the largest is only a little larger (0.12.0 on).
    """
    buckets = _buckets(specs, rules)
    least, most = min(map(len, buckets)), max(map(len, buckets))
    group_size = most if most < least * rules.near_equal else least
    groups = []
    for layers in buckets:
        count = cdiv(len(layers), group_size)
        for i in range(count):
            share = layers[i::count] if rules.strided else layers[i * group_size : (i + 1) * group_size]
            groups.append(merged(share, specs, rules))
    return groups


def _buckets(specs: Layers, rules: PlannerRules) -> list[list[int]]:
    """Layers that may share a group, by first appearance."""
    alike: dict[object, list[int]] = {}
    for layer, spec in specs.items():
        alike.setdefault(type_text(spec, rules) if rules.bucket_by == "type_id" else spec, []).append(layer)
    if rules.bucket_by != "merge":
        return list(alike.values())
    buckets: list[tuple[list[LayerSpec], list[int]]] = []
    for layers in alike.values():
        spec = specs[layers[0]]
        for members, names in buckets:
            if _joins(members, spec, rules):
                members.append(spec)
                names.extend(layers)
                break
        else:
            buckets.append(([spec], list(layers)))
    return [names for _, names in buckets]


def _joins(members: Sequence[LayerSpec], spec: LayerSpec, rules: PlannerRules) -> bool:
    try:
        return mergeable([*members, spec], rules)
    except WindowsDiffer:
        return False


def _with_hidden(groups: list[Group], hidden: Layers, rules: PlannerRules) -> list[Group]:
    """Add hidden-state layers, one group each, on the common page.

    Source: 0.22.0 KU get_kv_cache_groups, 0.30.0 _ensure_min_page_size.
    """
    common = page_size_bytes(groups[0].specs[0], rules)
    per_token = {layer: spec.num_kv_heads * spec.head_size * dtype_size(spec.dtype) for layer, spec in hidden.items()}
    if rules.hidden_blocks == "grows" and (scale := cdiv(max(per_token.values()), common)) > 1:
        groups = [group._replace(specs=tuple(_scaled(spec, scale) for spec in group.specs)) for group in groups]
        common *= scale
    shared_block = gcd(*(group.block_size for group in groups))
    for layer, spec in hidden.items():
        block = max(common // per_token[layer], 1)
        if rules.hidden_blocks != "fits":
            block = next(size for size in range(min(block, shared_block), 0, -1) if shared_block % size == 0)
        aligned = spec._replace(block_size=block, page_size_padded=common, alignment=None)
        groups = [*groups, Group((layer,), (aligned,))]
    return groups


def _scaled(spec: LayerSpec, scale: int) -> LayerSpec:
    padded = None if spec.page_size_padded is None else spec.page_size_padded * scale
    return spec._replace(block_size=spec.block_size * scale, page_size_padded=padded)
