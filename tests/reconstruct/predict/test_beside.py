"""The model's figures beside a log's: within what the lines allow, never in the account, silent where they do not fit."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvforensics.explanation import explain
from kvforensics.given import gpu
from kvforensics.report.json import explain_object
from reconstruct.change import Change, effect
from reconstruct.ledger import is_measured
from reconstruct.predict.observed import scenario_of
from reconstruct.predict.sizes import full_config
from tests.kvforensics.findings.starts import CACHED, WARM, card, said, start, truth
from tests.reconstruct.predict.starts import GIB
from tests.render.lines import render
from tests.render.strategies import truths

SAMPLES = sorted((Path(__file__).parents[3] / "sample_logs").rglob("*.log"))
CARD = [gpu("H100-80GB")]
COMPILED = "torch.compile took 24.31 s in total"
LOADED = "Directly load the compiled graph(s) for compile range (1, 8192) from the cache, took 2.557 s"


def ranks(log, given=CARD):
    """Every rank of a log's start-ups."""
    return [rank for s in explain(log, given).startups for engine in s.engines for rank in engine.ranks]


def modelled(log):
    """The model's figures of the first rank."""
    return {q.name: q.interval for q in ranks(log.encode())[0].modelled}


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_figures_stay_within_what_the_lines_allow(path):
    """And a term that is measured shows none."""
    for rank in ranks(str(path)):
        for figure in rank.unmeasured:
            assert figure.origin == "modelled"
            assert figure.interval.within(rank.account.interval(figure.name))
            assert not is_measured(rank.account.interval(figure.name))


def test_the_account_does_not_rest_on_the_model(monkeypatch):
    """The same log gives the same account whether the model has an answer or not."""
    log = start("0.19.1", card(peak=1.89)).encode()
    asked = ranks(log)
    monkeypatch.setattr("reconstruct.predict.beside.beside", lambda startup, *_: startup)
    silent = ranks(log)
    assert any(rank.modelled for rank in asked)
    assert not any(rank.modelled for rank in silent)
    assert [rank.account for rank in asked] == [rank.account for rank in silent]


@settings(max_examples=25, deadline=None)
@given(peak=st.floats(1.860, 1.900), other=st.floats(0.225, 0.30), used=st.floats(0.3, 0.7))
def test_bands_hold_the_truth_that_info_lines_hide(peak, other, used):
    """0.19.1 on H100 prints W and M alone; with them the model pins H to a tenth of a GiB."""
    found = modelled(start("0.19.1", card(peak=peak, other=other, used=used)))
    assert found["transient_peak_headroom"].contains(int(peak * GIB))
    assert found["transient_peak_headroom"].width < 0.1 * GIB
    assert found["total_consumed"].contains(int((14.99 + other) * GIB))
    assert found["non_torch_increase"].contains(int(other * GIB))


@pytest.mark.parametrize("peak", [0.4, 1.2, 4.0, 9.0])
def test_nothing_is_said_where_the_lines_contradict_the_model(peak):
    """W and M then leave another sum of C and H than the model has."""
    assert modelled(start("0.19.1", card(peak=peak))) == {}


def test_nothing_is_said_without_a_card_or_a_config():
    """INFO lines name no card; a model that no table has has no config."""
    log = start("0.19.1", card(peak=1.89))
    assert not any(rank.modelled for rank in ranks(log.encode(), []))
    assert modelled(log.replace("meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B-Imagined")) == {}


def test_json_marks_them_beside_the_quantities():
    """Key `modelled` of a rank, each figure with its origin; the quantities stay as they are."""
    report = explain(start("0.19.1", card(peak=1.89)).encode(), CARD)
    rank = explain_object(report)["startups"][0]["engines"][0]["ranks"][0]
    assert set(rank["modelled"]) == {"total_consumed", "non_torch_increase", "transient_peak_headroom"}
    assert all(figure["origin"] == "modelled" and figure["lines"] == [] for figure in rank["modelled"].values())
    assert "transient_peak_headroom" not in rank["quantities"]


@pytest.mark.parametrize(
    ("peak", "line", "expected"),
    [
        (2.6, COMPILED, "cold-compile-inflates-peak"),
        (2.6, "", "unexplained-memory"),
        (1.8, COMPILED, None),
        (1.8, "", None),
        (1.95, COMPILED, None),
    ],
)
def test_a_peak_well_above_the_model_is_a_finding_with_its_size(peak, line, expected):
    """0.27.1 prints the peak at INFO; the model has 1.80 GiB of it."""
    log = render(truth("0.27.1", card(peak=peak)))
    report = explain((said(log, "Available KV", line) if line else log).encode(), CARD)
    found = {f.id: f for f in report.verdicts[0].findings}
    assert found.keys() & {"cold-compile-inflates-peak", "unexplained-memory"} == ({expected} if expected else set())
    if expected:
        size = found[expected].cost.bytes
        assert size.contains(int((peak - 1.80) * GIB))
        assert size.width < 0.2 * GIB


def test_a_warm_start_in_the_log_speaks_before_the_model():
    """What was measured is better than what is modelled."""
    log = said(render(truth("0.27.1", card(peak=2.6))), "Available KV", COMPILED) + CACHED
    found = {f.id: f for f in explain(log.encode(), CARD).verdicts[0].findings}
    assert found["cold-compile-inflates-peak"].title == "Compilation inflated the peak"


