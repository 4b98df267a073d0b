"""Groups of mixed page sizes, and the steps behind them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconstruct.planner.grouping import cache_groups, unify_page_sizes
from reconstruct.planner.merging import are_one_type, are_uniform
from reconstruct.planner.packing import approximate_gcd
from reconstruct.planner.pages import as_reported, page_size_bytes
from reconstruct.planner.rules import rules_for
from tests.reconstruct.planner.layer_models import deepseek_v4, full, mamba, mla, sliding


def grouped(layers, version, *, block_outer=False):
    rules = rules_for(version)
    numbered = {i: as_reported(spec, rules) for i, spec in enumerate(layers)}
    return cache_groups(numbered, False, block_outer, rules)


@given(st.lists(st.integers(1, 80), min_size=1, max_size=6), st.integers(1, 80))
def test_the_step_pads_least_and_is_the_largest_that_does(values, floor):
    """No step from the floor up pads less, and no larger one pads as little."""
    step = approximate_gcd(values, floor)
    padding = {candidate: sum(-v % candidate for v in values) for candidate in range(floor, max(values) + 1)}
    assert step >= floor
    if padding:
        assert padding[step] == min(padding.values())
        assert not any(pad == padding[step] for candidate, pad in padding.items() if candidate > step)


def test_states_are_split_to_fit_the_attention_block():
    """A block-outermost hybrid: the full layers' pages set the block, states are dealt to fit it."""
    layers = [mla(block=1600), mamba(None), mamba(None), mamba(None)] * 4
    groups = grouped(layers, "0.32.0", block_outer=True)
    assert [len(group.layers) for group in groups] == [4, 3, 3, 3, 3]
    rules = rules_for("0.32.0")
    assert all(sum(page_size_bytes(s, rules) for s in group.specs) <= 4 * 1600 * 1152 for group in groups)


def test_a_layer_outermost_layout_does_not_pack():
    """The same hybrid with padded pages: equal pages, so groups of equal size."""
    layers = [mla(block=2048), mamba(2359296), mamba(2359296), mamba(2359296)] * 4
    assert [len(group.layers) for group in grouped(layers, "0.32.0")] == [4, 4, 4, 4]


def test_sliding_v4_pages_grow_to_a_full_page_until_0_26():
    """Before 0.27 each sliding page is padded to a page size of the full layers, later it keeps its own."""
    old, new = grouped(deepseek_v4(8), "0.26.0"), grouped(deepseek_v4(8, 584), "0.27.0")
    full_pages = {page_size_bytes(spec, rules_for("0.26.0")) for spec in old[0].specs}
    assert {page_size_bytes(s, rules_for("0.26.0")) for group in old[1:] for s in group.specs} <= full_pages
    assert 32832 in {page_size_bytes(s, rules_for("0.27.0")) for group in new[1:] for s in group.specs}


def test_small_pages_get_more_tokens_a_block():
    """A page that divides the largest one grows with its block size."""
    rules = rules_for("0.12.0")
    unified = unify_page_sizes({0: full(), 1: sliding(heads=2)}, rules)
    assert (unified[0].block_size, unified[1].block_size) == (16, 64)
    assert {page_size_bytes(spec, rules) for spec in unified.values()} == {65536}


@pytest.mark.parametrize(
    ("version", "lengths"), [("0.11.2", [6, 6, 10]), ("0.12.0", [12, 10]), ("0.17.1", [12, 10]), ("0.18.0", [12, 10])]
)
def test_nearly_equal_buckets_share_the_larger_size_from_0_12_0(version, lengths):
    """12 sliding and 10 full layers: before, no group larger than the smaller kind; since, one group of each kind."""
    groups = grouped([sliding()] * 12 + [full()] * 10, version)
    assert [len(group.layers) for group in groups] == lengths


def test_the_factor_grew_from_1_25_to_1_5_in_0_18_0():
    """14 sliding and 10 full layers are nearly equal only by the later factor."""
    layers = [sliding()] * 14 + [full()] * 10
    assert [len(group.layers) for group in grouped(layers, "0.17.1")] == [7, 7, 10]
    assert [len(group.layers) for group in grouped(layers, "0.18.0")] == [14, 10]


def test_latent_layers_merge_by_dtype_name_only_until_0_26():
    """MLA layers of different width but one cache dtype pass as one spec before 0.27."""
    pair = [mla(cache_dtype_str="auto"), mla(132, cache_dtype_str="auto")]
    assert are_uniform(pair, rules_for("0.26.0"))
    assert not are_uniform(pair, rules_for("0.27.0"))


def test_equal_block_sizes_make_one_type_and_different_ones_do_not():
    """One group may mix page sizes but not tokens per block."""
    rules = rules_for("0.32.0")
    assert are_one_type([full(), full(heads=2), mla(block=16)], rules)
    assert not are_one_type([full(), full(block=32)], rules)
    assert not are_one_type([sliding(), sliding(window=64)], rules)
    assert not are_one_type([full(), full(heads=2)], rules_for("0.10.2"))
