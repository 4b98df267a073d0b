"""`compare`: whatever two start-ups are compared, every part holds the true one and the parts add up to the change."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, assume, given, settings
from typer.testing import CliRunner

from kvforensics.app import whole_app
from kvforensics.comparison import compare
from kvforensics.errors import UsageFault
from kvforensics.report import compare_json, document_markdown, document_table
from kvforensics.report.compare_document import compare_document
from kvforensics.report.look import Look
from reconstruct.change_parts import BLOCKS, COLUMNS, POOL, TOKENS, M, added
from tests.kvforensics.findings.starts import said
from tests.kvforensics.start_ups import rank, start
from tests.render import lines, strategies
from tests.render.numbers_as_printed import GIB
from tests.render.parts import Scope

RELAXED = settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))
TERMS = (
    ("requested_memory", 1), ("total_consumed", -1), ("transient_peak_headroom", -1), ("cudagraph_memory_applied", -1),
)  # fmt: skip


def compared(*truths):
    return compare([lines.render(truth).encode() for truth in truths])


def true_parts(first, second):
    """The parts of M and of the blocks, from the true figures of the only rank of each side's first engine."""
    sides = []
    for truth in (first, second):
        expected = truth.expected()
        own = {name: value for (scope, name), value in expected.items() if scope == Scope(0, 0, 0)}
        sides.append((own | {n: v for (s, n), v in expected.items() if s == Scope(0)}, truth))
    (a, _), (b, _) = sides
    mean = (Fraction(1, a["bytes_per_block"]) + Fraction(1, b["bytes_per_block"])) / 2
    of_m = {name: sign * (b[name] - a[name]) for name, sign in TERMS}
    of_blocks = {name: value * mean for name, value in of_m.items()}
    of_blocks["pool"] = ((b[POOL] - b[M]) - (a[POOL] - a[M])) * mean
    of_blocks["bytes_per_block"] = (Fraction(1, b["bytes_per_block"]) - Fraction(1, a["bytes_per_block"])) * (
        Fraction(a[POOL] + b[POOL], 2)
    )
    fits = [Fraction(max(s[POOL], 0) // s["bytes_per_block"]) for s in (a, b)]
    rests = [Fraction(s[POOL], s["bytes_per_block"]) - n for s, n in zip((a, b), fits, strict=True)]
    of_blocks["rounding"] = rests[0] - rests[1]
    of_blocks["override"] = (b[BLOCKS] - fits[1]) - (a[BLOCKS] - fits[0])
    assert sum(of_blocks.values()) == b[BLOCKS] - a[BLOCKS]
    return of_m, of_blocks


@RELAXED
@given(strategies.truths(), strategies.truths())
def test_the_parts_add_up_to_the_change_of_every_column(first, second):
    """For any two start-ups, failed ones too: the sum of the parts holds all that the change may be."""
    assume(first.reached.device and second.reached.device)
    for change in compared(first, second).changes:
        for column in COLUMNS:
            total = added(part.shares[column] for part in change.parts)
            assert change.change[column].within(total), column


@RELAXED
@given(strategies.truths(), strategies.truths())
def test_every_part_holds_the_true_one(first, second):
    """Where the true figures are known to the byte, each part of M and of the blocks contains what it truly is."""
    assume(
        all(t.outcome == "ready" and t.world == t.dp == 1 and t.kv_cache_memory_bytes is None for t in (first, second))
    )
    of_m, of_blocks = true_parts(first, second)
    (change,) = compared(first, second).changes
    for part in change.parts:
        moved = part.shares[M]
        slack = 1 if part.name == "requested_memory" else 0  # the byte that a float budget loses
        assert moved.low is None or moved.low - slack <= of_m.get(part.name, 0), part
        assert moved.high is None or of_m.get(part.name, 0) <= moved.high + slack, part
        if part.name in of_blocks:
            assert part.shares[BLOCKS].contains(of_blocks[part.name]), part


@RELAXED
@given(strategies.truths())
def test_a_start_up_does_not_differ_from_itself(truth):
    """Compared with itself, every column's change and every part may be nothing."""
    assume(truth.reached.device)
    (change,) = compared(truth, truth).changes
    for part in change.parts:
        assert all(part.shares[column].contains(0) for column in COLUMNS)


def kinds(change, name):
    return [cause.kind for part in change.parts if part.name == name for cause in part.causes]


def test_a_flag_is_named_as_the_cause_of_the_budget():
    (change,) = compared(start(u=0.8), start(u=0.95)).changes
    assert kinds(change, "requested_memory") == ["setting"]
    assert change.change[BLOCKS].low == change.change[BLOCKS].high > 0


def test_an_upgrade_alters_the_number_though_the_pool_stays():
    """0.20.0 counts blocks, 0.20.1 requests: with a length that fills no whole block the number moves, the blocks do not."""
    before, after = start("0.19.1", full_model_len=5003), start("0.20.2", full_model_len=5003, estimate_switch=False)
    (change,) = compared(before, after).changes
    assert change.change[BLOCKS] == (0, 0)
    formula = next(part for part in change.parts if part.name == "formula")
    assert formula.shares[TOKENS].high < 0
    assert [c.kind for c in formula.causes] == ["release"]


def test_graphs_charged_by_default_are_told_from_a_switch():
    (upgraded,) = compared(start("0.19.1"), start("0.21.0")).changes
    assert kinds(upgraded, "cudagraph_memory_applied") == ["default"]
    (switched,) = compared(start("0.21.0"), start("0.21.0", estimate_switch=False)).changes
    assert kinds(switched, "cudagraph_memory_applied") == ["setting"]


def test_a_start_that_compiled_is_the_cause_beside_one_that_loaded():
    """Also where no line tells either peak; two that compiled differ by something else."""
    took = "torch.compile took 24.31 s in total"
    found = f"Directly load the compiled graph(s) for compile range (1, 8192)\n{took}"
    compiled, alike, loaded = (
        said(lines.render(truth), "Available KV", message).encode()
        for truth, message in ((start(), took), (start(rank=rank(torch_peak_increase=GIB)), took), (start(), found))
    )
    for logs, word in (((loaded, compiled), "the second compiled"), ((compiled, loaded), "the first compiled")):
        (change,) = compare(list(logs)).changes
        (cause,) = next(part for part in change.parts if part.name == "transient_peak_headroom").causes
        assert word in cause.text
        assert cause.before
        assert cause.after
    (change,) = compare([compiled, alike]).changes
    assert "compiled" not in str([part.causes for part in change.parts])


def test_a_changed_default_utilisation_is_a_default():
    before, after = start("0.19.1", u=0.9), start("0.21.0", u=0.92)
    (change,) = compared(before, after).changes
    assert "default" in kinds(change, "requested_memory")


def test_a_peak_that_grew_without_a_reason_is_said_to_have_grown():
    heavier = rank(transient_peak_headroom=3 * GIB)
    (change,) = compared(start("0.30.0"), start("0.30.0", rank=heavier)).changes
    assert kinds(change, "transient_peak_headroom") == ["measured"]


def test_other_processes_are_named_where_they_are_charged():
    crowded = rank(initial_free_memory=75 * GIB, total_consumed=16 * GIB)
    (change,) = compared(start("0.30.0"), start("0.30.0", rank=crowded)).changes
    assert "others" in kinds(change, "total_consumed")


def test_another_block_is_the_models_or_the_dtypes():
    halved = rank(bytes_per_block=458752)
    (change,) = compared(start(), start(kv_cache_dtype="fp8", rank=halved)).changes
    assert kinds(change, "bytes_per_block") == ["model"]


def test_more_than_two_logs_make_a_table_against_the_first():
    answer = compared(start(u=0.7), start(u=0.8), start(u=0.9))
    assert len(answer.changes) == 2
    text = document_table.render((compare_document(answer, Look(120)),), Look(120), colour=False)
    assert "log 3" in text
    assert "From log 1 to log 3" in text


def test_the_json_holds_one_list_of_parts_that_adds_up():
    answer = json.loads(compare_json.render(compared(start(u=0.8, log_level="DEBUG"), start(u=0.9, log_level="DEBUG"))))
    assert answer["schema"] == "kvforensics.compare/1"
    for column in COLUMNS:
        ends = [(part[column]["low"], part[column]["high"]) for part in answer["parts"]]
        change = answer["change"][column]
        assert sum(low for low, _ in ends) <= change["low"] <= change["high"] <= sum(high for _, high in ends)
        assert all(isinstance(end, int) for pair in ends for end in pair)


def test_hostile_names_are_no_markup():
    """What a log calls its model reaches neither rich nor Markdown as markup."""
    hostile = start(model="[red]|`x`[/red]")
    answer = compared(hostile, hostile)
    document = compare_document(answer, Look(100))
    assert "[red]|`x`[/red]" in document_table.render((document,), Look(100), colour=False).replace("\n", "")
    assert "\\|\\`x\\`" in document_markdown.render((document,), Look(100))


def test_which_start_up_is_compared_is_stated(tmp_path):
    log = tmp_path / "two.log"
    log.write_text(lines.render_all([start(u=0.8), replace(start(u=0.9), start=86400)]))
    answer = CliRunner().invoke(whole_app(), ["compare", str(log), str(log)])
    assert answer.exit_code == 0
    assert "start-up 2 of 2" in answer.output
    asked = CliRunner().invoke(whole_app(), ["compare", str(log), str(log), "--startup", "1", "--format", "json"])
    assert json.loads(asked.output)["sources"][0]["startup"] == 1


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["compare", "{log}"], 2), (["compare", "{log}", "{missing}"], 2), (["compare", "{log}", "{empty}"], 3),
     (["compare", "{log}", "{log}", "--format", "x"], 2), (["compare", "{log}", "{log}", "--startup", "7"], 2)],
)  # fmt: skip
def test_exit_codes(tmp_path, arguments, code):
    names = {"log": tmp_path / "a.log", "missing": tmp_path / "none.log", "empty": tmp_path / "empty.log"}
    names["log"].write_text(lines.render(start()))
    names["empty"].write_text("nothing\n")
    found = CliRunner().invoke(whole_app(), [argument.format(**names) for argument in arguments])
    assert found.exit_code == code


def test_one_log_alone_is_refused():
    with pytest.raises(UsageFault):
        compare([lines.render(start()).encode()])
