"""Decoders from config.json: what is read, and what is refused with a reason."""

import pytest

from live_probe.rope import Ropes, RopeShape
from live_probe.shape import UnsupportedModelError, decoder_shape


def test_a_llama_config_is_read(config):
    """Names and widths."""
    shape = decoder_shape(config)
    assert (shape.layers, shape.hidden, shape.intermediate) == (2, 128, 384)
    assert (shape.heads, shape.kv_heads, shape.head_dim) == (4, 2, 32)
    assert (shape.query_size, shape.kv_size) == (128, 64)
    assert (shape.vocab, shape.vocab_rows) == (1000, 1024)
    assert shape.max_positions == 512
    assert shape.ropes == Ropes((RopeShape("default", 512, 32),), (0, 0))
    assert not any((shape.tied, shape.qkv_bias, shape.output_bias, shape.mlp_bias, shape.head_norms))


@pytest.mark.parametrize(
    ("family", "biases", "head_norms", "tied"),
    [
        ("llama", (False, False, False), False, False),
        ("mistral", (False, False, False), False, False),
        ("granite", (False, False, False), False, False),
        ("phi3", (False, False, False), False, False),
        ("qwen2", (True, False, False), False, False),
        ("qwen3", (False, False, False), True, False),
        ("gemma", (False, False, False), False, True),
        ("gemma2", (False, False, False), False, True),
        ("gemma3_text", (False, False, False), True, True),
    ],
)
def test_families_differ_in_what_no_field_tells(config, family, biases, head_norms, tied):
    """vllm/model_executor/models, the file of each."""
    shape = decoder_shape({**config, "model_type": family})
    assert (shape.qkv_bias, shape.output_bias, shape.mlp_bias) == biases
    assert (shape.head_norms, shape.tied) == (head_norms, tied)


@pytest.mark.parametrize(
    ("family", "biases"),
    [("llama", (True, True, True)), ("qwen2", (True, False, False)), ("qwen3", (True, False, False)),
     ("gemma", (False, False, False)), ("gemma2", (True, True, False)), ("gemma3_text", (True, True, False))],
)  # fmt: skip
def test_stated_biases_stand_where_the_class_asks_for_them(config, family, biases):
    """attention_bias and mlp_bias."""
    shape = decoder_shape({**config, "model_type": family, "attention_bias": True, "mlp_bias": True})
    assert (shape.qkv_bias, shape.output_bias, shape.mlp_bias) == biases


def test_a_head_may_be_wider_than_its_share_and_rotate_in_part(config):
    """head_dim; partial_rotary_factor, wherever it stands."""
    assert decoder_shape({**config, "head_dim": 64}).query_size == 256
    assert decoder_shape({**config, "partial_rotary_factor": 0.75}).ropes.caches[0].width == 24
    assert decoder_shape({**config, "rope_parameters": {"partial_rotary_factor": 0.5}}).ropes.caches[0].width == 16


@pytest.mark.parametrize(
    ("ranks", "heads", "kv_heads", "intermediate", "vocab_rows"),
    [(1, 4, 2, 384, 1024), (2, 2, 1, 192, 512), (4, 1, 1, 96, 256)],
)
def test_a_rank_has_its_share(config, ranks, heads, kv_heads, intermediate, vocab_rows):
    """QKVParallelLinear: fewer key heads than ranks are held by several."""
    shape = decoder_shape(config, ranks)
    assert (shape.heads, shape.kv_heads, shape.intermediate, shape.vocab_rows) == (
        heads,
        kv_heads,
        intermediate,
        vocab_rows,
    )
    assert (shape.hidden, shape.vocab, shape.ranks) == (128, 1000, ranks)


@pytest.mark.parametrize(("ranks", "what"), [(8, "heads"), (3, "intermediate_size|num_attention_heads")])
def test_ranks_that_cannot_share_are_refused(config, ranks, what):
    with pytest.raises(UnsupportedModelError, match=what):
        decoder_shape(config, ranks)


