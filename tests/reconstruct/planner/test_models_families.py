"""What each family's layers keep: windows, shared caches, own head counts, and what is refused."""

from __future__ import annotations

import pytest

from reconstruct.planner.errors import Unsupported, WouldNotStart
from tests.reconstruct.planner import configs
from tests.reconstruct.planner.config_cases import counted, specs

FULL, SLIDING, CHUNKED, CROSS, MAMBA = (
    "FullAttentionSpec",
    "SlidingWindowSpec",
    "ChunkedLocalAttentionSpec",
    "CrossAttentionSpec",
    "MambaSpec",
)


def _like(architecture, model_type, **fields):
    return {**configs.LLAMA_8B, "architectures": [architecture], "model_type": model_type, **fields}


def _windows(config, **settings):
    return [spec.sliding_window for spec in specs(config, **settings)]


@pytest.mark.parametrize(
    ("architecture", "model_type", "fields", "windows"),
    [
        ("MistralForCausalLM", "mistral", {"sliding_window": 4096}, [4096] * 4),
        ("MistralForCausalLM", "mistral", {"sliding_window": None}, [None] * 4),
        ("MistralForCausalLM", "mistral", {"sliding_window": 0}, [None] * 4),
        ("Qwen2ForCausalLM", "qwen2", {"sliding_window": 4096, "use_sliding_window": False}, [None] * 4),
        (
            "Qwen2ForCausalLM",
            "qwen2",
            {"sliding_window": 4096, "use_sliding_window": True, "max_window_layers": 0},
            [4096] * 4,
        ),
        ("Phi3ForCausalLM", "phi3", {"sliding_window": 2047}, [2047] * 4),
        ("Gemma2ForCausalLM", "gemma2", {"sliding_window": 4096, "head_dim": 128}, [4096, None] * 2),
        ("Cohere2ForCausalLM", "cohere2", {"sliding_window": 4096}, [4097, 4097, 4097, None]),
        ("Olmo3ForCausalLM", "olmo3", {"sliding_window": 4096}, [4096, 4096, 4096, None]),
        ("Exaone4ForCausalLM", "exaone4", {"sliding_window": None}, [None] * 4),
    ],
)
def test_windows_by_family(architecture, model_type, fields, windows):
    """As the configuration classes derive their layer types, and the model classes use them."""
    assert _windows(_like(architecture, model_type, num_hidden_layers=4, **fields)) == windows


def test_gemma_3_has_a_full_layer_in_six():
    """62 layers: 52 windows and 10 full."""
    assert counted(configs.GEMMA_27B) == {(SLIDING, 16, 16, 128): 52, (FULL, 16, 16, 128): 10}


def test_gpt_oss_counts_its_windows_itself():
    """Every other layer, whatever layer_types says."""
    assert _windows({**configs.GPT_OSS_20B, "layer_types": ["full_attention", "sliding_attention"] * 12})[:2] == [
        128,
        None,
    ]


def test_shared_caches_have_no_spec():
    """Gemma 3n E4B: 35 layers, of which 15 reuse earlier caches."""
    config = _like(
        "Gemma3nForCausalLM",
        "gemma3n_text",
        num_hidden_layers=35,
        num_kv_shared_layers=15,
        sliding_window=512,
        head_dim=256,
    )
    assert counted(config) == {(SLIDING, 16, 8, 256): 16, (FULL, 16, 8, 256): 4}


def test_gemma_4_full_layers_have_their_own_heads():
    """Keys equal values: two wide key heads in full layers, eight narrow ones in windows."""
    config = _like(
        "Gemma4ForCausalLM",
        "gemma4_text",
        num_hidden_layers=6,
        head_dim=256,
        global_head_dim=512,
        num_global_key_value_heads=2,
        attention_k_eq_v=True,
        sliding_window=1024,
    )
    assert counted(config) == {(SLIDING, 16, 8, 256): 5, (FULL, 16, 2, 512): 1}


def test_llama_4_attends_in_chunks_except_every_fourth_layer():
    """Layers without rotary embedding see everything."""
    config = _like("Llama4ForCausalLM", "llama4_text", num_hidden_layers=8, head_dim=128, attention_chunk_size=8192)
    assert counted(config) == {(CHUNKED, 16, 8, 128): 6, (FULL, 16, 8, 128): 2}


