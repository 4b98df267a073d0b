"""Block sizes and bytes of a token on 0.32.0, by backend, device and cache dtype."""

from __future__ import annotations

import pytest

from reconstruct.planner.config import layer_specs, plan_kv_cache
from reconstruct.planner.errors import Unsupported, WouldNotStart
from reconstruct.planner.spec import KernelBlocks
from tests.reconstruct.planner import configs
from tests.reconstruct.planner.config_cases import MEMORY, counted, launch, specs


@pytest.mark.parametrize(
    ("device", "dtype", "asked", "block"),
    [
        ("H100", "auto", None, 16),
        ("H100", "fp8", None, 64),
        ("H100", "fp8", 32, 32),
        ("B200", "auto", None, 32),
        ("B200", "fp8", None, 32),
        ("CPU", "auto", None, 16),
    ],
)
def test_latent_block_sizes_as_measured(device, dtype, asked, block):
    """FlashAttention-MLA takes sixteens, FlashMLA 64 only, FlashInfer-MLA 32; an odd wish falls to Triton."""
    found = specs(configs.DEEPSEEK_V3, device=device, kv_cache_dtype=dtype, block_size=asked)
    assert {spec.block_size for spec in found} == {block}


@pytest.mark.parametrize(("device", "block"), [("H100", 16), ("B200", 16), ("A100", 16), ("CPU", 128)])
def test_plain_block_sizes(device, block):
    """Every GPU backend takes 16; the CPU's default is 128."""
    assert {spec.block_size for spec in specs(configs.LLAMA_8B, device=device)} == {block}


@pytest.mark.parametrize(
    ("dtype", "content"),
    [("int8_per_token_head", 264), ("fp8_per_token_head", 264), ("int4_per_token_head", 136)],
)
def test_per_token_head_formats_store_two_scales(dtype, content):
    """Key and value of 128 elements, and a float32 scale for each."""
    assert {spec.state_content_bytes for spec in specs(configs.LLAMA_8B, kv_cache_dtype=dtype)} == {content}


@pytest.mark.parametrize(
    ("dtype", "slot"),
    [("turboquant_k8v4", 196), ("turboquant_4bit_nc", 134), ("turboquant_k3v4_nc", 118), ("turboquant_3bit_nc", 102)],
)
def test_turboquant_keeps_the_ends_of_a_dense_model(dtype, slot):
    """Two layers at each end stay in 16 bit, and the block grows until a quantised page covers theirs."""
    found = specs(configs.LLAMA_8B, kv_cache_dtype=dtype)
    assert [spec.state_content_bytes for spec in found[:3]] == [None, None, slot]
    assert sum(spec.state_content_bytes is None for spec in found) == 4
    assert {spec.block_size for spec in found} == {32}


def test_turboquant_does_not_take_windows():
    """Its backend supports no sliding window."""
    with pytest.raises(WouldNotStart, match="turboquant"):
        specs(configs.GEMMA_27B, kv_cache_dtype="turboquant_4bit_nc")


def test_turboquant_quantises_every_attention_layer_of_a_hybrid():
    """Hybrids have few attention layers, so none is kept."""
    found = [
        spec for spec in specs(configs.QWEN_NEXT, kv_cache_dtype="turboquant_k8v4") if spec.kind == "FullAttentionSpec"
    ]
    assert None not in {spec.state_content_bytes for spec in found}


def test_nvfp4_splits_every_head_into_a_key_and_a_value_slot():
    """Half a byte an element and a byte per sixteen."""
    spec = specs(configs.LLAMA_8B, kv_cache_dtype="nvfp4", device="B200")[0]
    assert (spec.num_head_slots, spec.state_content_bytes) == (16, 72)


@pytest.mark.parametrize(
    ("settings", "block", "page"),
    [
        ({}, 544, 1_114_112),
        ({"kv_cache_dtype": "fp8", "block_size": 32}, 1088, 1_114_112),
        ({"tensor_parallel_size": 2, "block_size": 64}, 576, 589_824),
        ({"tensor_parallel_size": 8}, 144, 147_456),
        ({"speculative_config": {"method": "mtp", "num_speculative_tokens": 2}}, 560, 1_146_880),
    ],
)
def test_hybrid_blocks_as_measured(settings, block, page):
    """State of Qwen3-Next against attention pages of two key heads of 256, in steps of the block asked for."""
    found = specs(configs.QWEN_NEXT, **settings)
    assert {spec.block_size for spec in found} == {block}
    assert {spec.page_size_padded for spec in found if spec.kind == "MambaSpec"} == {page}


def test_without_prefix_caching_a_state_spans_the_request():
    """The mamba block is the longest request then."""
    found = specs(configs.GRANITE_4, enable_prefix_caching=False)
    assert {(spec.kind, spec.block_size) for spec in found} == {("MambaSpec", 8192), ("FullAttentionSpec", 400)}


def test_sparse_attention_stores_packed_rows_and_an_index():
    """656 bytes a token for fp8, 132 for the indexer's key; both in blocks of 64."""
    found = specs(configs.DEEPSEEK_V32, kv_cache_dtype="fp8")
    assert (found[0].head_size, found[0].block_stride_alignment) == (132, KernelBlocks(64))
    assert (found[1].state_content_bytes, found[1].cache_dtype_str) == (656, "fp8_ds_mla")
    assert counted(configs.DEEPSEEK_V32) == {("MLAAttentionSpec", 64, 1, 132): 61, ("MLAAttentionSpec", 64, 1, 576): 61}


def test_sparse_attention_refuses_blocks_that_its_pages_do_not_divide():
    """16 tokens are no multiple of 64."""
    with pytest.raises(WouldNotStart):
        specs(configs.DEEPSEEK_V32, block_size=16)


@pytest.mark.parametrize(
    ("config", "blocks", "tokens"),
    [
        (configs.LLAMA_8B, 17_701, 283_216),
        (configs.DEEPSEEK_V3, 33_017, 528_272),
        (configs.QWEN_NEXT, 2_776, 1_033_681),
        (configs.GRANITE_4, 11_329, 1_933_482),
        (configs.GPT_OSS_20B, 94_409, 754_535),
    ],
)
def test_whole_plans_as_measured(config, blocks, tokens):
    """num_blocks and the logged tokens of vLLM 0.32.0 for the same memory."""
    plan = plan_kv_cache(config, launch(), MEMORY)
    assert (plan.num_blocks, plan.kv_cache_tokens) == (blocks, tokens)


def test_fp8_with_distance_bias_is_refused():
    """FlashAttention 2, which alibi needs, has no fp8 cache."""
    bloom = {
        **configs.LLAMA_8B,
        "architectures": ["BloomForCausalLM"],
        "model_type": "bloom",
        "n_layer": 30,
        "n_head": 32,
    }
    with pytest.raises(WouldNotStart, match="alibi"):
        specs(bloom, kv_cache_dtype="fp8")


def test_an_unknown_card_is_no_guess():
    """The capability decides the backend."""
    with pytest.raises(Unsupported, match="Z900"):
        layer_specs(configs.LLAMA_8B, launch(device="Z900"))
