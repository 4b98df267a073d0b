"""The activation peak: measured figures, and how it moves with the settings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconstruct.predict.ledger import predict
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


def test_only_the_last_stage_samples():
    """A first pipeline stage peaks in its forward pass."""
    found = predict(scenario(pipeline_parallel_size=2))
    first, last = (likely["transient_peak_headroom"] for likely in found.expected)
    assert first < last
