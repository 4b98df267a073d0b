"""The whole ledger: measured starts, laws, and verdicts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconstruct.interval import Interval
from reconstruct.planner.errors import Unsupported
from reconstruct.predict.changes import changes_of
from reconstruct.predict.ledger import predict
from reconstruct.predict.scenario import Fixed
from tests.reconstruct.predict.starts import GIB, around, decoder, scenario

STARTS = [
    ("meta-llama/Llama-3.1-8B-Instruct", {}, 58.11, 476_016),
    ("meta-llama/Llama-3.1-8B-Instruct", {"dtype": "float32"}, 42.80, 175_296),
    ("meta-llama/Llama-3.1-8B-Instruct", {"tensor_parallel_size": 2}, 63.76, 1_044_688),
    ("Qwen/Qwen2.5-7B-Instruct", {"kv_cache_dtype": "fp8"}, 58.53, 2_192_000),
    ("google/gemma-3-12b-it", {}, 47.72, 130_304),
    ("microsoft/phi-4", {}, 46.08, 241_568),
    ("moonshotai/Kimi-Dev-72B", {"tensor_parallel_size": 4}, 36.72, 481_296),
    ("mistralai/Mixtral-8x7B-Instruct-v0.1", {"tensor_parallel_size": 2}, 28.44, 465_936),
    ("openai/gpt-oss-20b", {"tensor_parallel_size": 2, "utilization": None}, 59.32, 2_591_776),
    ("RedHatAI/Llama-3.3-70B-Instruct-fp8-dynamic", {"tensor_parallel_size": 2}, 37.28, 244_304),
]


@pytest.mark.parametrize(("model", "launch", "memory", "tokens"), STARTS, ids=str)
def test_cache_memory_and_tokens_of_real_starts(model, launch, memory, tokens):
    """0.19.0 on H100: the band holds what was printed, the likely value is within half a percent, the band below three."""
    found = predict(scenario(model, **launch))
    rank, capacity = found.engine.ranks[0], found.engine.capacity
    assert rank.account.interval("available_kv_cache_memory").meet(around(memory)) is not None
    assert abs(found.expected[0]["available_kv_cache_memory"] - memory * GIB) < 0.005 * memory * GIB
    band = capacity.interval("kv_cache_tokens")
    assert band.contains(tokens)
    assert band.width < 0.03 * tokens
    assert found.outcome == "starts"


ELSEWHERE = [
    ("Qwen/Qwen3-4B", "H100-80GB", "0.10.2", 0.9, {"max_num_batched_tokens": 8192}, 58.05),
    ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "V100-32GB", "0.7.1", None, {"max_model_len": 2048}, 12.80),
    ("Qwen/Qwen2.5-7B-Instruct", "V100-32GB", "0.8.5", None, {"max_model_len": 32768}, 9.88),
    ("Qwen/Qwen3-VL-30B-A3B-Instruct", "H100-NVL", "0.13.0", None, {"compiles": True}, 19.40),
    ("Qwen/Qwen2.5-1.5B-Instruct", "A40", "0.6.6.post1", 0.9, {"max_model_len": 4096}, 35.55),
    ("meta-llama/Llama-3.1-8B-Instruct", "A100-40GB", "0.11.0", None, {"max_model_len": 4096}, 19.24),
    ("meta-llama/Meta-Llama-3-8B-Instruct", "H200", "0.11.2", None,
     {"max_model_len": 1024, "max_num_batched_tokens": 2048}, 105.97),
    ("Qwen/Qwen3-4B", "RTX-PRO-6000", "0.12.0", 0.5, {"max_num_seqs": 8, "max_num_batched_tokens": 8192}, 39.28),
    ("Qwen/Qwen3-30B-A3B-Instruct-2507", "H200", "0.15.0", 0.5, {"max_model_len": 16000}, 6.71),
    ("meta-llama/Llama-3.3-70B-Instruct", "H100-80GB", "0.20.1", 0.85,
     {"tensor_parallel_size": 8, "max_model_len": 16384, "charge_graphs": False}, 46.40),
    ("Qwen/Qwen3-30B-A3B-Instruct-2507", "H100-80GB", "0.22.1", None,
     {"quantization": "fp8", "max_num_seqs": 64, "max_num_batched_tokens": 8192}, 42.54),
    ("Qwen/Qwen2.5-7B-Instruct", "A40", "0.25.1", None, {"max_model_len": 32768}, 26.23),
    ("Qwen/Qwen2.5-7B-Instruct", "A40", "0.25.1", None, {"max_model_len": 32768, "tensor_parallel_size": 4}, 36.93),
    ("Qwen/Qwen3-Coder-30B-A3B-Instruct", "A100-80GB", "0.27.0", 0.9, {"max_model_len": 131072, "max_num_seqs": 16}, 13.84),
    ("Qwen/Qwen3.5-27B", "RTX-PRO-6000", "0.29.0", 0.9, {"max_num_seqs": 256}, 31.24),
]  # fmt: skip


@pytest.mark.parametrize(("model", "gpu", "version", "utilization", "launch", "memory"), ELSEWHERE, ids=str)
def test_cache_memory_of_other_releases_and_cards(model, gpu, version, utilization, launch, memory):
    """Starts from 0.6 to 0.29 that are no part of the sweep behind most constants: inside a band below a tenth either way."""
    given = {"batched_tokens_given": "max_num_batched_tokens" in launch}
    found = predict(scenario(model, gpu=gpu, version=version, utilization=utilization, **launch, **given))
    band = found.engine.ranks[0].account.interval("available_kv_cache_memory")
    assert band.meet(around(memory)) is not None
    assert band.width <= 0.2 * memory * GIB
    assert abs(found.expected[0]["available_kv_cache_memory"] - memory * GIB) < 0.04 * memory * GIB


def test_an_integrated_card_shares_its_memory_with_the_host():
    """What is free at the start is anybody's guess, and the answer says so."""
    found = predict(scenario(gpu="GB10", version="0.20.2"))
    assert found.engine.ranks[0].account.interval("initial_free_memory").low < 10 * GIB
    assert any("integrated" in reason for reason in found.reasons)
    assert found.outcome == "may not start"


