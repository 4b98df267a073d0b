"""Groups whose blocks hold pages of several sizes side by side: DeepSeek-V4 and block-outermost layouts."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.planner.errors import WouldNotStart
from reconstruct.planner.group import Group, Layers, mixed
from reconstruct.planner.merging import are_one_type
from reconstruct.planner.pages import cdiv, page_size_bytes, page_sizes
from reconstruct.planner.spec import MLA_LIKE, SLIDING_LIKE, SLIDING_MLA

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconstruct.planner.rules import PlannerRules
    from reconstruct.planner.spec import LayerSpec


def approximate_gcd(values: Sequence[int], lower_bound: int) -> int:
    """Find the step, at least `lower_bound`, whose multiples pad `values` least; the larger on a tie.

    Source: 0.20.0 KU _approximate_gcd.
    """
    steps = range(max(1, lower_bound), max(values) + 1)
    return max(steps, key=lambda step: (-sum(-value % step for value in values), step), default=max(1, lower_bound))


def most_common_count(specs: Sequence[LayerSpec], rules: PlannerRules) -> int:
    """How often the most frequent page size occurs (KI get_num_layer_tuples, get_max_layers_per_page_size)."""
    return max(Counter(page_sizes(specs, rules)).values())


def _by_page(specs: Layers, rules: PlannerRules) -> dict[int, list[int]]:
    pages: dict[int, list[int]] = {}
    for layer, page in zip(specs, page_sizes(tuple(specs.values()), rules), strict=True):
        pages.setdefault(page, []).append(layer)
    return pages


def _dealt(specs: Layers, pages: dict[int, list[int]], count: int) -> list[Group]:
    """Deal rows of one layer per page size round robin to `count` groups; layers beyond the shortest row are lost."""
    rows = list(zip(*pages.values(), strict=False))
    shares = ([layer for row in rows[i::count] for layer in row] for i in range(count))
    return [mixed({layer: specs[layer] for layer in share}) for share in shares]


def tuple_groups(specs: Layers, rules: PlannerRules) -> list[Group]:
    """DeepSeek-V4's groups from 0.20.0 to 0.28.0: all full MLA layers, then sliding MLA layers in equal tuples.

    Source: KU group_and_unify_kv_cache_specs, _get_kv_cache_groups_uniform_groups. Empty when no layer is sliding MLA.
    Raises WouldNotStart where the engine asserts.
    """
    sliding: dict[tuple[int, int | None], Layers] = {}
    full = {layer: spec for layer, spec in specs.items() if spec.kind in MLA_LIKE}
    for layer, spec in specs.items():
        if spec.kind == SLIDING_MLA:
            sliding.setdefault((spec.block_size, spec.sliding_window), {})[layer] = spec
    if not sliding or (rules.tuples_need_mixed_pages and len(_by_page(specs, rules)) <= 1):
        return []
    if not full or not are_one_type(tuple(set(full.values())), rules):
        raise WouldNotStart("sliding MLA layers need full MLA layers of one type beside them")
    counts = [most_common_count(tuple(layers.values()), rules) for layers in (full, *sliding.values())]
    step = approximate_gcd(counts, counts[0])
    groups = [mixed(full)]
    for layers in sliding.values():
        if rules.tuple_padding:
            layers = _padded_to(layers, sorted(_by_page(full, rules)), rules)  # noqa: PLW2901 - the padded copy
        pages = _by_page(layers, rules)
        if len({len(row) for row in pages.values()}) > 1:
            raise WouldNotStart("sliding MLA layers of one window must come in equal numbers of each page size")
        groups += _dealt(layers, pages, cdiv(len(next(iter(pages.values()))), step))
    return groups


def _padded_to(layers: Layers, pages: list[int], rules: PlannerRules) -> Layers:
    padded = {}
    for layer, spec in layers.items():
        page = page_size_bytes(spec, rules)
        target = next((size for size in pages if size >= page), None)
        if target is None:
            raise WouldNotStart(f"a sliding MLA page of {page} bytes is larger than every full MLA page")
        padded[layer] = spec if target == page else spec._replace(page_size_padded=target, alignment=None)
    return padded


class _Bucket(NamedTuple):
    specs: Layers
    pages: dict[int, list[int]]

    @property
    def first(self) -> LayerSpec:
        return next(iter(self.specs.values()))

    @property
    def balanced(self) -> bool:
        return len({len(row) for row in self.pages.values()}) == 1

    @property
    def repeats(self) -> int:
        return max(len(row) for row in self.pages.values())

    def widest_group_bytes(self, count: int) -> int:
        return sum(cdiv(len(row), count) * page for page, row in self.pages.items())


def packed_groups(specs: Layers, rules: PlannerRules) -> list[Group]:
    """Make groups for a block-outermost layout: buckets of one type, split so that all fill a block about equally.

    Source: 0.29.0 KU _get_packed_kv_cache_groups, 0.30.0 is_state_bucket. Empty when all pages are equal.
    """
    if len(_by_page(specs, rules)) <= 1:
        return []
    buckets = [_Bucket(layers, _by_page(layers, rules)) for layers in _type_buckets(specs, rules)]
    floor = max((b.repeats for b in buckets if b.balanced and len(b.pages) > 1), default=0)
    step = approximate_gcd([b.repeats for b in buckets if b.balanced], floor) if floor else 0

    def groups_of(bucket: _Bucket) -> int:
        return cdiv(bucket.repeats, step) if step and bucket.balanced else 1

    def holds_states(bucket: _Bucket) -> bool:
        kind = bucket.first.kind
        return kind in rules.state_buckets and (not step or kind not in SLIDING_LIKE)

    anchor = max(b.widest_group_bytes(len(b.specs) if holds_states(b) else groups_of(b)) for b in buckets)
    groups = []
    for bucket in buckets:
        count = groups_of(bucket)
        if holds_states(bucket):
            states_per_block = max(anchor // page_size_bytes(bucket.first, rules), 1)
            count = max(count, cdiv(len(bucket.specs), states_per_block))
        groups += [mixed(bucket.specs)] if count == 1 else _dealt(bucket.specs, bucket.pages, count)
    return groups


def _type_buckets(specs: Layers, rules: PlannerRules) -> list[Layers]:
    """Each layer joins the first bucket whose type it shares, as do all layers that equal it."""
    buckets: list[tuple[list[LayerSpec], Layers]] = []
    home: dict[LayerSpec, Layers] = {}
    for layer, spec in specs.items():
        if spec not in home:
            for members, layers in buckets:
                if are_one_type((*members, spec), rules):
                    members.append(spec)
                    home[spec] = layers
                    break
            else:
                home[spec] = {}
                buckets.append(([spec], home[spec]))
        home[spec][layer] = spec
    return [layers for _, layers in buckets]
