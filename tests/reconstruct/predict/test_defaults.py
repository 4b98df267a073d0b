"""What a release takes where nothing is given, by engine, length and model."""

import pytest

from reconstruct.planner.config import layer_specs
from reconstruct.predict.defaults import settled
from tests.reconstruct.predict.starts import decoder, scenario

IMAGES = {"vision_config": {"hidden_size": 8}}
LATENT = {
    "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "kv_lora_rank": 512, "q_lora_rank": None,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "moe_intermediate_size": 1408,
    "n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6, "first_k_dense_replace": 1,
}  # fmt: skip


def found(version, length=65536, gpu="A100-80GB", fields=(), pools=False, **options):
    config = decoder(max_position_embeddings=131072, **dict(fields))
    asked = scenario(config=config, gpu=gpu, version=version, max_model_len=length, **options)
    if pools:
        asked = asked._replace(launch=asked.launch._replace(runner="pooling"))
    return settled(asked, layer_specs(config, asked.launch))


@pytest.mark.parametrize(
    ("version", "length", "options", "tokens"),
    [
        ("0.4.3", 65536, {}, 65536), ("0.5.5", 65536, {}, 512), ("0.6.4.post1", 65536, {}, 512),
        ("0.6.5", 65536, {}, 2048), ("0.7.3", 65536, {}, 2048), ("0.7.3", 32768, {}, 32768), ("0.7.3", 1024, {}, 2048),
        ("0.7.3", 65536, {"lora": True}, 65536), ("0.7.3", 65536, {"gpu": "MI300X"}, 65536),
        ("0.7.3", 65536, {"pools": True}, 65536), ("0.7.3", 1024, {"pools": True}, 32768),
        ("0.7.3", 65536, {"fields": {"architectures": ["MistralForCausalLM"], "model_type": "mistral",
                                     "sliding_window": 4096}}, 65536),
        ("0.7.3", 65536, {"fields": LATENT}, 2048), ("0.8.5", 65536, {"fields": LATENT, "use_v1": False}, 65536),
        ("0.7.3", 65536, {"fields": IMAGES}, 65536), ("0.7.3", 1024, {"fields": IMAGES}, 5120),
        ("0.5.5", 65536, {"fields": IMAGES}, 512),
    ],
)  # fmt: skip
def test_v0_takes_whole_prompts_but_for_long_ones(version, length, options, tokens):
    """By config.py and engine/arg_utils.py of these releases."""
    assert found(version, length, **options).batched_tokens == tokens
    assert found(version, length, **options).engine == "V0"


def test_what_is_given_stands():
    assert found("0.7.3", max_num_batched_tokens=4096, batched_tokens_given=True).batched_tokens == 4096


@pytest.mark.parametrize(("gpu", "sequences"), [("A100-80GB", 256), ("A800-SXM4-80GB", 1024), ("H100-80GB", 1024)])
def test_a_card_is_small_by_its_own_name(gpu, sequences):
    """The engine looks for "a100" in it: an A800 is none, though it is one in all else."""
    assert found("0.19.0", gpu=gpu).sequences == sequences