def test_a_band_too_wide_to_plan_with_says_so():
    """Beyond 15 % either way the answer calls itself none."""
    found = predict(scenario("Qwen/Qwen2.5-VL-7B-Instruct", gpu="RTX-4090", version="0.19.0"))
    assert any("no answer" in reason for reason in found.reasons)
    assert not any("no answer" in reason for reason in predict(scenario()).reasons)


def test_a_release_that_charges_graphs_has_less():
    """0.20.0 takes the estimate from the budget by default, and 0.92 of the card."""
    before, after = (predict(scenario(version=v, utilization=0.9)).expected[0] for v in ("0.19.0", "0.20.2"))
    assert before["cudagraph_memory_applied"] == 0
    taken = before["available_kv_cache_memory"] - after["available_kv_cache_memory"]
    assert taken == after["cudagraph_memory_applied"] > 0


CARDS = st.sampled_from(["H100-80GB", "A100-80GB", "H200", "B200", "L4", "RTX-4090", "T4", "MI300X"])
VERSIONS = st.sampled_from(
    ["0.6.6", "0.8.5", "0.9.1", "0.10.2", "0.13.0", "0.17.1", "0.20.2", "0.24.0", "0.27.1", "0.33.0"]
)


@given(CARDS, VERSIONS, st.sampled_from([1, 2]), st.sampled_from([1, 2]), st.booleans(), st.integers(1, 512))
def test_every_term_holds_its_likely_value(gpu, version, tp, pp, eager, sequences):
    """No likely value lies outside its band, and the ledger closes: M = R - C - H - G."""
    options = {
        "tensor_parallel_size": tp,
        "pipeline_parallel_size": pp,
        "enforce_eager": eager,
        "max_num_seqs": sequences,
    }
    found = predict(scenario(config=decoder(), gpu=gpu, version=version, utilization=0.9, **options))
    for rank, likely in zip(found.engine.ranks, found.expected, strict=True):
        for name, quantity in rank.account.quantities.items():
            assert quantity.interval.low <= quantity.interval.high
            assert quantity.interval.low - 1 <= likely[name] <= quantity.interval.high + 1, name
        rest = likely["requested_memory"] - likely["total_consumed"] - likely["transient_peak_headroom"]
        assert likely["available_kv_cache_memory"] == rest - likely["cudagraph_memory_applied"]


@given(VERSIONS, st.floats(0.3, 0.97), st.floats(0.3, 0.97))
def test_more_of_the_card_is_more_cache(version, first, second):
    """M and tokens never fall as the utilisation rises."""
    low, high = (predict(scenario(config=decoder(), version=version, utilization=u)) for u in sorted((first, second)))
    assert low.expected[0]["available_kv_cache_memory"] <= high.expected[0]["available_kv_cache_memory"]
    small, large = (p.engine.capacity.interval("num_blocks") for p in (low, high))
    assert small.low <= large.low
    assert small.high <= large.high


@given(st.integers(24, 140), st.integers(24, 140))
def test_a_larger_card_holds_no_less(first, second):
    """Monotone in T, all else equal."""
    pools = []
    for size in sorted((first, second)):
        base = scenario(config=decoder())
        card = base.hardware._replace(total_memory=Interval(size * GIB, size * GIB))
        pools.append(predict(base._replace(hardware=card, batched_tokens_given=True,
                                           launch=base.launch._replace(max_num_seqs=64))).expected[0])  # fmt: skip
    assert pools[0]["available_kv_cache_memory"] <= pools[1]["available_kv_cache_memory"]