def test_fields_left_out_have_the_families_defaults(config):
    """num_key_value_heads, head_dim and tying."""
    bare = {key: value for key, value in config.items() if key != "num_key_value_heads"}
    shape = decoder_shape(bare)
    assert (shape.kv_heads, shape.tied) == (4, False)


@pytest.mark.parametrize(
    ("scaling", "rows"),
    [
        (None, 512),
        ({"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 64}, 512),
        ({"type": "linear", "factor": 4.0}, 2048),
        ({"type": "dynamic", "factor": 2.0}, 1024),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256}, 1024),
        ({"rope_type": "default"}, 512),
        ({"rope_type": "longrope", "original_max_position_embeddings": 64}, 512),
        (
            {"full_attention": {"rope_type": "linear", "factor": 2.0}, "sliding_attention": {"rope_type": "default"}},
            1024,
        ),
    ],
)
def test_the_rope_cache_grows_with_some_scalings(config, scaling, rows):
    """vllm/model_executor/layers/rotary_embedding."""
    assert decoder_shape({**config, "rope_scaling": scaling}).ropes.caches[0].rows == rows


@pytest.mark.parametrize(
    ("written", "served"),
    [("bfloat16", "bfloat16"), ("float16", "float16"), ("float32", "bfloat16"), (None, "float16")],
)
def test_dtype_auto_serves_16_bits(config, written, served):
    """--dtype auto."""
    fields = {key: value for key, value in config.items() if key != "torch_dtype"}
    assert decoder_shape(fields if written is None else {**fields, "torch_dtype": written}).dtype == served
    assert decoder_shape({**fields, "dtype": "float16"}).dtype == "float16"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model_type": "deepseek_v3"}, "deepseek_v3"),
        ({"model_type": None}, "None"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantised"),
        ({"num_local_experts": 8}, "experts"),
        ({"kv_lora_rank": 512}, "latent"),
        ({"vision_config": {"depth": 2}}, "vision"),
        ({"layer_types": ["full_attention", "linear_attention"]}, "linear_attention"),
        ({"partial_rotary_factor": 2}, "partial_rotary_factor"),
        ({"rope_scaling": {"rope_type": "mrope"}}, "mrope"),
        ({"rope_scaling": [1]}, "no object"),
        ({"model_type": "gemma3_text", "layer_types": ["full_attention"]}, "1 of 2 layers"),
        ({"model_type": "gemma3_text", "sliding_window_pattern": "LG"}, "sliding_window_pattern"),
        ({"rope_scaling": {"rope_type": "linear", "factor": "2"}}, "no number"),
        ({"hidden_size": 0}, "hidden_size"),
        ({"num_hidden_layers": "two"}, "num_hidden_layers"),
        ({"vocab_size": None}, "vocab_size"),
        ({"vocab_size": 10**30}, "vocab_size"),
        ({"num_hidden_layers": 10**5}, "num_hidden_layers"),
        ({"num_attention_heads": 4, "num_key_value_heads": 3}, "num_key_value_heads"),
        ({"hidden_size": 2, "head_dim": None}, "head_dim"),
        ({"torch_dtype": "float8"}, "float8"),
    ],
)
def test_everything_else_is_refused_with_the_reason_and_a_way_out(config, change, reason):
    """Never a figure for a model that is not written out."""
    with pytest.raises(UnsupportedModelError, match=reason) as caught:
        decoder_shape({**config, **change})
    assert "--engine vllm" in str(caught.value)


@pytest.mark.parametrize(
    "window",
    [
        {"model_type": "mistral", "sliding_window": 4096},
        {"model_type": "qwen2", "sliding_window": 4096, "use_sliding_window": True},
        {"layer_types": ["full_attention", "sliding_attention"], "sliding_window": 128},
    ],
)
def test_a_window_changes_nothing_of_the_decoder(config, window):
    """Only how the cache is planned."""
    plain = {key: value for key, value in window.items() if key == "model_type"}
    assert decoder_shape({**config, **window}) == decoder_shape({**config, **plain})
