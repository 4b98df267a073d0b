"""The activation peak: measured figures, and how it moves with the settings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconstruct.predict.forward import forward_cost
from reconstruct.predict.ledger import predict
from reconstruct.predict.sizes import full_config
from reconstruct.predict.workspaces import expert_workspace
from tests.reconstruct.predict.starts import GIB, around, decoder, scenario

MEASURED = [
    ("meta-llama/Llama-3.1-8B-Instruct", {}, 1.89),
    ("meta-llama/Llama-3.1-8B-Instruct", {"dtype": "float32"}, 2.21),
    ("Qwen/Qwen2.5-7B-Instruct", {"tensor_parallel_size": 2}, 2.21),
    ("microsoft/phi-4", {}, 1.52),
    ("ibm-granite/granite-3.1-2b-instruct", {}, 0.75),
    ("moonshotai/Kimi-Dev-72B", {"tensor_parallel_size": 4}, 2.29),
    ("mistralai/Mixtral-8x7B-Instruct-v0.1", {"tensor_parallel_size": 2}, 1.21),
    ("google/gemma-3-27b-it", {}, 3.99),
    ("Qwen/Qwen3-4B", {"version": "0.10.2", "max_num_batched_tokens": 8192, "batched_tokens_given": True}, 5.59),
    ("Qwen/Qwen2.5-1.5B-Instruct",
     {"version": "0.6.6.post1", "gpu": "A40", "max_model_len": 4096, "utilization": 0.9}, 1.40),
]  # fmt: skip


@pytest.mark.parametrize(("model", "launch", "printed"), MEASURED, ids=str)
def test_peak_is_within_two_percent_of_what_was_measured(model, launch, printed):
    """Printed peaks of five releases, sampler- and forward-bound."""
    found = predict(scenario(model, **launch))
    likely = found.expected[0]["transient_peak_headroom"]
    assert abs(likely - printed * GIB) <= 0.02 * printed * GIB
    assert found.engine.ranks[0].account.interval("transient_peak_headroom").meet(around(printed)) is not None


def headroom(**options):
    return predict(scenario(config=decoder(), **options)).expected[0]["transient_peak_headroom"]


@given(st.integers(1, 1024), st.integers(1, 1024), st.sampled_from(["0.10.2", "0.19.0", "0.27.1", "0.33.0"]))
def test_more_sequences_never_need_less(first, second, version):
    """Logits are rows of the sampling step."""
    low, high = sorted((first, second))
    small, large = (headroom(version=version, max_num_seqs=n) for n in (low, high))
    if version == "0.10.2" or low >= 8 or high < 8:  # eight rows are where another sampler takes over
        assert small <= large


@given(st.integers(256, 16384), st.integers(256, 16384))
def test_more_batched_tokens_never_need_less(first, second):
    """Hidden states are rows of the forward pass."""
    low, high = sorted((first, second))
    options = {"batched_tokens_given": True, "max_num_seqs": 64}
    assert headroom(max_num_batched_tokens=low, **options) <= headroom(max_num_batched_tokens=high, **options)


def test_the_sampler_of_0_17_needs_less_than_half():
    """Sorting all logits went: 4.8 GiB became 1.9."""
    old, new = (predict(scenario(version=v)).expected[0]["transient_peak_headroom"] for v in ("0.16.0", "0.17.0"))
    assert new < old / 2


A40 = {"version": "0.25.1", "gpu": "A40", "max_model_len": 32768, "utilization": 0.92}
STARTED = [
    ("Qwen/Qwen2.5-0.5B-Instruct", A40, True, 39.60),
    ("Qwen/Qwen2.5-7B-Instruct", A40, True, 25.46),
    ("Qwen/Qwen2.5-7B-Instruct", A40, False, 26.23),
    ("Qwen/Qwen2.5-7B-Instruct", A40 | {"tensor_parallel_size": 2}, True, 33.15),
    ("Qwen/Qwen2.5-7B-Instruct", A40 | {"tensor_parallel_size": 4}, True, 36.93),
    ("Qwen/Qwen2.5-7B-Instruct", A40 | {"pipeline_parallel_size": 2}, True, 32.66),
    ("Qwen/Qwen2.5-7B-Instruct", A40 | {"pipeline_parallel_size": 2}, False, 33.44),
    ("Qwen/Qwen2.5-7B-Instruct",
     {"version": "0.19.1", "gpu": "RTX-3090", "max_model_len": 4096, "utilization": 0.9}, True, 5.82),
    ("Qwen/Qwen2.5-7B-Instruct",
     {"version": "0.19.1", "gpu": "RTX-3090", "max_model_len": 4096, "utilization": 0.9}, False, 6.28),
]  # fmt: skip


@pytest.mark.parametrize(("model", "launch", "compiles", "printed"), STARTED, ids=str)
def test_a_start_that_compiles_has_the_less_that_was_seen(model, launch, compiles, printed):
    """M of starts that compiled their graphs, and of the same that loaded them: the first rank's, as printed."""
    found = predict(scenario(model, compiles=compiles, **launch))
    likely = found.expected[0]["available_kv_cache_memory"]
    assert abs(likely - printed * GIB) <= 0.01 * printed * GIB
    assert found.engine.ranks[0].account.interval("available_kv_cache_memory").meet(around(printed)) is not None


