"""Weights: measured figures, and laws of the division over ranks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconstruct.planner.errors import Unsupported
from reconstruct.predict.parts import Split
from reconstruct.predict.scheme import scheme_of
from reconstruct.predict.shape import shape_of
from reconstruct.predict.sizes import full_config
from reconstruct.predict.weights import Placement, stage_weights
from tests.reconstruct.predict.starts import GIB, around, decoder


def weights(config, *, tp=1, pp=1, ep=1, width=2, release=(0, 19), quantization=None, **place):
    shape, scheme = shape_of(config), scheme_of(config, quantization)
    return stage_weights(config, shape, scheme, Placement(Split(tp, ep), pp, width, release, **place))


EXACT = [
    ("meta-llama/Llama-3.1-8B-Instruct", {}, 14.99),
    ("meta-llama/Llama-3.1-8B-Instruct", {"tp": 2}, 7.51),
    ("meta-llama/Llama-3.1-8B-Instruct", {"pp": 2}, 7.51),
    ("meta-llama/Llama-3.1-8B-Instruct", {"width": 4}, 29.98),
    ("meta-llama/Llama-3.3-70B-Instruct", {"tp": 8, "release": (0, 20, 1)}, 16.46),
    ("RedHatAI/Llama-3.3-70B-Instruct-fp8-dynamic", {"tp": 2}, 33.88),
    ("RedHatAI/Qwen2.5-7B-Instruct-quantized.w8a8", {}, 8.14),
    ("Qwen/Qwen2.5-7B-Instruct", {}, 14.25),
    ("Qwen/Qwen2.5-7B-Instruct", {"release": (0, 24)}, 14.29),
    ("Qwen/Qwen2.5-7B-Instruct", {"tp": 4, "release": (0, 24)}, 3.63),
    ("moonshotai/Kimi-Dev-72B", {"tp": 4}, 34.01),
    ("microsoft/phi-4", {}, 27.39),
    ("ibm-granite/granite-3.1-2b-instruct", {}, 4.74),
    ("mistralai/Mixtral-8x7B-Instruct-v0.1", {"tp": 2}, 43.51),
    ("Qwen/Qwen3-30B-A3B-Instruct-2507", {}, 56.93),
    ("google/gemma-3-12b-it", {}, 23.31),
    ("meta-llama/Llama-4-Scout-17B-16E-Instruct", {"tp": 4}, 53.12),
]


@pytest.mark.parametrize(("model", "launch", "printed"), EXACT, ids=str)
def test_weights_are_what_model_loading_took(model, launch, printed):
    """Figures that start-ups printed; the nominal sum is right to the printed digit or one part in a thousand."""
    first = weights(full_config(model), **launch)[0]
    assert abs(first.nominal - printed * GIB) <= max(0.006 * GIB, 0.001 * printed * GIB)
    assert first.interval.meet(around(printed)) is not None


@pytest.mark.parametrize(
    ("model", "launch", "printed"),
    [
        ("openai/gpt-oss-20b", {"tp": 2}, 7.01),
        ("openai/gpt-oss-20b", {"release": (0, 13), "marlin": True}, 13.72),
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", {"release": (0, 31)}, 5.38),
        ("moonshotai/Kimi-VL-A3B-Instruct", {"tp": 2}, 15.53),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", {"quantization": "fp8", "release": (0, 22)}, 29.08),
    ],
)
def test_bands_hold_what_repacked_and_unusual_models_took(model, launch, printed):
    """Kernels that pad or copy: the stated band holds the printed figure and is no wider than a tenth."""
    interval = weights(full_config(model), **launch)[0].interval
    assert interval.meet(around(printed)) is not None
    assert interval.width <= 0.1 * printed * GIB


def test_embedding_model_has_no_output_layer():
    """Pooling drops the output matrix: 14.11 GiB of a model whose generating form takes 15.26."""
    config = full_config("Qwen/Qwen3-8B")
    whole, pooled = weights(config)[0].nominal, weights(config, pooling=True)[0].nominal
    assert 0 <= whole - pooled - 151936 * 4096 * 2 < 2 << 20


def test_tied_embeddings_stand_on_both_ends_of_a_pipeline():
    """First and last stage hold the one matrix each; a single stage holds it once."""
    tied, untied = decoder(tie_word_embeddings=True), decoder()
    assert weights(untied)[0].nominal - weights(tied)[0].nominal == 32000 * 1024 * 2
    assert weights(untied, pp=2)[1].nominal == weights(tied, pp=2)[1].nominal


def test_vocabulary_is_padded_to_64():
    """49155 rows become 49216."""
    more = weights(decoder(vocab_size=49155))[0].nominal
    assert more == weights(decoder(vocab_size=49216))[0].nominal


SHAPES = st.fixed_dictionaries(
    {
        "hidden_size": st.sampled_from([512, 1024, 3584]),
        "intermediate_size": st.sampled_from([1024, 2816, 18944]),
        "num_hidden_layers": st.integers(2, 9),
        "num_attention_heads": st.sampled_from([8, 16]),
        "num_key_value_heads": st.sampled_from([1, 2, 8]),
        "vocab_size": st.integers(1000, 200000),
        "tie_word_embeddings": st.booleans(),
        "head_dim": st.sampled_from([64, 128]),
    }
)


@given(SHAPES, st.sampled_from([1, 2, 4, 8]))
def test_tensor_ranks_hold_the_whole_and_what_is_shared(fields, ranks):
    """The ranks' tensors add up to the model's: no less, and no more than norms, caches and key heads held twice."""
    config = decoder(**fields)
    whole, share = (dict(weights(config, tp=n)[0].parts) for n in (1, ranks))
    for part in ("feed-forward", "embedding", "output"):
        assert share.get(part, 0) * ranks >= whole.get(part, 0)
        assert share.get(part, 0) * ranks <= whole.get(part, 0) * 1.01 + 64 * ranks * fields["hidden_size"] * 2
    assert share["norms"] == whole["norms"]
    assert whole["attention"] <= share["attention"] * ranks <= whole["attention"] * ranks


@given(SHAPES, st.integers(1, 4))
def test_pipeline_stages_add_up(fields, stages):
    """Stages share out the layers: their sum is the model, but for caches and a tied matrix held on both ends."""
    config = decoder(**fields)
    stages = min(stages, fields["num_hidden_layers"])
    whole = dict(weights(config)[0].parts)
    split = [dict(w.parts) for w in weights(config, pp=stages)]
    for part in ("attention", "feed-forward", "norms", "output"):
        assert sum(stage.get(part, 0) for stage in split) == whole.get(part, 0)
    twice = 2 if fields["tie_word_embeddings"] and stages > 1 else 1
    assert sum(stage.get("embedding", 0) for stage in split) == whole["embedding"] * twice


@given(SHAPES, st.sampled_from([(0, 19), (0, 24)]))
def test_interval_holds_the_nominal_sum(fields, release):
    """The band is around what it is a band of."""
    found = weights(decoder(**fields), release=release)[0]
    assert found.interval.contains(found.nominal)
    assert found.interval.contains(found.likely)
    assert found.nominal >= sum(size for _, size in found.parts)


def test_blocks_that_a_long_rope_cache_leaves_behind_cost_later_weights():
    """Under the split limit the 32, 32 and 64 MiB behind Llama 3.1's cache go to weights of 24, 24 and 56 MiB, uncut."""
    config = full_config("meta-llama/Llama-3.1-8B-Instruct")
    more = weights(config, tp=2, release=(0, 21))[0].nominal - weights(config, tp=2, release=(0, 20, 2))[0].nominal
    assert more == 24 << 20


