"""`whatif`: what is predicted from one start-up holds what the changed start-up truly is."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from kvforensics.app import whole_app
from kvforensics.errors import UsageFault
from kvforensics.explanation import explain
from kvforensics.report import document_markdown, document_table
from kvforensics.report.look import Look
from kvforensics.report.whatif_document import whatif_document
from kvforensics.whatif import Ask, what_if
from reconstruct.change import Change, effect
from reconstruct.interval import Interval
from reconstruct.whatif_target import LEVERS, SURE, parsed, search
from tests.kvforensics.start_ups import rank, start
from tests.render import lines, strategies
from tests.render.numbers_as_printed import GIB, MIB
from tests.render.parts import Scope

RELAXED = settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))
V1 = tuple(v for v in strategies.KNOWN if v not in {"0.2.7", "0.3.3", "0.4.3", "0.5.5", "0.6.3", "0.6.6"})


def startup_of(truth):
    return explain(lines.render(truth).encode()).startups[-1]


def faults(found, truth):
    """What a prediction says of the tightest engine that is not so."""
    expected = truth.expected()
    names = ("kv_pool_memory", "num_blocks", "kv_cache_tokens", "max_concurrency", "max_model_len")
    values = {name: expected[Scope(found.dp), name] for name in names if (Scope(found.dp), name) in expected}
    if truth.v0:
        values.pop("kv_cache_tokens", None)  # V0 prints none
    if truth.world == 1:
        own = Scope(found.dp, 0, 0)
        terms = ("requested_memory", "total_consumed", "transient_peak_headroom", "cudagraph_memory_applied")
        values |= {n: expected[own, n] for n in (*terms, "available_kv_cache_memory") if (own, n) in expected}
    return [(n, found.after(n), v) for n, v in values.items() if not found.after(n).contains(v)]


def alike(first, second):
    """Two start-ups that both came up on one engine, whose tightest rank is the same in both: its cards are alike."""
    cards = {rank.total_memory for rank in first.ranks}
    return first.outcome == second.outcome == "ready" and first.dp == 1 == len(cards)


@RELAXED
@given(strategies.truths(), strategies.utilizations)
def test_another_utilisation_holds_the_true_pool(truth, u):
    """dM = T x du in every release: terms, pool, blocks, tokens and concurrency of the changed start-up lie inside."""
    changed = replace(truth, gpu_memory_utilization=u)
    assume(alike(truth, changed))
    assert faults(effect(startup_of(truth), Change(gpu_memory_utilization=u)), changed) == []


@RELAXED
@given(strategies.truths(), st.sampled_from((512, 2048, 5003, 32768)))
def test_another_length_holds_the_true_capacity(truth, length):
    changed = replace(truth, full_model_len=length, auto_fit=False)
    assume(alike(truth, changed) and not truth.v0)
    assert faults(effect(startup_of(truth), Change(max_model_len=length)), changed) == []


@RELAXED
@given(strategies.truths(versions=tuple(v for v in V1 if tuple(map(int, v.split(".")[:2])) >= (0, 18))), st.booleans())
def test_the_graph_switch_holds_the_true_pool(truth, switch):
    """Charged or not, by the estimate that the log prints; ranks that estimate differently print it on one of them only."""
    changed = replace(truth, estimate_switch=switch)
    assume(alike(truth, changed) and not truth.enforce_eager and not truth.v2_runner)
    assume(len({one.captures for one in truth.ranks}) == 1)
    assert faults(effect(startup_of(truth), Change(estimate_cudagraphs=switch)), changed) == []


@RELAXED
@given(strategies.truths(versions=("0.14.1", "0.19.0", "0.26.0", "0.33.0")), st.integers(2 * GIB, 30 * GIB))
def test_a_pool_in_bytes_holds_the_true_capacity(truth, pool):
    changed = replace(truth, kv_cache_memory_bytes=pool, startup_plan=False)
    assume(alike(truth, changed))
    assert faults(effect(startup_of(truth), Change(kv_cache_memory=pool)), changed) == []


@RELAXED
@given(strategies.truths())
def test_nothing_changed_holds_what_is(truth):
    assume(alike(truth, truth) and not truth.auto_fit)
    found = effect(startup_of(truth), Change())
    assert faults(found, truth) == []
    assert found.outcome != "does not start"


@pytest.mark.parametrize(("version", "fixed"), [("0.9.1", False), ("0.9.2", True)])
def test_a_block_count_that_is_ignored_fixes_nothing(version, fixed):
    """0.9.1 prints num_gpu_blocks_override and divides its pool all the same."""
    asked = start(version, u=0.8, num_blocks_override=700, full_model_len=4096)
    found = effect(startup_of(asked), Change(gpu_memory_utilization=0.9))
    assert faults(found, replace(asked, gpu_memory_utilization=0.9)) == []
    assert (found.after("num_blocks") == (700, 700)) is fixed


@pytest.mark.parametrize("version", ["0.20.0", "0.25.0"])
@pytest.mark.parametrize(("length", "change"), [(5003, Change()), (4096, Change(max_model_len=5003))])
def test_a_development_build_counts_tokens_in_every_way_left_open(version, length, change):
    """0.20.0 counts 600 blocks as 9600 tokens, 0.20.1 and later as 9590 where a request is 5003: its lines leave both."""
    asked = start(version, stated="0.1.dev18496+gd4e0675a7", num_blocks_override=600, full_model_len=length)
    found = effect(startup_of(asked), change)
    assert faults(found, replace(asked, full_model_len=5003)) == []
    assert found.after("kv_cache_tokens").within(Interval(9590, 9600))


@pytest.mark.parametrize("version", ["0.9.0.1", "0.20.2", "0.33.0"])
def test_blocks_that_were_asked_for_stand_for_a_pool_of_nothing(version):
    """A budget that the weights use up: V0, and V1 from 0.20.1 on, check the count that was asked for."""
    engine = "V0" if version == "0.9.0.1" else "V1"
    asked = start(version, engine=engine, u=0.2, num_blocks_override=900, full_model_len=4096)
    assert asked.pool(asked.ranks[0]) < 0
    assert asked.outcome == "ready"
    found = effect(startup_of(asked), Change())
    assert faults(found, asked) == []
    assert found.outcome != "does not start"


def test_before_the_checks_saw_it_a_block_count_does_not_save_a_pool_of_nothing():
    full = start("0.20.0", num_blocks_override=900, full_model_len=4096)
    assert effect(startup_of(full), Change(gpu_memory_utilization=0.2)).outcome == "does not start"


def test_the_gain_of_a_utilisation_is_exact():
    """dR is T x du to a few bytes, though T itself is known to 5 MiB only."""
    found = effect(startup_of(start(log_level="DEBUG")), Change(gpu_memory_utilization=0.95))
    budget = found.term("requested_memory")
    assert budget.kind == "exact"
    assert budget.change.contains(round(80 * GIB * 0.05))
    assert budget.change.width <= 1 * MIB


def test_a_halved_cache_dtype_doubles_the_blocks():
    found = effect(startup_of(start(log_level="DEBUG", enforce_eager=True)), Change(kv_cache_dtype="fp8"))
    before, after = found.term("num_blocks").before, found.after("num_blocks")
    assert found.after("bytes_per_block") == (458752, 458752)
    assert 2 * before.low - 40 <= after.low <= after.high <= 2 * before.high + 40


def test_an_upgrade_says_what_comes_with_it():
    """The default utilisation, the graph estimate, C's accounting and the token formula."""
    found = effect(startup_of(start("0.19.1", u=0.9)), Change(engine_version="0.27.1"))
    text = " ".join(found.notes)
    assert "0.92 instead of 0.9" in text
    assert "charges the graph estimate by default" in text
    assert "first snapshot" in text
    assert "int(concurrency x max_model_len)" in text
    assert "stays" in text if startup_of(start("0.19.1", u=0.9)).settings.get("gpu_memory_utilization") else True