def test_a_warm_start_of_another_batch_tells_nothing_of_compiling():
    """8 sequences of 2048 tokens peak lower than 1024 of 8192, compiled or not."""
    cold = said(start("0.27.1", card(peak=1.8)), "Available KV", COMPILED)
    for options, expected in (({"max_num_seqs": 8, "max_num_batched_tokens": 2048}, False), ({}, True)):
        warm = said(render(replace(WARM, **options)), "Available KV", LOADED)
        found = {f.id for f in explain((cold + warm).encode(), CARD).verdicts[0].findings}
        assert ("cold-compile-inflates-peak" in found) is expected


def test_what_compiling_may_have_taken_is_a_finding_where_no_line_tells_the_peak():
    """64 sequences: the forward pass has 0.94 GiB, compiling 1.10; 1024 need more than either. Loaded graphs cost nothing."""
    few = start("0.19.1", card(peak=1.10), max_num_seqs=64)
    told = {log: explain(log.encode(), CARD) for log in (said(few, "Available KV", COMPILED), few)}
    (compiled, untold) = told.values()
    (found,) = (f for f in compiled.verdicts[0].findings if f.id == "cold-compile-inflates-peak")
    assert found.title == "Compilation may have inflated the peak"
    assert found.cost.bytes.low == 0
    assert 0.16 * GIB < found.cost.bytes.high < 0.30 * GIB
    assert compiled.startups[0].engines[0].ranks[0].loaded_peak.high < 1.0 * GIB
    assert untold.startups[0].engines[0].ranks[0].loaded_peak is None
    for log in (
        said(start("0.19.1", card(peak=1.89)), "Available KV", COMPILED),
        said(few, "Available KV", f"{LOADED}\n{COMPILED}"),
    ):
        assert "cold-compile-inflates-peak" not in {f.id for f in explain(log.encode(), CARD).verdicts[0].findings}


@pytest.mark.parametrize(("peak", "expected"), [(0.25, False), (1.0, True)])
def test_a_printed_peak_tells_whether_compiling_inflated_it(peak, expected):
    """0.27.1 prints it: 0.23 GiB in the forward pass of 2048 tokens, 1.01 while compiling."""
    log = start("0.27.1", card(peak=peak), max_num_seqs=8, max_num_batched_tokens=2048)
    found = {f.id: f for f in explain(said(log, "Available KV", COMPILED).encode(), CARD).verdicts[0].findings}
    assert ("cold-compile-inflates-peak" in found) is expected
    assert all("no line tells" not in f.detail for f in found.values())


@pytest.mark.parametrize(
    ("lines", "peak", "change", "low", "high"),
    [
        (f"{LOADED}\n{COMPILED}", 0.94, Change(max_num_seqs=32), 0.94, 1.09),
        (f"{LOADED}\n{COMPILED}", 0.94, Change(enforce_eager=True), 0.90, 0.94),
        (COMPILED, 1.10, Change(max_num_seqs=32), 0.92, 1.10),
        (COMPILED, 1.10, Change(enforce_eager=True), 0.90, 1.09),
    ],
)
def test_a_start_asked_for_another_may_compile_or_not(lines, peak, change, low, high):
    """0.94 GiB in the forward pass, 1.10 while compiling: graphs of another batch are compiled anew, eager has none."""
    log = said(start("0.27.1", card(peak=peak), max_num_seqs=64), "Available KV", lines)
    (startup,) = explain(log.encode(), CARD).startups
    (term,) = (t for t in effect(startup, change, card="H100-80GB").terms if t.name == "transient_peak_headroom")
    assert term.after.contains(int(low * GIB))
    assert term.after.contains(int(high * GIB))
    assert ("compiled graphs" in term.why) is False


@pytest.mark.parametrize(("version", "lines", "falls"), [
    ("0.27.1", COMPILED, True), ("0.27.1", f"{LOADED}\n{COMPILED}", False),
    ("0.19.1", COMPILED, True), ("0.19.1", f"{LOADED}\n{COMPILED}", False), ("0.19.1", "nothing of it", True),
])  # fmt: skip
def test_another_utilisation_finds_the_graphs_that_this_start_compiled(version, lines, falls):
    """So that M may gain what compiling took, whether the log prints the peak (0.27.1) or not; loaded ones peak alike."""
    log = said(start(version, card(peak=1.10), max_num_seqs=64), "Available KV", lines)
    (startup,) = explain(log.encode(), CARD).startups
    terms = {t.name: t for t in effect(startup, Change(gpu_memory_utilization=0.8), card="H100-80GB").terms}
    peak, pool = terms["transient_peak_headroom"].change, terms["available_kv_cache_memory"].change
    assert peak.contains(0)
    assert peak.contains(-int(0.15 * GIB)) is falls
    assert not peak.contains(GIB // 64)
    assert pool.contains(int(-0.1 * 79.19 * GIB))
    assert pool.contains(int((0.15 - 0.1 * 79.19) * GIB)) is falls


def test_a_line_of_their_kernels_tells_of_adapters():
    """Where no line lists the arguments, the peak's band is then that of adapters."""
    for line, expected in (("Using PunicaWrapperGPU.", True), ("Using something else.", False)):
        startup = explain(said(start("0.19.1"), "Model loading took", line).encode()).startups[0]
        assert scenario_of(startup, full_config(startup.settings.text("model")), "H100-80GB").lora is expected


@settings(max_examples=60, deadline=None)
@given(truths(), st.sampled_from(["meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-30B-A3B", "google/gemma-3-12b-it"]))
def test_no_figure_leaves_what_the_lines_allow_whatever_was_launched(drawn, model):
    """Start-ups of every shape, with the name of a model that they may well not be of."""
    for rank in ranks(render(replace(drawn, model=model)).encode()):
        for figure in rank.unmeasured:
            assert figure.interval.low <= figure.interval.high
            assert figure.interval.within(rank.account.interval(figure.name))