def test_a_first_pipeline_stage_peaks_where_it_compiles():
    """Llama-3.1-8B in two stages on H100: 128,256 x 4,096 embeddings and two hidden states of 8,192 tokens."""
    found = predict(scenario("meta-llama/Llama-3.1-8B-Instruct", pipeline_parallel_size=2))
    assert found.expected[0]["transient_peak_headroom"] == 2 * 4096 * (128256 + 2 * 8192)
    assert around(1.10).contains(found.expected[0]["transient_peak_headroom"])


@given(
    st.integers(1, 1024), st.integers(256, 16384), st.sampled_from([1, 2]), st.sampled_from([1, 2]),
    st.sampled_from(["0.17.1", "0.19.0", "0.25.1", "0.33.0"]), st.booleans(),
)  # fmt: skip
def test_compiled_graphs_never_need_more(sequences, tokens, tensor, pipeline, version, eager):
    """Whether a start compiles moves H only up, not at all in eager mode, and not told it may be either."""
    options = {
        "max_num_seqs": sequences, "max_num_batched_tokens": tokens, "batched_tokens_given": True, "version": version,
        "tensor_parallel_size": tensor, "pipeline_parallel_size": pipeline, "enforce_eager": eager,
    }  # fmt: skip
    loaded, anew, untold = (predict(scenario(config=decoder(), compiles=c, **options)) for c in (False, True, None))
    for stage in range(pipeline):
        name = "transient_peak_headroom"
        assert loaded.expected[stage][name] <= anew.expected[stage][name]
        bands = [p.engine.ranks[stage].account.interval(name) for p in (loaded, anew, untold)]
        assert bands[2] == bands[0].hull(bands[1])
        if eager or stage:
            assert bands[0] == bands[1]


def test_what_experts_keep_is_in_the_peak_and_in_what_stays_alike():
    """From 0.27 on H is a peak less what stays: scratch that is not known moves C alone, not H as well.

    On B200 the experts' kernels keep up to 512 MiB, Triton's, which Hopper runs, keep that for sure.
    """
    options = {"version": "0.29.0", "compiles": False, "max_num_batched_tokens": 8192, "batched_tokens_given": True}
    unknown, known = (
        predict(scenario("Qwen/Qwen3-30B-A3B", gpu=gpu, **options)).engine.ranks[0].account
        for gpu in ("B200", "H100-80GB")
    )
    bands = [account.interval("transient_peak_headroom") for account in (unknown, known)]
    assert unknown.interval("total_consumed").width == known.interval("total_consumed").width + GIB // 2
    assert bands[0] == bands[1]


def test_only_the_last_stage_samples():
    """A first pipeline stage peaks in its forward pass."""
    found = predict(scenario(pipeline_parallel_size=2))
    first, last = (likely["transient_peak_headroom"] for likely in found.expected)
    assert first < last


def scratch(model, **options):
    """Give the scratch of a model's experts, in MiB."""
    found = expert_workspace(predict(scenario(model, **options)).subjects[0])
    return [end / (1 << 20) for end in found.bytes]


MOE, BLOCKS = "Qwen/Qwen3-30B-A3B", "Qwen/Qwen3-30B-A3B-FP8"


@pytest.mark.parametrize(
    ("model", "options", "low", "high"),
    [
        (MOE, {}, 512, 512),
        (MOE, {"version": "0.20.2"}, 0, 512),
        (MOE, {"version": "0.25.1"}, 512, 512),
        (MOE, {"version": "0.25.1", "gpu": "B200"}, 0, 512),
        (MOE, {"version": "0.22.1", "quantization": "fp8"}, 512, 512),
        (BLOCKS, {}, 512, 512),
        (BLOCKS, {"gpu": "A100-80GB", "max_num_batched_tokens": 8192, "batched_tokens_given": True}, 512, 512),
        (BLOCKS, {"version": "0.16.0"}, 0, 640),
        (BLOCKS, {"expert_parallel": True, "tensor_parallel_size": 2}, 0, 576),
    ],
)
def test_scratch_of_experts_is_that_of_the_kernels_a_release_takes(model, options, low, high):
    """8192 tokens x 8 experts x 2 bytes x (2048 + 2048); DeepGEMM rounds 128 experts up to 128 rows each."""
    assert scratch(model, **options) == [low, high]


