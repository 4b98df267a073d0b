"""What a change may do to the activation peak, told from today's peak and from the model."""

import pytest

from kvforensics.explanation import explain
from reconstruct.change import Change, effect
from tests.kvforensics.start_ups import rank, start
from tests.render import lines
from tests.render.numbers_as_printed import GIB, MIB

PEAK = "transient_peak_headroom"
COMPILED = "INFO 04-22 01:46:40 [monitor.py:34] torch.compile took 31.20 s in total"
LOADED = "INFO 04-22 01:46:40 [backends.py:285] Directly load the compiled graph(s) for shape None from the cache, took 1.27 s"


def peak(truth, change, *said):
    """The row of the peak, after a start-up in which one more line says whether it compiled."""
    text = lines.render(truth).splitlines()
    named = next((line.partition("INFO")[0] for line in text if " INFO " in line and "Core" in line), "")
    place = next(
        i for i, line in enumerate(text) if "Model loading took" in line or "oading model weights took" in line
    )
    report = explain("\n".join([*text[: place + 1], *(named + line for line in said), *text[place + 1 :]]).encode())
    return effect(report.startups[-1], change).term(PEAK)


def unknown(**options):
    """A start-up of a model that no catalogue has."""
    return start(log_level="DEBUG", model="someone/unknown", max_num_seqs=100, max_num_batched_tokens=8192, **options)


def hidden(**options):
    """A start-up at INFO, which prints no peak."""
    return start("0.27.1", model="someone/unknown", max_num_seqs=100, max_num_batched_tokens=8192, **options)


def test_fewer_sequences_never_raise_a_peak_that_no_line_tells():
    assert peak(hidden(), Change(max_num_seqs=64), COMPILED).change.high == 0
    assert (
        peak(
            hidden(),
            Change(max_num_seqs=512),
            LOADED,
        ).change.low
        == 0
    )


def test_a_start_that_may_compile_can_peak_above_one_that_loaded():
    """Whatever the batch: what compiling takes was no part of today's peak."""
    assert peak(unknown(), Change(max_num_seqs=64), LOADED).after.high is None
    assert peak(unknown(), Change(max_model_len=2048), LOADED).after.high is None
    assert peak(unknown(), Change(gpu_memory_utilization=0.8), LOADED).change == (0, 0)


def test_a_start_that_loads_can_peak_below_one_that_compiled():
    """With the same graphs it surely loads them, with others it may."""
    before = peak(unknown(), Change(gpu_memory_utilization=0.8), COMPILED)
    assert before.change.high == 0
    assert before.after.low == 0
    assert peak(unknown(), Change(max_num_seqs=512), COMPILED).after.low == 0


@pytest.mark.parametrize("options", [{"enforce_eager": True}, {"version": "0.10.2"}])
def test_where_nothing_is_compiled_or_measured_the_peak_stays(options):
    found = peak(unknown(**options), Change(gpu_memory_utilization=0.8), COMPILED)
    assert found.change == (0, 0)


def test_another_batch_is_bounded_by_proportion():
    """With a step for other kernels; rows have none."""
    halved = peak(unknown(enforce_eager=True), Change(max_num_batched_tokens=4096))
    assert halved.after.low == halved.before.low // 2
    assert halved.after.high == int(halved.before.high * 1.5) + 1
    doubled = peak(unknown(enforce_eager=True), Change(max_num_seqs=200))
    assert doubled.after.low == doubled.before.low
    assert doubled.after.high == 2 * doubled.before.high + 1


def test_few_rows_are_sorted_which_costs_more():
    """Below 8 rows 0.17.0 and later sort: 7 rows may peak above 8."""
    assert peak(unknown(enforce_eager=True), Change(max_num_seqs=7)).after.high is None
    assert peak(unknown(enforce_eager=True), Change(max_num_seqs=8)).after.high is not None


def test_v0s_batch_follows_the_length_where_none_was_given():
    found = peak(start("0.6.6", model="someone/unknown", full_model_len=4096), Change(max_model_len=8192))
    assert found.change.high is None


def test_the_model_tells_how_far_a_peak_falls():
    """Qwen2.5-7B on one card: the embedding and two hidden states of 8192 tokens are 1.01 + 0.11 GiB."""
    first = rank(transient_peak_headroom=1156 * MIB, torch_peak_increase=1156 * MIB)
    small = {"max_num_seqs": 32, "max_num_batched_tokens": 8192, "rank": first, "log_level": "DEBUG"}
    found = peak(start(**small), Change(gpu_memory_utilization=0.8), COMPILED)
    assert found.kind == "modelled"
    assert 0.5 * GIB < found.after.low < 1.05 * GIB
    assert found.after.high == found.before.high
