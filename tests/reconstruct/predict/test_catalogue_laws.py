"""Laws over every model of the table, every card and every release: an answer or a reason, and figures that fit together."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvforensics.planning import Plan, Request
from kvforensics.report import plan_json, plan_table
from kvforensics.report.look import Look
from reconstruct.cards import cards
from reconstruct.planner.errors import BadSetting, Unsupported
from reconstruct.predict.ledger import TOO_WIDE, predict
from reconstruct.predict.sizes import sized_ids
from reconstruct.releases import RELEASES
from tests.reconstruct.predict.starts import scenario

MODELS = st.sampled_from(sized_ids())
CARDS = st.sampled_from([card.aliases[0] for card in cards()])
SPREADS = st.sampled_from([(1, 1), (2, 1), (4, 1), (8, 1), (1, 2), (2, 2), (1, 3)])
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "max_num_seqs": st.integers(1, 2048),
        "max_model_len": st.sampled_from([16, 1000, 4096, 32768, None]),
        "kv_cache_dtype": st.sampled_from(["auto", "fp8"]),
        "enforce_eager": st.booleans(),
        "lora": st.booleans(),
        "expert_parallel": st.booleans(),
        "offline": st.booleans(),
        "charge_graphs": st.booleans(),
    },
)
LAUNCHES = st.tuples(MODELS, CARDS, st.sampled_from(RELEASES), SPREADS, OPTIONS)
FAMILIES = [
    "Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-32B-Instruct-AWQ", "Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", "Qwen/Qwen3-8B",
    "Qwen/Qwen3-30B-A3B", "Qwen/Qwen3-30B-A3B-FP8", "meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.2-3B-Instruct",
    "meta-llama/Llama-3.3-70B-Instruct", "mistralai/Mistral-7B-Instruct-v0.3", "google/gemma-2-9b-it",
    "google/gemma-3-12b-it", "openai/gpt-oss-20b", "deepseek-ai/DeepSeek-V2-Lite", "deepseek-ai/DeepSeek-R1-Distill-Qwen-14B",
    "microsoft/phi-4", "zai-org/GLM-4-9B-0414", "RedHatAI/Llama-3.3-70B-Instruct-quantized.w4a16",
]  # fmt: skip


def asked(launch, utilization=0.9):
    """Build the scenario of a drawn launch."""
    model, card, release, (tensor, stages), options = launch
    spread = {"tensor_parallel_size": tensor, "pipeline_parallel_size": stages}
    return scenario(model, gpu=card, version=release, utilization=utilization, **spread, **options)


def answer(found):
    """Give the prediction of a scenario, or None where it is refused with a reason."""
    try:
        return predict(found)
    except (Unsupported, BadSetting) as refusal:
        assert len(str(refusal)) > 20
        return None


@settings(max_examples=150, deadline=None)
@given(LAUNCHES)
def test_a_launch_is_answered_or_refused_with_a_reason(launch):
    """Bands have their ends in order, hold their likely value, and one too wide to plan with says so."""
    found = answer(asked(launch))
    if found is None:
        return
    assert found.outcome in {"starts", "may not start", "does not start"}
    assert (found.outcome == "starts") == all(check.verdict == "passes" for check in found.checks)
    if found.engine is None:
        assert found.failing.detail
        return
    accounts = [found.engine.capacity, *(rank.account for rank in found.engine.ranks)]
    for quantity in (q for account in accounts for q in account.quantities.values()):
        assert quantity.interval.low <= quantity.interval.high, quantity
    for rank, likely in zip(found.engine.ranks, found.expected, strict=True):
        for name, quantity in rank.account.quantities.items():
            assert quantity.interval.low - 1 <= likely[name] <= quantity.interval.high + 1, name
    pools = [rank.account.interval("available_kv_cache_memory") for rank in found.engine.ranks]
    wide = any(pool.width > TOO_WIDE * abs(pool.low + pool.high) for pool in pools)
    assert wide == any("wider than" in reason for reason in found.reasons)


@settings(max_examples=60, deadline=None)
@given(LAUNCHES, st.floats(0.05, 0.99), st.floats(0.05, 0.99))
def test_the_utilisation_moves_the_budget_and_nothing_else(launch, first, second):
    """Weights, non-torch, peak and graphs are the same; M, blocks and tokens never fall as it rises."""
    less, more = (answer(asked(launch, utilization)) for utilization in sorted((first, second)))
    if less is None or more is None or less.engine is None or more.engine is None:
        assert (less is None) == (more is None)
        return
    for low, high in zip(less.engine.ranks, more.engine.ranks, strict=True):
        for name in ("model_memory", "non_torch_increase", "transient_peak_headroom", "cudagraph_memory_applied"):
            assert low.account.get(name) == high.account.get(name)
        ends = [rank.account.interval("available_kv_cache_memory") for rank in (low, high)]
        assert ends[0].low <= ends[1].low
        assert ends[0].high <= ends[1].high
    for name in ("num_blocks", "kv_cache_tokens"):
        few, many = (found.engine.capacity.interval(name) for found in (less, more))
        if None not in (*few, *many):
            assert few.low <= many.low
            assert few.high <= many.high


@settings(max_examples=60, deadline=None)
@given(MODELS, CARDS, st.sampled_from(RELEASES), OPTIONS)
def test_more_ranks_hold_fewer_weights_each(model, card, release, options):
    """Each doubling leaves a rank no more than before."""
    held = []
    for ranks in (1, 2, 4):
        found = answer(asked((model, card, release, (ranks, 1), options)))
        if found is not None and found.engine is not None:
            held.append(found.expected[0]["model_memory"])
    assert held == sorted(held, reverse=True)


@settings(max_examples=40, deadline=None)
@given(LAUNCHES)
def test_every_answer_can_be_shown(launch):
    """The table in every width, and JSON whose intervals have their ends in order."""
    found = answer(asked(launch))
    if found is None:
        return
    plan = Plan(Request(launch[0], launch[1]), found, ())
    assert plan_table.render(plan, Look(60, ascii_only=True)).isascii()
    assert json.loads(plan_json.render(plan))["schema"] == "kvforensics.plan/1"


@pytest.mark.parametrize("model", FAMILIES)
@pytest.mark.parametrize("card", ["A100-80GB", "H100-80GB", "H200", "B200", "RTX-PRO-6000"])
def test_what_people_run_is_answered_closely(model, card):
    """On a card where the model leaves room, no band of M is too wide to plan with, from 0.11 to the newest release."""
    for release in ("0.11.0", "0.19.0", "0.27.1", RELEASES[-1]):
        for ranks in (1, 2):
            found = predict(scenario(model, gpu=card, version=release, utilization=0.9, tensor_parallel_size=ranks))
            pool = found.engine.ranks[0].account.interval("available_kv_cache_memory")
            if found.expected[0]["model_memory"] < 0.5 * found.expected[0]["requested_memory"]:
                assert pool.width <= 2 * TOO_WIDE * (pool.low + pool.high) / 2, (release, ranks)
