"""What a rank stores, release by release: figures reckoned by hand from the source that each test names."""

from __future__ import annotations

import pytest

from reconstruct.planner.config import plan_kv_cache
from tests.reconstruct.planner import configs
from tests.reconstruct.planner.config_cases import MEMORY, counted, launch, specs

RELEASES = ("0.6.6", "0.8.5", "0.10.2", "0.13.0", "0.17.1", "0.21.0", "0.28.0")
every_release = pytest.mark.parametrize("version", RELEASES)


def block_bytes(config, version, **settings):
    return plan_kv_cache(config, launch(version, **settings), MEMORY).bytes_per_block


@every_release
@pytest.mark.parametrize(
    ("stated", "size", "page"),
    [({"head_dim": 128}, 128, 65_536), ({}, 160, 81_920)],
)
def test_a_stated_head_size_beats_the_quotient(version, stated, size, page):
    """get_head_size: head_dim, else hidden_size / heads. 16 tokens x 8 heads x 2 x 2 bytes: 512 bytes an element."""
    config = {**configs.LLAMA_8B, "hidden_size": 5120, **stated}
    assert {spec.head_size for spec in specs(config, version)} == {size}
    assert block_bytes(config, version) == 32 * page


@every_release
@pytest.mark.parametrize(("ranks", "heads"), [(1, 8), (2, 4), (8, 1), (16, 1)])
def test_ranks_share_the_key_heads_and_then_copy_them(version, ranks, heads):
    """get_num_kv_heads: max(1, total // tensor_parallel_size)."""
    assert {spec.num_kv_heads for spec in specs(configs.LLAMA_8B, version, tensor_parallel_size=ranks)} == {heads}
    assert block_bytes(configs.LLAMA_8B, version, tensor_parallel_size=ranks) == heads * 262_144


@every_release
@pytest.mark.parametrize(
    ("settings", "stored", "size"),
    [({}, "bfloat16", 2_097_152), ({"dtype": "float32"}, "float32", 4_194_304)],
)
def test_the_cache_is_as_wide_as_the_models_dtype(version, settings, stored, size):
    """--dtype decides where --kv-cache-dtype is auto."""
    assert {spec.dtype for spec in specs(configs.LLAMA_8B, version, **settings)} == {stored}
    assert block_bytes(configs.LLAMA_8B, version, **settings) == size


@every_release
def test_an_fp8_cache_takes_a_byte_an_element(version):
    """STR_DTYPE_TO_TORCH_DTYPE: fp8 is stored as uint8."""
    assert {spec.dtype for spec in specs(configs.LLAMA_8B, version, kv_cache_dtype="fp8")} == {"uint8"}
    assert block_bytes(configs.LLAMA_8B, version, kv_cache_dtype="fp8") == 1_048_576


@pytest.mark.parametrize(
    ("version", "model_type", "dtype"),
    [
        ("0.6.6", "gemma2", "bfloat16"),
        ("0.6.6", "llama", "float16"),
        ("0.8.0", "gemma3_text", "bfloat16"),
        ("0.8.3", "gemma3_text", "float16"),
        ("0.8.5", "gemma2", "float16"),
        ("0.10.2", "llama", "bfloat16"),
        ("0.13.0", "gemma2", "bfloat16"),
        ("0.28.0", "llama", "bfloat16"),
    ],
)
def test_a_float32_checkpoint_is_halved_by_release(version, model_type, dtype):
    """_get_and_verify_dtype: Gemma's exception ends with 0.8.0; from 0.9.1 the card's preferred type is taken."""
    named = {"gemma2": "Gemma2ForCausalLM", "gemma3_text": "Gemma3ForCausalLM", "llama": "LlamaForCausalLM"}
    config = {
        **configs.LLAMA_8B,
        "architectures": [named[model_type]],
        "model_type": model_type,
        "torch_dtype": "float32",
        "head_dim": 128,
        "sliding_window": 4096,
    }
    assert {spec.dtype for spec in specs(config, version)} == {dtype}


@pytest.mark.parametrize(
    ("version", "block", "page"),
    [
        ("0.6.6", 16, 16 * 16 * 256 * 2 * 2),
        ("0.8.5", 64, 64 * 576 * 2),
        ("0.10.2", 64, 64 * 576 * 2),
        ("0.13.0", 64, 64 * 576 * 2),
        ("0.17.1", 64, 64 * 576 * 2),
        ("0.21.0", 16, 16 * 576 * 2),
        ("0.28.0", 16, 16 * 576 * 2),
    ],
)
def test_latent_attention_stores_one_vector_a_token_once_it_is_latent(version, block, page):
    """0.6.6: padded heads of 256, 16 of 128 on each of 8 ranks; later kv_lora_rank + qk_rope_head_dim, on every rank.

    platforms/cuda.py forces FlashMLA's 64 up to 0.17; FLASH_ATTN_MLA, which comes first after that, takes sixteens.
    """
    found = specs(configs.DEEPSEEK_V3, version, tensor_parallel_size=8)
    assert {spec.block_size for spec in found} == {block}
    assert block_bytes(configs.DEEPSEEK_V3, version, tensor_parallel_size=8) == 61 * page


@pytest.mark.parametrize("version", ["0.10.2", "0.13.0", "0.17.1", "0.21.0", "0.28.0"])
def test_layers_that_share_an_earlier_cache_have_none(version):
    """gpu_model_runner.py get_kv_cache_spec passes over layers with a kv_sharing_target_layer_name."""
    config = {
        **configs.LLAMA_8B,
        "architectures": ["Gemma3nForCausalLM"],
        "model_type": "gemma3n_text",
        "num_hidden_layers": 35,
        "num_kv_shared_layers": 15,
        "sliding_window": 512,
        "head_dim": 256,
    }
    own = {("SlidingWindowSpec", 16, 8, 256): 16, ("FullAttentionSpec", 16, 8, 256): 4}
    assert counted(config, version) == own


@pytest.mark.parametrize(
    ("version", "device", "dtype"),
    [
        ("0.31.0", "B200", "bfloat16"),
        ("0.32.0", "H100", "bfloat16"),
        ("0.32.0", "B200", "uint8"),
        ("0.32.0", "GB200", "uint8"),
    ],
)
def test_glm_5_is_stored_in_fp8_on_data_centre_blackwell_from_0_32(version, device, dtype):
    """model_executor/models/config.py GlmMoeDsaForCausalLM: is_device_capability_family(100)."""
    config = {**configs.DEEPSEEK_V32, "architectures": ["GlmMoeDsaForCausalLM"], "model_type": "glm_moe_dsa"}
    latent = [spec for spec in specs(config, version, device=device) if spec.head_size == 576]
    assert {spec.dtype for spec in latent} == {dtype}
