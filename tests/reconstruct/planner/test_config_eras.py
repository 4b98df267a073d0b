"""The same model on other releases: figures of the released sources, read in the file that each test names."""

from __future__ import annotations

import pytest

from reconstruct.planner.config import layer_specs, plan_kv_cache
from reconstruct.planner.errors import Unsupported, WouldNotStart
from tests.reconstruct.planner import configs
from tests.reconstruct.planner.config_cases import MEMORY, counted, launch, specs


@pytest.mark.parametrize(
    "version", ["0.2.7", "0.6.6", "0.7.3", "0.8.5", "0.10.2", "0.13.0", "0.17.1", "0.21.0", "0.28.0"]
)
def test_a_plain_decoder_takes_two_mebibytes_a_block_in_every_era(version):
    """cache_engine.py: 32 layers x 16 tokens x 8 heads x 128 x 2 x 2 bytes."""
    plan = plan_kv_cache(configs.LLAMA_8B, launch(version), MEMORY)
    assert (plan.bytes_per_block, plan.num_blocks) == (2_097_152, 17_701)


@pytest.mark.parametrize(
    ("version", "blocks", "tokens"),
    [
        ("0.8.5", 4_568, 73_088),
        ("0.10.2", 28_322, 64_736),
        ("0.13.0", 28_322, 64_736),
        ("0.17.1", 28_322, 64_736),
        ("0.21.0", 28_322, 64_627),
        ("0.33.0", 28_322, 64_627),
    ],
)
def test_gemma_windows_count_from_the_release_that_groups_them(version, blocks, tokens):
    """kv_cache_utils.py: unify_hybrid makes windows full in 0.8.4-0.9.0; groups from 0.9.1; tokens formula of 0.20.1."""
    plan = plan_kv_cache(configs.GEMMA_27B, launch(version), MEMORY)
    assert (plan.num_blocks, plan.kv_cache_tokens) == (blocks, tokens)


@pytest.mark.parametrize(
    ("version", "device", "asked", "block"),
    [
        ("0.8.5", "H100", None, 64),
        ("0.10.2", "H100", 16, 64),
        ("0.13.0", "H100", 128, 128),
        ("0.17.1", "H100", None, 64),
        ("0.18.1", "H100", None, 16),
        ("0.21.0", "H100", 32, 32),
        ("0.10.2", "B200", None, 128),
        ("0.13.0", "B200", None, 128),
        ("0.17.1", "B200", None, 64),
        ("0.28.0", "B200", None, 32),
        ("0.10.2", "A100", None, 16),
    ],
)
def test_latent_attention_block_follows_the_default_backend(version, device, asked, block):
    """platforms/cuda.py check_and_update_config up to 0.17; get_preferred_block_size of the backends after it."""
    found = specs(configs.DEEPSEEK_V3, version, device=device, block_size=asked, max_model_len=4096)
    assert {spec.block_size for spec in found} == {block}


def test_latent_attention_was_padded_heads_before_it_was_latent():
    """config.py get_head_size of 0.6.6 returns 256 for deepseek_v3, and every query head has a key head."""
    assert counted(configs.DEEPSEEK_V3, "0.6.6", tensor_parallel_size=8) == {("FullAttentionSpec", 16, 16, 256): 61}


@pytest.mark.parametrize(("version", "kinds"), [("0.8.3", 1), ("0.8.5", 2)])
def test_windows_have_a_spec_of_their_own_from_0_8_4(version, kinds):
    """kv_cache_interface.py SlidingWindowSpec."""
    assert len({spec.kind for spec in specs(configs.GEMMA_27B, version)}) == kinds


@pytest.mark.parametrize("version", ["0.10.2", "0.13.0", "0.17.1", "0.21.0", "0.28.0", "0.33.0"])
def test_delta_network_state_sets_the_block_in_every_release_that_has_it(version):
    """1,097,728 bytes of state need 536 tokens of 2,048 bytes, which is 544 in sixteens."""
    attention = [spec for spec in specs(configs.QWEN_NEXT, version) if spec.kind == "FullAttentionSpec"]
    state = [spec for spec in specs(configs.QWEN_NEXT, version) if spec.kind == "MambaSpec"]
    assert (len(attention), len(state)) == (12, 36)
    assert {spec.block_size for spec in attention} == {544}
    assert {spec.page_size_padded for spec in state} == {1_114_112}


@pytest.mark.parametrize(
    ("version", "mode", "block"),
    [("0.17.1", "none", 8192), ("0.25.1", "none", 8192), ("0.26.0", "all", 512), ("0.28.0", "align", 400)],
)
def test_mamba_cache_mode_follows_the_default_of_prefix_caching(version, mode, block):
    """config/model.py is_prefix_caching_supported: hybrids cache prefixes by default from 0.26.0, "all" until 0.27."""
    state = next(spec for spec in specs(configs.GRANITE_4, version) if spec.kind == "MambaSpec")
    assert (state.mamba_cache_mode, state.block_size) == (mode, block)