def test_a_stated_term_replaces_the_models():
    """What the user knows is not predicted, and is marked as given."""
    known = Interval(10 * GIB, 10 * GIB)
    found = predict(scenario(fixed=(Fixed("model_memory", known),)))
    quantity = found.engine.ranks[0].account.get("model_memory")
    assert (quantity.interval, quantity.origin) == (known, "given")
    assert found.expected[0]["total_consumed"] > 10 * GIB


def test_a_stated_pool_is_planned_as_it_is():
    """--kv-cache-memory: blocks are exact, and nothing is checked against the budget."""
    found = predict(scenario(cache_bytes=10 * GIB))
    assert found.engine.capacity.interval("num_blocks") == Interval(5120, 5120)
    assert "memory for the cache" not in {check.name for check in found.checks}


@pytest.mark.parametrize(
    ("model", "options", "check"),
    [
        ("Qwen/Qwen3-14B", {"tensor_parallel_size": 5}, "configuration"),
        ("Qwen/Qwen3-30B-A3B-FP8", {"tensor_parallel_size": 8}, "configuration"),
        ("meta-llama/Llama-3.3-70B-Instruct", {}, "weights"),
        ("meta-llama/Llama-3.1-8B-Instruct", {"utilization": 0.999}, "free memory at the start"),
        ("meta-llama/Llama-3.1-8B-Instruct", {"gpu": "A10G", "max_model_len": 131072}, "one request of max_model_len"),
        ("meta-llama/Llama-3.1-8B-Instruct", {"utilization": 0.15}, "memory for the cache"),
    ],
)
def test_a_start_that_fails_names_its_check(model, options, check):
    """The first check that is not passed, in the engine's order."""
    found = predict(scenario(model, **options))
    assert found.outcome == "does not start"
    assert found.failing.name == check


def test_expert_parallel_lifts_the_block_rule():
    """Whole experts on a rank are not cut through their fp8 blocks."""
    options = {"tensor_parallel_size": 8, "expert_parallel": True}
    assert predict(scenario("Qwen/Qwen3-30B-A3B-FP8", **options)).outcome == "starts"


@pytest.mark.parametrize(
    ("model", "options", "change"),
    [
        ("meta-llama/Llama-3.3-70B-Instruct", {"max_model_len": 131072}, "--tensor-parallel-size 4"),
        ("meta-llama/Llama-3.1-8B-Instruct", {"utilization": 0.999}, "--gpu-memory-utilization 0.9"),
        ("meta-llama/Llama-3.1-8B-Instruct", {"gpu": "A10G", "max_model_len": 131072}, "--max-model-len"),
        ("meta-llama/Llama-3.1-8B-Instruct", {"utilization": 0.15}, "--gpu-memory-utilization 0."),
    ],
)
def test_the_smallest_change_starts(model, options, change):
    """Each change named makes the start certain, and the expected one comes first."""
    asked = scenario(model, **options)
    found = changes_of(asked, predict(asked))
    assert found[0].do.startswith(change)
    assert all(one.prediction.outcome == "starts" for one in found)


def test_no_more_cards_than_there_are():
    """With one card no change spreads the model."""
    asked = scenario("meta-llama/Llama-3.3-70B-Instruct")
    assert not any("tensor" in change.do for change in changes_of(asked, predict(asked), cards=1))


@pytest.mark.parametrize(
    "config",
    [
        decoder(architectures=["SomethingNewForCausalLM"]),
        {name: value for name, value in decoder().items() if name not in {"intermediate_size", "model_type"}},
        decoder(quantization_config={"quant_method": "hqq"}),
    ],
)
def test_what_is_not_known_is_refused(config):
    """An unknown class, a missing size, an unknown storage: no silent constant."""
    with pytest.raises(Unsupported):
        predict(scenario(config=config))


def test_what_is_not_modelled_says_so_and_widens():
    """Adapters, latent attention, encoders of any size: a reason each, and a wider band than a plain model's."""
    plain = predict(scenario()).engine.ranks[0].account.interval("transient_peak_headroom")
    adapters = predict(scenario(lora=True))
    assert adapters.engine.ranks[0].account.interval("transient_peak_headroom").width > plain.width
    assert any("LoRA" in reason for reason in adapters.reasons)
    images = predict(scenario("Qwen/Qwen2.5-VL-7B-Instruct"))
    assert any("encoder" in reason for reason in images.reasons)


def test_adapters_double_the_graphs():
    """From 0.11.1 on each is captured with and without them."""
    old, new = (
        [predict(scenario(version=version, lora=lora)).settled.captured for lora in (False, True)]
        for version in ("0.11.0", "0.19.0")
    )
    assert old[0] == old[1]
    assert (new[1].piecewise, new[1].full) == (2 * new[0].piecewise, 2 * new[0].full)
