"""One model planned by many releases: figures measured by running the releases' own planners."""

from __future__ import annotations

import pytest

from reconstruct.planner import Launch, WouldNotStart, plan_from_layers
from reconstruct.planner.spec import LayerSpec
from tests.reconstruct.planner.config_cases import MEMORY
from tests.reconstruct.planner.layer_models import (
    GEMMA_27B,
    GIB,
    GPT_OSS_20B,
    LLAMA_8B,
    NEMOTRON_NANO,
    deepseek_v4,
    full,
    mla,
    sliding,
)


def planned(layers, version, memory=MEMORY, length=8192, **settings):
    settings.setdefault("block_size", layers[0].block_size)
    return plan_from_layers([layers], Launch(version, max_model_len=length, **settings), memory)


@pytest.mark.parametrize(
    "version", ["0.7.3", "0.8.0", "0.8.5", "0.9.1", "0.10.2", "0.13.0", "0.20.2", "0.28.0", "0.33.0"]
)
def test_a_uniform_model_has_the_same_blocks_and_tokens_in_every_release(version):
    """Llama-3.1-8B: 32 layers of 64 KiB a block."""
    plan = planned(LLAMA_8B, version)
    assert (plan.bytes_per_block, plan.num_blocks, plan.kv_cache_tokens) == (32 * 65536, 17701, 283216)
    assert plan.max_concurrency == pytest.approx(34.572265625)


@pytest.mark.parametrize(
    ("version", "tokens"),
    [("0.9.2", 283216), ("0.19.1", 283216), ("0.20.0", 283216), ("0.20.1", 282933), ("0.33.0", 282933)],
)
def test_tokens_shrink_from_0_20_1_when_the_length_is_no_multiple_of_the_block(version, tokens):
    """int(blocks / ceil(5003 / 16) * 5003) replaces blocks times 16."""
    plan = planned(LLAMA_8B, version, length=5003)
    assert (plan.kv_cache_tokens, round(plan.max_concurrency, 3)) == (tokens, 56.553)


@pytest.mark.parametrize(
    ("version", "blocks"), [("0.7.3", 777), ("0.9.0", 777), ("0.9.1", 17701), ("0.9.2", 777), ("0.33.0", 777)]
)
def test_the_block_override_works_except_in_0_9_1(version, blocks):
    """0.9.1 logs the override and plans without it."""
    assert planned(LLAMA_8B, version, num_gpu_blocks_override=777).num_blocks == blocks


@pytest.mark.parametrize("version", ["0.9.2", "0.19.1"])
def test_an_override_below_one_request_starts_until_0_20_0(version):
    """The check looks at the real memory; the override comes later."""
    plan = planned(GPT_OSS_20B, version, num_gpu_blocks_override=777)
    assert (plan.num_blocks, plan.kv_cache_tokens, round(plan.max_concurrency, 3)) == (777, 6208, 0.758)


def test_an_override_below_one_request_is_refused_from_0_20_1():
    """The override redefines the memory that the check sees."""
    with pytest.raises(WouldNotStart, match="one request of 8192 tokens"):
        planned(GPT_OSS_20B, "0.20.1", num_gpu_blocks_override=777)


@pytest.mark.parametrize(
    ("version", "blocks", "tokens", "concurrency"),
    [
        ("0.8.4", 47204, 755264, 92.195),
        ("0.9.1", 94409, 755264, 92.106),
        ("0.19.1", 94409, 755264, 92.106),
        ("0.20.2", 94409, 754535, 92.106),
        ("0.33.0", 94409, 754535, 92.106),
    ],
)
def test_half_sliding_half_full(version, blocks, tokens, concurrency):
    """gpt-oss-20b: all full before groups came in 0.9.1, two groups since."""
    plan = planned(GPT_OSS_20B, version)
    assert (plan.num_blocks, plan.kv_cache_tokens, round(plan.max_concurrency, 3)) == (blocks, tokens, concurrency)


@pytest.mark.parametrize(
    ("version", "lengths"),
    [
        ("0.10.2", [10, 10, 10, 10, 10, 10, 2]),
        ("0.11.0", [9, 9, 9, 9, 8, 8, 10]),
        ("0.33.0", [9, 9, 9, 9, 8, 8, 10]),
    ],
)
def test_layers_are_dealt_round_robin_from_0_11_0(version, lengths):
    """Gemma-3-27B: 52 sliding and 10 full layers make six sliding groups and a full one."""
    groups = planned(GEMMA_27B, version, memory=20 * GIB).groups
    full_first = version == "0.10.2"  # 0.9.1 to 0.10.2 sort their groups by kind
    assert [len(group.layers) for group in groups] == lengths
    assert [group.kind for group in groups].index("FullAttentionSpec") == (0 if full_first else 6)