def test_a_given_utilisation_stays_after_an_upgrade():
    found = effect(startup_of(start("0.19.1", u=0.8)), Change(engine_version="0.21.0"))
    assert any("it was given, so it stays" in note for note in found.notes)
    assert found.term("requested_memory").change.within(Interval(-1, 1))


def test_more_than_is_free_does_not_start():
    crowded = rank(initial_free_memory=73 * GIB)
    found = effect(startup_of(start("0.30.0", rank=crowded)), Change(gpu_memory_utilization=0.95))
    assert found.outcome == "does not start"
    assert [c.verdict for c in found.checks if c.name == "free memory at the start"] == ["fails"]


def test_a_length_beyond_the_pool_does_not_start():
    small = rank(model_memory=65 * GIB, total_consumed=65 * GIB + 512 * MIB)
    truth = start("0.30.0", rank=small)
    assert truth.outcome == "ready"
    found = effect(startup_of(truth), Change(max_model_len=131072))
    assert found.outcome == "does not start"


def test_ranks_of_an_unknown_model_are_left_out_with_a_reason():
    found = effect(startup_of(start(model="someone/unknown")), Change(tensor_parallel_size=2))
    assert found.outcome in {"unknown", "may not start"}
    assert any("--config" in reason for reason in found.left_out)