def test_experts_without_a_scheme_run_in_one_function_until_0_14():
    """8192 tokens x 8 experts x 2 bytes x (2048 + 768), and from torch 2.9 on the result beside the input."""
    assert scratch(MOE, version="0.11.0") == [352, 352]
    assert scratch(MOE, version="0.13.0") == [352 + 32, 352 + 32]
    assert scratch(MOE, version="0.14.0") == [512, 512]
    kept = [expert_workspace(predict(scenario(MOE, version=v)).subjects[0]).persistent for v in ("0.13.0", "0.14.0")]
    assert kept == [False, True]


def test_passes_of_the_experts_are_bounded_where_there_are_passes():
    """0.12 to 0.17 take 16384 tokens at a time and add the results of all up; 0.18.1 takes them all."""
    options = {"max_num_batched_tokens": 32768, "batched_tokens_given": True}
    assert scratch(MOE, version="0.17.1", **options) == [1024 + 128, 1024 + 128]
    assert scratch(MOE, version="0.19.0", **options) == [2048, 2048]


def forward(model, config=None, **options):
    """Give the forward pass of the first stage, in numbers a token."""
    subject = predict(scenario(model, config=config, **options)).subjects[0]
    cost = forward_cost(subject, expert_workspace(subject))
    assert cost.low == cost.likely
    return cost.likely / (subject.settled.batched_tokens * subject.settled.width)


def test_a_model_of_experts_alone_has_no_dense_feed_forward():
    """Its intermediate_size is nobody's width, and attention the widest; one dense layer of 6144 makes it one's."""
    alone, some = (full_config(MOE) | {"mlp_only_layers": layers} for layers in ([], [3]))
    assert forward(MOE, alone) == 4 * 4096 + 3 * 512 + 2 * 2048
    assert forward(MOE, some) == 4096 + 2 * 2048 + 3 * 6144


@pytest.mark.parametrize(
    ("model", "options", "numbers"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", {}, 4096 + 3 * 4096 + 3 * 14336),
        ("meta-llama/Llama-3.1-8B-Instruct", {"max_num_batched_tokens": 8448}, 4096 + 2 * 4096 + 3 * 14336),
        ("meta-llama/Llama-3.1-8B-Instruct", {"max_num_batched_tokens": 8448, "version": "0.11.0"},
         4096 + 3 * 4096 + 3 * 14336),
        ("meta-llama/Llama-3.1-8B-Instruct", {"max_num_batched_tokens": 8448, "enforce_eager": True},
         3 * 4096 + 3 * 14336),
        ("meta-llama/Llama-3.1-8B-Instruct", {"tensor_parallel_size": 4}, 1024 + 3 * 4096 + 3 * 3584),
        ("meta-llama/Llama-3.1-8B-Instruct", {"tensor_parallel_size": 8}, 512 + 2 * 4096 + 2 * 4096 + 1792),
        ("meta-llama/Llama-3.1-8B-Instruct", {"tensor_parallel_size": 8, "max_num_batched_tokens": 8448}, 512 + 4 * 4096),
        ("meta-llama/Llama-3.1-8B-Instruct", {"tensor_parallel_size": 4, "max_num_batched_tokens": 8448},
         1024 + 3 * 4096 + 2 * 3584),
        ("Qwen/Qwen3-4B", {}, 4096 + 2 * 2560 + 3 * 9728),
        ("google/gemma-3-12b-it", {}, 4096 + 2 * 3840 + 3 * 15360),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", {"tensor_parallel_size": 2}, 2048 + 4 * 4096),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", {"version": "0.12.0"},
         4096 + 4 * 4096 + 2 * (14336 + 28672) + 4096),
    ],
)  # fmt: skip
def test_the_widest_layer_is_that_of_the_generated_code(model, options, numbers):
    """Buffers alive in what torch 2.10 and 2.11 generate for such a layer, as numbers a token; scratch where it is not kept."""
    given_tokens = {"batched_tokens_given": True} if "max_num_batched_tokens" in options else {}
    assert forward(model, **options, **given_tokens) == numbers


def test_peaks_of_forward_passes_meet_the_print():
    """0.59 GiB: Qwen3-4B, 8 sequences of 8192 tokens on RTX PRO 6000, 0.12.0; 0.08: Qwen3-Coder-30B on A100, 0.27.1, its
    graphs loaded, 2048 tokens; 0.23 GiB are printed with the graphs' estimate in them."""
    small = scenario("Qwen/Qwen3-4B", version="0.12.0", gpu="RTX-PRO-6000", max_num_seqs=8, max_num_batched_tokens=8192,
                     batched_tokens_given=True)  # fmt: skip
    assert around(0.59).contains(predict(small).expected[0]["transient_peak_headroom"])
    coder = scenario(
        "Qwen/Qwen3-Coder-30B-A3B-Instruct", version="0.27.1", gpu="A100-80GB", max_num_seqs=16, compiles=False
    )
    assert around(0.078, 0.009).contains(predict(coder).expected[0]["transient_peak_headroom"])
