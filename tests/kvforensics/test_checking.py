"""Rebuilt beside measured: a log printed from known figures against a probe of exactly them, and of others."""

import dataclasses

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from kvforensics.checking import INSIDE, NOTHING, OUTSIDE, check, reading_of
from kvforensics.errors import UsageFault
from kvforensics.explanation import explain
from kvforensics.report import check_json, probe_json
from kvforensics.report.check_document import check_document
from kvforensics.report.look import Look
from tests.kvforensics.measured import MIB, measured_by_vllm
from tests.make_samples import LLAMA, size
from tests.render.lines import render
from tests.render.numbers_as_printed import GIB
from tests.render.parts import Rank
from tests.render.releases import KNOWN, since
from tests.render.strategies import truths
from tests.render.truth import Truth

QUICK = (Phase.explicit, Phase.reuse, Phase.generate)
"""A whole start-up takes minutes to shrink and is read as it is."""
V1 = tuple(version for version in KNOWN if since(version, "0.9.1"))
RANK = Rank(
    total_memory=85028896768, initial_free_memory=84496220160, model_memory=size(14.99), torch_peak_increase=size(1.2),
    non_torch_increase=size(0.25, 65536), bytes_per_block=2 << 20, total_consumed=size(15.3, 65536),
    transient_peak_headroom=size(1.3), cudagraph_actual=size(0.6, 65536),
)  # fmt: skip
TRUTH = Truth("0.27.1", (RANK,), 0.92, log_level="DEBUG", **LLAMA)


def checked(truth, report, tolerance=0):
    """The check of a printed log against a report that went through its JSON."""
    startup = explain(render(truth).encode()).startups[-1]
    return check(startup, probe_json.read(probe_json.render(report), "probe.json"), tolerance)


def term(found, name):
    return next(t for t in found.terms if t.name == name)


def test_a_log_and_a_probe_of_one_start_agree():
    """Everything that both know lies inside."""
    found = checked(TRUTH, measured_by_vllm(TRUTH))
    assert found.verdict == INSIDE
    assert not found.differences
    inside = {t.name for t in found.terms if t.verdict == INSIDE}
    assert inside >= {
        "total_memory", "requested_memory", "model_memory", "total_consumed", "transient_peak_headroom", "num_blocks",
        "available_kv_cache_memory", "bytes_per_block", "kv_cache_tokens",
    }  # fmt: skip


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck), phases=QUICK)
@given(truths(versions=V1))
def test_no_start_contradicts_itself(truth):
    """Whatever the release, topology, level and outcome: the true figures are never outside what a log tells of them."""
    found = checked(truth, measured_by_vllm(truth))
    assert [(t.name, t.rank, t.rebuilt, t.measured) for t in found.terms if t.verdict == OUTSIDE] == []


@pytest.mark.parametrize("wrong", [GIB, -GIB])
def test_a_wrong_term_is_outside_by_how_much(wrong):
    """With its sign, to the width of what the log prints; the others stay inside."""
    found = checked(TRUTH, measured_by_vllm(TRUTH, model_memory=wrong))
    weights = term(found, "model_memory")
    assert found.verdict == OUTSIDE
    assert [t.name for t in found.terms if t.verdict == OUTSIDE] == ["model_memory"]
    assert abs(weights.gap - wrong) <= GIB // 100
    assert ("above" if wrong > 0 else "below") in str(check_document(found, "a.log", Look()))


def test_what_is_tolerated_is_inside():
    found = checked(TRUTH, measured_by_vllm(TRUTH, model_memory=20 * MIB), tolerance=20 * MIB)
    assert term(found, "model_memory").verdict == INSIDE


def test_runs_span_what_they_measured():
    """Inside as soon as the span of all runs meets the log's."""
    report = measured_by_vllm(TRUTH)
    low, high = (measured_by_vllm(TRUTH, total_consumed=n * GIB).startups[0] for n in (-1, 1))
    found = check(explain(render(TRUTH).encode()).startups[0], reading_of(report)._replace(startups=(low, high)))
    assert term(found, "total_consumed").verdict == INSIDE
    assert term(found, "total_consumed").measured.width == 2 * GIB


@pytest.mark.parametrize(
    ("change", "condition", "kept", "moved"),
    [
        ({"version": "0.30.0"}, "version", "total_memory", "available_kv_cache_memory"),
        ({"gpu_memory_utilization": 0.8}, "gpu_memory_utilization", "model_memory", "available_kv_cache_memory"),
        ({"enforce_eager": True}, "enforce_eager", "model_memory", "num_blocks"),
        ({"max_num_batched_tokens": 2048}, "max_num_batched_tokens", "model_memory", "transient_peak_headroom"),
        ({"kv_cache_dtype": "fp8"}, "kv_cache_dtype", "total_consumed", "bytes_per_block"),
        ({"model": "Qwen/Qwen2.5-7B-Instruct"}, "model", "total_memory", "model_memory"),
        ({"kv_cache_memory_bytes": 9 * GIB}, "kv_cache_memory_bytes", "model_memory", "num_blocks"),
    ],
)
def test_a_condition_that_differs_moves_its_terms_and_no_others(change, condition, kept, moved):
    """Terms that it moves are not compared, and the reason is given; the others are."""
    found = checked(TRUTH, measured_by_vllm(dataclasses.replace(TRUTH, **change)))
    assert [d.condition for d in found.differences] == [condition]
    assert term(found, kept).verdict == INSIDE
    assert term(found, moved).verdict == "not comparable"
    assert found.differences[0].text in str(check_document(found, "a.log", Look())) or term(found, moved).why