@pytest.mark.parametrize(
    ("fields", "kv_heads"),
    [
        ({"multi_query": True, "new_decoder_architecture": False}, 1),
        ({"multi_query": True, "new_decoder_architecture": True, "num_kv_heads": 8}, 8),
    ],
)
def test_falcon_key_heads(fields, kv_heads):
    """multi_query counts only in the old architecture; the cache dtype is ignored by rotary layers."""
    config = {**_like("FalconForCausalLM", "falcon", hidden_size=2048), **fields}
    found = specs(config, kv_cache_dtype="fp8")
    assert {(spec.num_kv_heads, spec.dtype) for spec in found} == {(kv_heads, "bfloat16")}


def test_blocks_without_attention_have_no_spec():
    """DeciLM: block_configs decide."""
    blocks = [{"attention": {"n_heads_in_group": 8}}, {"attention": {"no_op": True, "n_heads_in_group": None}}] * 2
    config = _like("DeciLMForCausalLM", "nemotron-nas", num_hidden_layers=4, block_configs=blocks)
    assert counted(config) == {(FULL, 16, 4, 128): 2}


def test_whisper_caches_what_it_reads_of_the_encoder():
    """Self attention and cross attention per decoder layer."""
    config = {
        "architectures": ["WhisperForConditionalGeneration"],
        "model_type": "whisper",
        "torch_dtype": "float16",
        "d_model": 1280,
        "decoder_layers": 4,
        "decoder_attention_heads": 20,
        "encoder_attention_heads": 20,
        "max_target_positions": 448,
    }
    assert counted(config, max_model_len=None) == {(FULL, 16, 20, 64): 4, (CROSS, 16, 20, 64): 4}


def test_an_encoder_keeps_nothing():
    """BERT has no spec."""
    assert specs(_like("BertModel", "bert"), runner="pooling") == []


def test_indexers_can_be_shared():
    """index_topk_freq 4: an indexer in layers 0 to 2 and every fourth after, as the offset of 2 has it."""
    found = counted({**configs.DEEPSEEK_V32, "index_topk_freq": 4, "num_hidden_layers": 10})
    assert found["MLAAttentionSpec", 64, 1, 132] == 4
    assert found["MLAAttentionSpec", 64, 1, 576] == 10


def test_deepseek_v4_keeps_windows_compressed_rows_and_compressor_states():
    """One layer of each compression: 1, 4 and 128 tokens a state."""
    config = {
        **configs.DEEPSEEK_V3,
        "architectures": ["DeepseekV4ForCausalLM"],
        "model_type": "deepseek_v4",
        "head_dim": 512,
        "sliding_window": 128,
        "index_head_dim": 128,
        "num_hidden_layers": 3,
        "compress_ratios": [0, 4, 128],
    }
    shapes = [(spec.kind, spec.block_size, spec.head_size, spec.tokens_per_state) for spec in specs(config)]
    window, state = "SlidingWindowMLASpec", "SlidingWindowMLASpec"
    rows = "MLAAttentionSpec"
    assert shapes == [
        (window, 64, 512, 1),
        (window, 64, 512, 1),
        (rows, 256, 132, 4),
        (state, 4, 512, 1),
        (rows, 256, 512, 4),
        (state, 4, 2048, 1),
        (window, 64, 512, 1),
        (rows, 256, 512, 128),
        (state, 8, 1024, 1),
    ]


@pytest.mark.parametrize(
    ("config", "method", "extra"),
    [
        (configs.DEEPSEEK_V3, "mtp", 1),
        (configs.DEEPSEEK_V32, "mtp", 2),
        (configs.QWEN_NEXT, "mtp", 1),
        (configs.LLAMA_8B, "ngram", 0),
    ],
)
def test_drafts_add_their_layers_once(config, method, extra):
    """However many tokens are proposed, each module caches once."""
    for tokens in (1, 3):
        drafted = specs(config, speculative_config={"method": method, "num_speculative_tokens": tokens})
        assert len(drafted) - len(specs(config)) == extra