@pytest.mark.parametrize(
    ("version", "blocks", "tokens", "concurrency"),
    [
        ("0.9.2", 2882, 1207296, 360.25),
        ("0.15.1", 2882, 1207296, 240.167),
        ("0.20.2", 2882, 1967445, 240.167),
        ("0.28.0", 2882, 1967445, 240.167),
        ("0.29.0", 2882, 1475584, 180.125),
        ("0.33.0", 2882, 1475584, 180.125),
    ],
)
def test_states_take_one_then_two_then_three_blocks(version, blocks, tokens, concurrency):
    """Nemotron-3-Nano: 23 mamba layers in four groups beside six full ones; 0.29 adds a checkpoint block."""
    plan = planned(NEMOTRON_NANO, version, mamba_cache_mode="align")
    assert (plan.num_blocks, plan.kv_cache_tokens, round(plan.max_concurrency, 3)) == (blocks, tokens, concurrency)


HIDDEN = LayerSpec("HiddenStateCacheSpec", 16, 3, 2048)
MODELS = {
    "windows": ([sliding(window=128), sliding(), full()] * 4, 4 * GIB),
    "draft": ([full()] * 6 + [full(heads=2)], GIB),
    "mimo": (
        [
            full(heads=4, size=192, head_size_v=128) if i % 6 == 5 else sliding(size=192, window=128, head_size_v=128)
            for i in range(24)
        ],
        GIB,
    ),
    "latent_and_window": ([mla(block=16)] * 4 + [sliding(heads=3, size=96, window=512)], GIB),
    "hidden": ([full(heads=2, size=64), sliding(heads=2, size=64), sliding(heads=2, size=64)] * 3 + [HIDDEN], GIB),
    "sink": ([full(heads=4)] * 3 + [LayerSpec("SinkFullAttentionSpec", 16, 4, 128, 128, sink_len=4)], GIB),
    "indexer": ([mla(cache_dtype_str="auto"), mla(132, dtype="uint8")] * 5, GIB),
    "v4": (deepseek_v4(12), 20 * GIB),
}


@pytest.mark.parametrize(
    ("model", "version", "blocks", "lengths", "concurrency"),
    [
        ("windows", "0.8.5", 5461, [12], 17.46472116729962),
        ("windows", "0.9.2", 16384, [4, 4, 4], 36.328159645232816),
        ("windows", "0.24.0", 16384, [4, 4, 4], 36.328159645232816),
        ("windows", "0.28.0", 16384, [4, 4, 4], 31.813592233009707),
        ("draft", "0.11.2", 2621, [7], 8.373801916932907),
        ("draft", "0.32.0", 2621, [7], 8.373801916932907),
        ("mimo", "0.13.0", 2730, [4] * 6, 7.541436464088398),
        ("mimo", "0.20.2", 3276, [4] * 6, 9.049723756906078),
        ("mimo", "0.29.0", 3276, [4] * 6, 6.275862068965517),
        ("latent_and_window", "0.9.2", 58254, [1] * 5, 44.23234624145786),
        ("latent_and_window", "0.32.0", 58254, [1] * 5, 43.183098591549296),
        ("hidden", "0.32.0", 21845, [3, 3, 3, 1], 4.129489603024575),
        ("sink", "0.14.1", 8192, [4], 26.17252396166134),
        ("indexer", "0.11.2", 2613, [10], 33.075949367088604),
        ("indexer", "0.32.0", 2613, [10], 33.075949367088604),
        ("v4", "0.20.2", 74864, [15, 6, 6, 10, 5], 324.0865800865801),
        ("v4", "0.24.0", 77672, [15, 6, 6, 10, 5], 336.24242424242425),
        ("v4", "0.28.0", 89837, [15, 6, 6, 10, 5], 194.45238095238096),
        ("v4", "0.29.0", 89837, [6, 6, 15, 10, 5], 194.45238095238096),
        ("v4", "0.32.0", 89837, [6, 6, 15, 10, 5], 194.45238095238096),
    ],
)
def test_small_models_match_the_releases_own_planners(model, version, blocks, lengths, concurrency):
    """Blocks, group lengths and concurrency that each release's own functions gave for the same layers."""
    layers, memory = MODELS[model]
    plan = planned(layers, version, memory, 5003, max_num_batched_tokens=512, block_size=16)
    assert plan.num_blocks == blocks
    assert [len(group.layers) for group in plan.groups] == lengths
    assert plan.max_concurrency == pytest.approx(concurrency, rel=1e-12)


@pytest.mark.parametrize(
    ("model", "version", "reason"),
    [
        ("draft", "0.10.2", "same page size"),
        ("indexer", "0.10.2", "same page size"),
        ("mimo", "0.14.1", "does not divide"),
        ("windows", "0.8.0", None),
        ("hidden", "0.29.0", "does not fit its padded size"),
    ],
)
def test_models_that_a_release_cannot_plan(model, version, reason):
    """Where the release raises, so does the plan; where it knows no windows, all layers are full."""
    layers, memory = MODELS[model]
    if reason is None:
        assert planned(layers, version, memory, 5003).num_blocks == 5461
        return
    with pytest.raises(WouldNotStart, match=reason):
        planned(layers, version, memory, 5003, max_num_batched_tokens=512, block_size=16)