def test_with_prefix_caching_the_old_block_holds_whole_chunks():
    """0.13.0 models/config.py: 393 tokens of state, in steps of the 256 tokens of a chunk."""
    found = {spec.block_size for spec in specs(configs.GRANITE_4, "0.13.0", enable_prefix_caching=True)}
    assert found == {512}


@pytest.mark.parametrize(("version", "algorithm", "dtype"), [("0.13.0", "FP8", "bfloat16"), ("0.14.0", "FP8", "uint8")])
def test_a_modelopt_checkpoint_turns_auto_into_fp8_from_0_14(version, algorithm, dtype):
    """utils/torch_utils.py resolve_kv_cache_dtype_string."""
    quantised = {
        **configs.LLAMA_8B,
        "quantization_config": {"quant_method": "modelopt", "kv_cache_quant_algo": algorithm},
    }
    assert {spec.dtype for spec in specs(quantised, version)} == {dtype}


def test_a_checkpoint_scheme_overrode_the_user_up_to_0_21():
    """attention.py of 0.21.0 sets fp8 for any kv_cache_scheme; 0.22.1 only where the user said auto."""
    quantised = {
        **configs.LLAMA_8B,
        "quantization_config": {"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8}},
    }
    assert {spec.dtype for spec in specs(quantised, "0.21.0", kv_cache_dtype="bfloat16")} == {"uint8"}
    assert {spec.dtype for spec in specs(quantised, "0.23.0", kv_cache_dtype="bfloat16")} == {"bfloat16"}


@pytest.mark.parametrize(
    ("version", "old_engine"), [("0.6.6", True), ("0.7.3", True), ("0.8.5", False), ("0.10.2", False)]
)
def test_v1_is_the_default_from_0_8(version, old_engine):
    """envs.py VLLM_USE_V1."""
    assert layer_specs(configs.LLAMA_8B, launch(version)).launch.use_v1 is not old_engine


def test_an_fp8_cache_fell_back_to_v0_up_to_0_8_3():
    """engine/arg_utils.py _is_v1_supported_oracle of 0.8.3 and 0.8.5."""
    assert layer_specs(configs.LLAMA_8B, launch("0.8.3", kv_cache_dtype="fp8")).launch.use_v1 is False
    assert layer_specs(configs.LLAMA_8B, launch("0.8.5", kv_cache_dtype="fp8")).launch.use_v1 is True


@pytest.mark.parametrize(
    ("device", "version", "options", "old_engine"),
    [
        ("T4", "0.8.5", {}, True), ("V100", "0.10.1", {}, True), ("T4", "0.10.2", {}, False),
        ("A100", "0.9.2", {"kv_cache_dtype": "fp8"}, True), ("A100", "0.10.2", {"kv_cache_dtype": "fp8"}, False),
        ("B200", "0.9.2", {"kv_cache_dtype": "fp8"}, True), ("B200", "0.10.0", {"kv_cache_dtype": "fp8"}, False),
        ("A100", "0.9.1", {"dtype": "float32"}, True), ("A100", "0.9.2", {"dtype": "float32"}, False),
        ("A100", "0.9.1", {"runner": "pooling"}, True), ("A100", "0.9.2", {"runner": "pooling"}, False),
        ("A100", "0.8.5", {"pipeline_parallel_size": 2}, True), ("A100", "0.9.0", {"pipeline_parallel_size": 2}, False),
    ],
)  # fmt: skip
def test_what_v1_could_not_do_ran_on_v0(device, version, options, old_engine):
    """engine/arg_utils.py _is_v1_supported_oracle."""
    asked = launch(version, device=device, **options)
    assert layer_specs(configs.LLAMA_8B, asked).launch.use_v1 is not old_engine
    told = asked._replace(use_v1=old_engine)
    assert layer_specs(configs.LLAMA_8B, told).launch.use_v1 is old_engine


def test_an_architecture_is_refused_before_its_first_release():
    """The registry of 0.10.2 has no DeepSeek-V3.2."""
    with pytest.raises(Unsupported, match=r"0\.11\.0|0\.11\.1|0\.12"):
        layer_specs(configs.DEEPSEEK_V32, launch("0.10.2"))


def test_a_cache_dtype_is_refused_before_its_first_release():
    """config/cache.py CacheDType of 0.17.1 has no nvfp4."""
    with pytest.raises(WouldNotStart, match="nvfp4"):
        layer_specs(configs.LLAMA_8B, launch("0.17.1", kv_cache_dtype="nvfp4"))