def test_a_recurrent_first_layer_rotates_nothing():
    """The cache is made in the first layer with heads, once on each stage that has one."""
    parts = [dict(w.parts) for w in weights(full_config("Qwen/Qwen3-Next-80B-A3B-Instruct"), pp=48)]
    assert [("rotary cache" in stage) for stage in parts[:8]] == [False, False, False, True] * 2


@pytest.mark.parametrize(
    ("fields", "share"),
    [
        ({}, 1.0),
        ({"partial_rotary_factor": 0.5}, 0.5),
        ({"rotary_pct": 0.25}, 0.25),
        ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, 0.5),
        ({"partial_rotary_factor": 0.25, "rope_parameters": {"partial_rotary_factor": 0.5}}, 0.25),
    ],
)
def test_a_config_tells_which_part_of_a_head_rotates(fields, share):
    """Its own field outranks the rope's parameters, under each of its names."""
    whole, found = (dict(weights(decoder(**f))[0].parts)["rotary cache"] for f in ({}, fields))
    assert found == share * whole


@pytest.mark.parametrize("share", [-3, 0, 2, "a", True])
def test_what_is_no_part_of_a_head_is_refused(share):
    with pytest.raises(Unsupported, match="share of a head"):
        weights(decoder(partial_rotary_factor=share))


def test_the_tower_of_qwen2_vl_is_as_wide_as_its_own_embedding():
    """Its config's hidden_size is the text model's: 8.3 billion weights, not 13."""
    parts = dict(weights(full_config("Qwen/Qwen2-VL-7B-Instruct"))[0].parts)
    assert 1.2 * GIB < parts["vision"] < 1.3 * GIB
