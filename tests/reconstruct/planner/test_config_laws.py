"""Laws of plans from a config, whatever its numbers."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconstruct.planner.config import layer_specs, plan_kv_cache
from reconstruct.planner.errors import Unsupported, WouldNotStart
from tests.reconstruct.planner import configs
from tests.reconstruct.planner.config_cases import launch, specs

_GIB = 1 << 30
_heads = st.sampled_from([(32, 8), (64, 8), (16, 16), (8, 1), (32, 4)])
_versions = st.sampled_from(["0.6.6", "0.8.5", "0.10.2", "0.13.0", "0.17.1", "0.21.0", "0.28.0", "0.32.0"])


def _decoder(heads, head_dim, layers):
    query, keys = heads
    return {
        **configs.LLAMA_8B,
        "num_attention_heads": query,
        "num_key_value_heads": keys,
        "head_dim": head_dim,
        "hidden_size": query * head_dim,
        "num_hidden_layers": layers,
    }


@given(_heads, st.sampled_from([64, 128, 256]), st.integers(1, 40), _versions, st.integers(4, 60))
@settings(max_examples=60, deadline=None)
def test_more_memory_never_means_fewer_blocks(heads, head_dim, layers, version, gib):
    """And what is planned never exceeds the memory."""
    config = _decoder(heads, head_dim, layers)
    less = plan_kv_cache(config, launch(version, max_model_len=512), gib * _GIB)
    more = plan_kv_cache(config, launch(version, max_model_len=512), (gib + 1) * _GIB)
    assert less.num_blocks <= more.num_blocks
    assert less.num_blocks * less.bytes_per_block <= gib * _GIB


@given(_heads, st.integers(1, 40), _versions, st.sampled_from([1, 2, 4, 8]))
@settings(max_examples=60, deadline=None)
def test_splitting_heads_never_lowers_tokens_per_byte(heads, layers, version, ranks):
    """A rank stores its share of the key heads, or one of them."""
    config = _decoder(heads, 128, layers)
    whole = specs(config, version)[0]
    part = specs(config, version, tensor_parallel_size=ranks)[0]
    assert part.num_kv_heads * ranks >= whole.num_kv_heads
    assert part.num_kv_heads <= whole.num_kv_heads


@given(_heads, st.integers(2, 60), _versions, st.integers(1, 8))
@settings(max_examples=60, deadline=None)
def test_stages_hold_every_layer_once(heads, layers, version, stages):
    """Whatever the split."""
    try:
        found = layer_specs(_decoder(heads, 64, layers), launch(version, pipeline_parallel_size=stages)).stages
    except WouldNotStart:
        assert stages > layers
        return
    assert sum(len(stage) for stage in found) == layers
    assert all(found)


@given(
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from(["auto", "fp8", "int8_per_token_head"]),
    st.sampled_from([None, 16, 32, 64]),
    st.sampled_from(["0.10.2", "0.17.1", "0.28.0", "0.32.0"]),
)
@settings(max_examples=60, deadline=None)
def test_attention_pages_cover_the_state_they_share_with(ranks, dtype, asked, version):
    """The padding of a hybrid is part of a page, never a whole one."""
    try:
        plan = plan_kv_cache(
            configs.QWEN_NEXT,
            launch(version, tensor_parallel_size=ranks, kv_cache_dtype=dtype, block_size=asked),
            40 * _GIB,
        )
    except WouldNotStart:
        assert dtype == "int8_per_token_head"
        return
    assert all(0 <= group.padding_share < 1 for group in plan.groups)
    assert len({sum(group.pages) // len(group.pages) for group in plan.groups}) == 1


@given(
    st.dictionaries(
        st.sampled_from([*configs.LLAMA_8B, "layer_types", "sliding_window"]),
        st.none() | st.integers(-2, 40),
        max_size=4,
    )
)
@settings(max_examples=80, deadline=None)
def test_a_spoilt_config_is_refused_in_words(spoilt):
    """Never a crash: the refusal is one line."""
    try:
        layer_specs({**configs.LLAMA_8B, **spoilt}, launch())
    except (Unsupported, WouldNotStart) as refusal:
        assert "\n" not in str(refusal)


@pytest.mark.parametrize(
    "config",
    [configs.LLAMA_8B, configs.GEMMA_27B, configs.QWEN_NEXT, configs.DEEPSEEK_V32],
    ids=lambda config: config["model_type"],
)
def test_a_hundred_layers_are_planned_in_a_blink(config):
    """Under 5 ms of processor time once imported, at the best of twenty tries."""
    deep = {**config, "num_hidden_layers": 100}
    plan_kv_cache(deep, launch(), 40 * _GIB)
    best = min(_seconds(deep) for _ in range(20))
    assert best < 0.005


def _seconds(config):
    start = time.process_time()
    plan_kv_cache(config, launch(), 40 * _GIB)
    return time.process_time() - start