def test_heads_that_do_not_divide_do_not_start():
    found = effect(startup_of(start()), Change(tensor_parallel_size=3))
    assert found.outcome == "does not start"


def test_the_cheapest_way_to_more_tokens_surely_reaches_it():
    startup = startup_of(start("0.30.0"))
    now = startup.engines[0].capacity.interval("kv_cache_tokens").low
    found = search(startup, parsed(f"tokens={now + 20000}"))
    assert found.single.change == Change(gpu_memory_utilization=found.single.change.gpu_memory_utilization)
    assert found.single.effect.after("kv_cache_tokens").low >= now + 20000
    less = round(found.single.change.gpu_memory_utilization - 0.0001, 4)
    assert effect(startup, Change(gpu_memory_utilization=less)).after("kv_cache_tokens").low < now + 20000
    assert [w.price for w in found.singles] == sorted(w.price for w in found.singles)


def test_a_pair_is_made_of_changes_that_do_not_reach_it_alone():
    startup = startup_of(start("0.30.0"))
    now = startup.engines[0].capacity.interval("kv_cache_tokens").low
    found = search(startup, parsed(f"tokens={int(now * 2.1)}"))
    assert found.pair is not None
    enough = {name for way in found.singles if way.verdict == SURE for name in way.change.named}
    assert not enough & set(found.pair.change.named)


def test_a_target_that_is_reached_needs_nothing():
    assert search(startup_of(start()), parsed("tokens=1000")).already == SURE


def test_no_option_to_paste_is_broken_across_lines():
    """Eighty columns hold every option of a search with its value in one line."""
    done = CliRunner().invoke(
        whole_app(), ["whatif", "sample_logs/vllm-0.27.1-single.log", "--target", "tokens=200000", "--width", "80"]
    )
    ways = done.stdout.partition("to paste")[2]
    assert "--gpu-memory-utilization 0.956 " in ways
    assert "--pipeline-parallel-size 2 " in ways


def test_the_order_of_costs_is_strict():
    prices = [lever.price for lever in LEVERS]
    assert prices == sorted(set(prices))


def test_flags_can_be_pasted():
    change = Change(gpu_memory_utilization=0.95, enforce_eager=True, estimate_cudagraphs=False, kv_cache_memory=1024)
    assert change.flags == (
        "--gpu-memory-utilization 0.95",
        "--enforce-eager",
        "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0",
        "--kv-cache-memory-bytes 1024",
    )


def test_the_reports_show_today_and_then_without_markup():
    hostile = start(model="[red]|`x`[/red]")
    answer = what_if(lines.render(hostile).encode(), Change(gpu_memory_utilization=0.95), Ask())
    document = whatif_document(answer, Look(120))
    assert "[red]|`x`[/red]" in document_table.render((document,), Look(120), colour=False)
    assert "\\|\\`x\\`" in document_markdown.render((document,), Look(120))
    narrow = document_table.render((document,), Look(60, ascii_only=True), colour=False)
    assert narrow.isascii()
    assert max(map(len, narrow.splitlines())) <= 60


def test_nothing_to_change_is_refused():
    with pytest.raises(UsageFault):
        what_if(lines.render(start()).encode(), Change(), Ask())


@pytest.mark.parametrize(
    ("options", "code"),
    [(["--gpu-memory-utilization", "0.95"], 0), ([], 2), (["--engine-version", "soon"], 2), (["--target", "x=1"], 2),
     (["--gpu", "no such card", "--target", "tokens=1"], 2), (["--estimate-cudagraphs", "maybe"], 2)],
)  # fmt: skip
def test_exit_codes(tmp_path, options, code):
    log = tmp_path / "a.log"
    log.write_text(lines.render(start()))
    assert CliRunner().invoke(whole_app(), ["whatif", str(log), *options]).exit_code == code


def test_the_json_holds_every_term(tmp_path):
    log = tmp_path / "a.log"
    log.write_text(lines.render(start()))
    found = CliRunner().invoke(
        whole_app(), ["whatif", str(log), "--max-model-len", "4096", "--target", "concurrency=5", "--format", "json"]
    )
    answer = json.loads(found.output)
    assert answer["schema"] == "kvforensics.whatif/1"
    assert answer["change"] == {"max_model_len": 4096}
    assert {"requested_memory", "available_kv_cache_memory", "num_blocks"} <= {t["name"] for t in answer["terms"]}
    assert answer["target"]["already"] == "surely"
