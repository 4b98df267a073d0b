"""Laws of the renderer, its transports, and the samples it wrote."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests import make_samples
from tests.render import wrappers
from tests.render.ledger import as_json
from tests.render.lines import render, render_all
from tests.render.parts import INJECTABLE, Failure, Scope
from tests.render.planned_start import planned, rank
from tests.render.strategies import truths
from tests.render.truth import Truth

FEW = settings(max_examples=60)


@FEW
@given(truths(injections=INJECTABLE))
def test_every_drawn_start_prints_and_prints_the_same_again(truth):
    """Rendering and the ledger depend on the truth alone."""
    text = render(truth)
    assert text == render(truth)
    assert text.endswith("\n")
    assert as_json([truth]) == json.loads(json.dumps(as_json([truth])))


@FEW
@given(truths())
def test_the_identity_closes_in_every_release(truth):
    """M = R - C - H - G to the byte, up to the truncation of a negative M."""
    for index, one in enumerate(truth.ranks):
        found = {name: value for (scope, name), value in truth.expected().items() if scope == truth.scope(index)}
        if "available_kv_cache_memory" in found:
            left = found["requested_memory"] - found["total_consumed"] - found["transient_peak_headroom"]
            residual = left - found["cudagraph_memory_applied"] - found["available_kv_cache_memory"]
            assert residual == 0 or (residual == -1 and truth.available(one) <= 0)


@FEW
@given(truths())
def test_blocks_never_take_more_than_the_pool_without_an_override(truth):
    """0 <= unused < one block on the binding rank."""
    for dp in range(truth.dp):
        found = {name: value for (scope, name), value in truth.expected().items() if scope == Scope(dp)}
        if "num_blocks" in found and truth.num_blocks_override is None:
            assert 0 <= found["unused_kv_memory"] < found["bytes_per_block"]


@FEW
@given(truths(versions=["0.13.0", "0.19.1", "0.33.0"]), st.integers(0, 99))
def test_interleaving_keeps_each_process_in_order(truth, seed):
    """The same lines, each worker's in the same order."""
    assume(not truth.ray)  # there the driver's name stands before every line
    plain = render(replace(truth, interleave=None)).splitlines()
    mixed = render(replace(truth, interleave=seed)).splitlines()
    assert sorted(plain) == sorted(mixed)
    for pid in set(re.findall(r"pid=(\d+)\)", "\n".join(plain))):
        assert [line for line in plain if f"pid={pid})" in line] == [line for line in mixed if f"pid={pid})" in line]


def test_injected_failures_may_not_contradict_the_numbers():
    """What arithmetic decides cannot be asked for."""
    with pytest.raises(ValueError, match="follows from the numbers"):
        planned("0.21.0", injected=Failure.NO_KV_MEMORY)


def test_a_start_that_is_cut_is_unfinished():
    """The log ends early, the truth stays whole."""
    whole, cut = planned("0.21.0"), planned("0.21.0", injected=Failure.CUT, cut_at=0.5)
    assert render(whole).startswith(render(cut))
    assert cut.outcome == "unfinished"


@pytest.mark.parametrize("wrapper", wrappers.WRAPPERS, ids=lambda wrapper: wrapper.__name__)
def test_transports_lose_nothing(wrapper):
    """What a transport adds can be taken off again: every message is still there in order."""
    text = render(planned("0.21.0"))
    wrapped = wrapper(text)
    bare = re.sub(r"\x1b?\[\d+m", "", wrapped).replace("\r", "")
    if wrapper is wrappers.docker_json:
        bare = "".join(json.loads(line)["log"] for line in wrapped.splitlines())
    if wrapper is wrappers.terminal:
        assert max(map(len, wrapped.splitlines())) <= wrappers.WIDTH
        assert bare.replace("\n", "") == text.replace("\n", "")
        return
    for before, after in zip(text.splitlines(), bare.splitlines()[3 * (wrapper is wrappers.fenced) :], strict=False):
        assert after.endswith(before)


def test_json_formatter_keeps_message_and_process():
    """0.32's own JSON: records become objects, other lines stay."""
    lines = wrappers.json_records(render(planned("0.32.0"))).splitlines()
    objects = [json.loads(line) for line in lines if line.startswith("{")]
    assert any(
        o["message"].startswith("Available KV cache memory") and o["vllm_process_name"] == "EngineCore" for o in objects
    )
    assert any("Application startup complete" in line and not line.startswith("{") for line in lines)


def test_ray_folds_lines_that_differ_in_digits():
    """The second of two is held back, and from three on the last carries a count."""
    four = Truth("0.8.4", (rank(),) * 4, 0.5, tp=4, ray=True)
    folded = wrappers.ray_folded(render(four))
    assert folded.count("Model loading took") == 2
    assert re.search(r"Model loading took .*\[repeated 3x across cluster\]$", folded, re.MULTILINE)


def test_dropping_every_line_leaves_nothing():
    text = render(planned("0.21.0"))
    assert wrappers.drop_lines(text, Random(1), 1.0) == ""
    assert wrappers.drop_lines(text, Random(1), 0.0) == text


@pytest.mark.parametrize("sample", make_samples.samples(), ids=lambda sample: sample.name)
def test_samples_on_disk_are_what_the_script_writes(sample):
    """`python -m tests.make_samples` leaves the folder as it is."""
    for suffix, wanted in ((".log", sample.log), (".ledger.json", sample.ledger)):
        assert (make_samples.SAMPLES / f"{sample.name}{suffix}").read_bytes().decode() == wanted


def test_no_sample_is_orphaned():
    """Every file in the folder comes from the script."""
    written = {f"{sample.name}{suffix}" for sample in make_samples.samples() for suffix in (".log", ".ledger.json")}
    assert {path.name for path in make_samples.SAMPLES.iterdir() if path.suffix in (".log", ".json")} == written


def test_several_starts_stand_one_after_the_other():
    """A crash loop is the plain concatenation of its starts."""
    loop = next(sample for sample in make_samples.samples() if sample.name == "vllm-0.22.1-crash-loop")
    assert loop.log == "".join(render(truth) for truth in loop.truths) == render_all(loop.truths)
    assert [truth.failure for truth in loop.truths] == [Failure.FREE_BELOW_DESIRED, Failure.OOM_CAPTURE, Failure.NONE]