@pytest.mark.parametrize(
    ("printed", "instead", "condition"),
    [
        ("speculative_config=None", "speculative_config=SpeculativeConfig(method='eagle', num_spec_tokens=2)", "draft"),
        ("pooler_config=None", "pooler_config=PoolerConfig(pooling_type='LAST')", "pooling"),
        ("non-default args: {", "non-default args: {'enable_lora': True, ", "adapters"),
        ("non-default args: {", "non-default args: {'cpu_offload_gb': 4.0, ", "offloading"),
    ],
)
def test_what_no_probe_repeats_is_not_compared(printed, instead, condition):
    """Another model's tensors, or fewer of this one's: weights and all that follows are shown with the reason."""
    text = render(TRUTH)
    assert printed in text
    startup = explain(text.replace(printed, instead).encode()).startups[-1]
    found = check(startup, reading_of(measured_by_vllm(TRUTH)))
    assert [d.condition for d in found.differences] == [condition]
    assert term(found, "model_memory").verdict == "not comparable"
    assert term(found, "total_memory").verdict == INSIDE


def test_another_card_leaves_the_model():
    """Weights and block sizes do not depend on it, nothing else is compared."""
    small = dataclasses.replace(RANK, total_memory=42298834944, initial_free_memory=41 * GIB)
    found = checked(TRUTH, measured_by_vllm(dataclasses.replace(TRUTH, ranks=(small,))))
    assert [d.condition for d in found.differences] == ["card"]
    assert term(found, "model_memory").verdict == INSIDE
    assert term(found, "available_kv_cache_memory").verdict == "not comparable"


def test_nothing_comparable_is_said():
    """Another release on another card with another model leaves nothing."""
    small = dataclasses.replace(RANK, total_memory=42298834944, initial_free_memory=41 * GIB)
    other = dataclasses.replace(
        TRUTH, version="0.20.2", ranks=(small,), model="Qwen/Qwen2.5-7B-Instruct", gpu_memory_utilization=0.8,
        full_model_len=4096,
    )  # fmt: skip
    found = checked(TRUTH, measured_by_vllm(other))
    assert found.verdict == NOTHING
    assert all(t.why for t in found.terms)
    assert all(t["why"] for t in check_json.check_object(found, "a.log")["terms"])


def by_torch(truth, **wrong):
    """The check of a start against the torch engine's figures of it."""
    startup = explain(render(truth).encode()).startups[0]
    return check(startup, reading_of(measured_by_vllm(truth, **wrong))._replace(engine="torch"))


def test_the_torch_engine_speaks_for_weights_and_peak_alone():
    """Its peak with the stated error of a tenth; what holds vLLM's libraries is shown, not compared."""
    found = by_torch(TRUTH, transient_peak_headroom=90 * MIB, total_consumed=-GIB)
    assert term(found, "transient_peak_headroom").verdict == INSIDE
    assert term(found, "total_consumed").verdict == "not comparable"
    assert term(by_torch(TRUTH, transient_peak_headroom=200 * MIB), "transient_peak_headroom").verdict == OUTSIDE
    assert term(by_torch(TRUTH, model_memory=20 * MIB), "model_memory").verdict == OUTSIDE


@pytest.mark.parametrize("change", [{"dtype": "float32"}, {"version": "0.33.0"}])
def test_a_peak_that_no_card_has_proved_is_held_against_no_log(change):
    """Float32, and the second sampling pass of 0.33."""
    found = by_torch(dataclasses.replace(TRUTH, **change), transient_peak_headroom=900 * MIB)
    assert term(found, "transient_peak_headroom").verdict == "not comparable"
    assert term(found, "model_memory").verdict == INSIDE


@pytest.mark.parametrize(
    "text",
    [
        "", "nonsense", "[]", "{}", '{"schema": "kvforensics.explain/1"}', '{"schema": "kvforensics.probe/1"}',
        '{"schema": "kvforensics.probe/1", "environment": {"engine": "x", "simulated": 0, "device": ""}, "startups": [3]}',
        "[" * 20000,
    ],
)  # fmt: skip
def test_a_file_that_is_no_probe_is_refused_in_one_line(text):
    with pytest.raises(UsageFault, match=r"probe\.json"):
        probe_json.read(text, "probe.json")


def test_a_ledger_comes_back_from_its_json():
    """Quantities, places and settings, as far as a check asks for them."""
    report = measured_by_vllm(dataclasses.replace(TRUTH, ranks=(RANK, RANK), tp=2))
    (before,), (after,) = report.startups, probe_json.read(probe_json.render(report), "x").startups
    for old, new in zip(before.engines[0].ranks, after.engines[0].ranks, strict=True):
        assert (old.pp, old.tp) == (new.pp, new.tp)
        assert {n: q.interval for n, q in old.account.quantities.items()} == {
            n: q.interval for n, q in new.account.quantities.items()
        }
    assert before.settings.get("tensor_parallel_size") == after.settings.get("tensor_parallel_size") == 2


def test_a_worker_of_an_engine_that_no_line_tells_is_compared_with_those_of_all():
    """Dense replicas in two stages each: two workers go by the name Worker_PP1, and none says whose it is."""
    ranks = tuple(
        dataclasses.replace(RANK, model_memory=size(gib), bytes_per_block=1 << 20) for gib in (15, 16, 17, 18)
    )
    truth = Truth("0.26.0", ranks, 0.92, pp=2, dp=2, **LLAMA)
    assert checked(truth, measured_by_vllm(truth)).verdict == INSIDE