def test_an_eagle_draft_takes_the_window_of_the_whole_target():
    """Its layers read the target's cache settings."""
    draft = {**configs.LLAMA_8B, "architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1}
    target = _like("MistralForCausalLM", "mistral", sliding_window=4096)
    speculation = {"method": "eagle3", "num_speculative_tokens": 3, "config": draft}
    assert _windows(target, speculative_config=speculation)[-1] == 4096
    assert _windows(configs.LLAMA_8B, speculative_config=speculation)[-1] is None


def test_a_draft_without_its_config_is_refused():
    """The number of its layers stands nowhere else."""
    with pytest.raises(Unsupported, match=r"config\.json"):
        specs(configs.LLAMA_8B, speculative_config={"method": "eagle3", "num_speculative_tokens": 3})


@pytest.mark.parametrize(("ranks", "heads"), [(1, 8), (2, 4), (8, 1), (16, 1)])
def test_key_heads_are_split_then_replicated(ranks, heads):
    """A rank holds at least one key head."""
    assert {spec.num_kv_heads for spec in specs(configs.LLAMA_8B, tensor_parallel_size=ranks)} == {heads}


@pytest.mark.parametrize(("kv_heads", "ranks"), [(8, 3), (6, 4), (5, 2)])
def test_uneven_head_counts_are_refused(kv_heads, ranks):
    """Neither the queries nor the key heads divide."""
    with pytest.raises(WouldNotStart):
        specs({**configs.LLAMA_8B, "num_key_value_heads": kv_heads}, tensor_parallel_size=ranks)


def test_a_nested_language_model_is_found():
    """Multimodal configs hold the decoder under text_config; missing keys are the class's own."""
    config = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "model_type": "gemma3",
        "torch_dtype": "bfloat16",
        "text_config": {
            "model_type": "gemma3_text",
            "hidden_size": 2560,
            "num_hidden_layers": 34,
            "sliding_window": 1024,
        },
    }
    assert counted(config) == {(SLIDING, 16, 4, 256): 29, (FULL, 16, 4, 256): 5}


def test_a_standard_decoder_needs_no_name():
    """Only the usual fields: the geometry is in the config."""
    assert counted(_like("NeverHeardOfForCausalLM", "never_heard_of")) == {(FULL, 16, 8, 128): 32}


@pytest.mark.parametrize(
    ("config", "missing"),
    [
        (_like("NeverHeardOfForCausalLM", "never_heard_of", kv_channels=64), "kv_channels"),
        (_like("NeverHeardOfModel", "never_heard_of"), "NeverHeardOfModel"),
        ({**configs.LLAMA_8B, "architectures": []}, "architecture"),
        ({key: value for key, value in configs.LLAMA_8B.items() if key != "torch_dtype"}, "dtype"),
        ({key: value for key, value in configs.GRANITE_4.items() if key != "layer_types"}, "layer_types"),
    ],
)
def test_what_is_missing_is_named(config, missing):
    """Never a guess: the message says what the config lacks."""
    with pytest.raises(Unsupported, match=missing):
        specs(config)


def test_recurrent_groups_split_or_there_is_one():
    """mamba_mixer2.py: two groups over four ranks are refused, one is copied to every rank."""
    with pytest.raises(WouldNotStart, match="groups"):
        specs({**configs.GRANITE_4, "mamba_n_groups": 2}, tensor_parallel_size=4)
    state = next(spec for spec in specs(configs.GRANITE_4, tensor_parallel_size=4) if spec.kind == MAMBA)
    assert state.shapes == ((3, 1024), (12, 64, 128))


@pytest.mark.parametrize(
    "config",
    [
        _like("Gemma3nForCausalLM", "gemma3n_text", sliding_window=512, head_dim=256),
        _like("BertModel", "bert"),
        _like("Mamba2ForCausalLM", "mamba2", num_heads=128, head_dim=64, state_size=128, n_groups=8),
    ],
)
def test_classes_without_pipeline_support_are_refused_in_stages(config):
    """config/model.py verify_with_parallel_config."""
    with pytest.raises(WouldNotStart, match="pipeline"):
        specs(config, pipeline_parallel_size=2)
