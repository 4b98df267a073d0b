"""What goes into a ticket: every form of the report, the brief one, files, masking, and logs made to be shared."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import settings
from typer.testing import CliRunner

from kvforensics.app import app
from kvforensics.explanation import explain
from kvforensics.report import html, jira, markup_jira, markup_slack, slack, svg
from kvforensics.report.brief import briefs
from kvforensics.report.look import Look
from tests.kvforensics.findings.starts import FOREIGN, READY, RESTART, UNRELATED, said
from tests.kvforensics.report import ledgers
from tests.kvforensics.report.pages import measured, needs_chromium, parsed
from tests.kvforensics.report.test_reports import REPORTS, hostile

SAMPLES = Path(__file__).parents[2] / "sample_logs"
LOG = str(SAMPLES / "vllm-0.14.1-free-below-desired.log")
OTHER = str(SAMPLES / "vllm-0.33.0-single.log")
FORMS = ("table", "markdown", "json", "html", "svg", "jira", "slack", "csv")
RENDERERS = {"html": html.render, "svg": svg.render, "jira": jira.render, "slack": slack.render}
RELAXED = settings(max_examples=40)


def run(*arguments):
    """Run the command line; give its exit code, what it answered and what it complained of."""
    done = CliRunner().invoke(app, list(arguments))
    return done.exit_code, done.stdout, done.stderr


# Findings in the reports


@pytest.mark.parametrize("form", ["table", "markdown", "html", "jira", "slack"])
def test_findings_stand_with_their_lines_cost_and_actions(form):
    _, text, _ = run("explain", LOG, "--format", form, "--width", "200")
    plain = text.replace("\\", "")
    for part in ("The budget exceeds the free memory", "L15, 21", "16.92 ±0.01 GiB", "--gpu-memory-utilization 0.6862"):
        assert part in plain
    assert plain.index("error: The budget exceeds") < plain.index("device memory")
    assert "to judge batched-tokens-eat-kv" in plain


def test_the_worst_finding_answers_and_not_its_milder_cause():
    text = run("explain", LOG)[1]
    verdict = text[: text.index("where the memory went")]
    assert "error: The budget exceeds" in verdict
    assert "Other processes" not in verdict


def test_a_start_up_that_is_well_says_healthy():
    _, text, _ = run("explain", str(SAMPLES / "vllm-0.26.0-tp2.log"))
    assert re.search(r"^healthy$", text, re.MULTILINE)


# Brief


@pytest.mark.parametrize("shape", REPORTS)
def test_brief_is_five_lines(shape):
    for told in briefs(REPORTS[shape](), Look(startup="all")):
        assert [line.label for line in told] == ["start-up", "memory", "verdict", "do", "log"]
        assert all(line.text.isprintable() and line.text for line in told)


@pytest.mark.parametrize("form", ["table", "markdown", "jira", "slack"])
def test_brief_names_what_is_wrong_and_what_to_do(form):
    code, text, _ = run("explain", LOG, "--brief", "--format", form)
    assert (code, len(text.splitlines())) == (0, 5)
    assert "0.6862" in text
    assert "before it: Other processes hold memory" in text


def told_of(log):
    """The brief lines of a log's last start-up, by their labels."""
    return dict(briefs(explain(log.encode()), Look())[0])


def test_brief_quotes_an_error_that_no_rule_explains_and_advises_on_nothing_else():
    """A warning beside it is not why the start failed: neither verdict nor advice is taken from it."""
    told = told_of(
        said(FOREIGN, "Traceback (most", "Hybrid KV cache manager is disabled for this hybrid model, This means")
    )
    assert told["verdict"].startswith("error: The start failed, and no rule explains why; ended by ")
    assert "Free HBM is below" in told["verdict"]
    assert "hybrid" not in told["do"]


def test_a_failure_of_something_else_stands_before_a_warning():
    told = told_of(
        said(UNRELATED, "Traceback (most", "Hybrid KV cache manager is disabled for this hybrid model, This means")
    )
    assert told["verdict"].startswith("note: Memory is not what stopped this start; ended by ")


def test_brief_counts_the_other_start_ups():
    assert "this is 2 of 2; number 1 failed" in told_of(RESTART)["log"]
    assert "this is" not in told_of(READY)["log"]


def test_brief_of_a_healthy_start_gives_no_advice():
    told = dict(briefs(ledgers.whole(), Look())[0])
    assert told["verdict"] == "healthy"
    assert "VLLM_" not in told["do"]


@pytest.mark.parametrize("form", ["json", "html", "svg", "csv"])
def test_brief_is_text_only(form):
    code, _, error = run("explain", LOG, "--brief", "--format", form)
    assert code == 2
    assert error.startswith("kvforensics: --brief: not with --format")


# Files


@pytest.mark.parametrize("form", FORMS)
def test_out_writes_what_stdout_would_have_shown(form, tmp_path):
    file = tmp_path / "report"
    code, text, _ = run("explain", LOG, "--format", form, "--out", str(file))
    assert (code, text) == (0, "")
    assert file.read_text(encoding="utf-8") == run("explain", LOG, "--format", form)[1]
    assert [p.name for p in tmp_path.iterdir()] == ["report"]


def test_out_into_no_folder_is_bad_usage(tmp_path):
    code, _, error = run("explain", LOG, "--out", str(tmp_path / "no" / "file"))
    assert code == 2
    assert re.fullmatch(r"kvforensics: --out \S+: there is no folder \S+\n", error)


def test_a_log_that_fails_leaves_the_old_file(tmp_path):
    file = tmp_path / "report"
    file.write_text("old")
    assert run("explain", str(tmp_path / "none.log"), "--out", str(file))[0] == 2
    assert file.read_text() == "old"


def test_several_logs_go_into_one_text_but_not_into_one_picture(tmp_path):
    file = tmp_path / "report"
    assert run("explain", LOG, OTHER, "--format", "json", "--out", str(file))[0] == 0
    assert [json.loads(line)["schema"] for line in file.read_text().splitlines()] == ["kvforensics.explain/1"] * 2
    assert run("explain", LOG, OTHER, "--format", "html")[0] == 2


# Forms


@pytest.mark.parametrize("shape", REPORTS)
def test_html_is_well_formed_alone_and_asks_nobody(shape):
    page = parsed(html.render(REPORTS[shape](), Look(startup="all", all_ranks=True)))
    assert not {"script", "img", "link", "iframe"} & set(page.tags)
    assert not {"src", "href"} & {name for name, _ in page.attributes}
    assert "i" in page.tags or shape in {"crash_loop", "pipeline"}


def test_foreign_text_is_text_in_html():
    page = parsed(html.render(hostile(), Look()))
    assert "b" not in page.tags
    assert "<b>|`" in "".join(page.words)


def test_svg_is_xml_that_fetches_nothing():
    for report in (hostile(), ledgers.crash_loop()):
        text = svg.render(report, Look())
        assert ElementTree.fromstring(text).tag.endswith("svg")
        assert "url(http" not in text
        assert "@font-face" not in text


@pytest.mark.parametrize("form", RENDERERS)
def test_every_form_masks_unless_told_otherwise(form):
    assert "hf_abc" not in RENDERERS[form](hostile(), Look(120))
    assert "alice" not in RENDERERS[form](hostile(), Look(120))
    assert "alice" in RENDERERS[form](hostile(), Look(200, redact=False))


@pytest.mark.parametrize("form", ["html", "jira", "slack"])
@pytest.mark.parametrize("shape", REPORTS)
def test_ascii_is_ascii_in_every_form(form, shape):
    assert RENDERERS[form](REPORTS[shape](), Look(ascii_only=True)).isascii()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("{code} [a|b] *x*", r"\{code\} \[a\|b\] \*x\*"),
        ("-x- a-b kv_cache _i_ c+d", r"\-x\- a-b kv_cache \_i\_ c+d"),
        ("(x) (on) f(x, y) :) L7: a", r"\(x) \(on) f(x, y) \:) L7: a"),
        ("??cite??", r"\??cite\??"),
        (r"C:\Users\\x", "C:&#92;Users&#92;&#92;x"),
    ],
)
def test_jira_markup_is_escaped(text, shown):
    assert markup_jira.escaped(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<!channel> & co", "&lt;!channel&gt; &amp; co"),
        ("*x* `y`", "`*x* 'y'`"),
        ("max_num_seqs: 3; a: b", "max_num_seqs: 3; a: b"),
        (":smile:", "`:smile:`"),
        ("ask @alice", "`ask @alice`"),
    ],
)
def test_slack_markup_is_escaped(text, shown):
    assert markup_slack.escaped(text) == shown


@pytest.mark.parametrize("shape", REPORTS)
def test_jira_tables_have_as_many_cells_in_every_row(shape):
    for block in jira.render(REPORTS[shape](), Look(startup="all")).split("\n\n"):
        rows = [line for line in block.splitlines() if line.startswith("|")]
        assert len({len(re.findall(r"(?<!\\)\|+", row)) for row in rows}) <= 1


def test_csv_has_one_row_for_each_quantity():
    rows = list(csv.DictReader(io.StringIO(run("explain", OTHER, "--format", "csv")[1])))
    engine = json.loads(run("explain", OTHER, "--format", "json")[1])["startups"][0]["engines"][0]
    accounts = [(rank["name"], rank["quantities"]) for rank in engine["ranks"]]
    accounts.append(("", engine["capacity"]["quantities"]))
    wanted = [
        (rank, name, *("" if q[end] is None else str(q[end]) for end in ("low", "high")), q["unit"])
        for rank, quantities in accounts
        for name, q in quantities.items()
    ]
    assert [(r["rank"], r["quantity"], r["low"], r["high"], r["unit"]) for r in rows] == wanted


def test_csv_holds_no_formula():
    report = ledgers.whole()._replace(name="=HYPERLINK(1)")
    from kvforensics.report import csv as sheet

    assert all(row[0].startswith("'=") for row in list(csv.reader(io.StringIO(sheet.render(report, Look()))))[1:])


@needs_chromium
def test_chromium_draws_the_html(tmp_path):
    """The bars have the widths that the figures ask for, and nothing hangs over the page's edge."""
    asked = "[w('.pool .sure') / w('.pool .track'), document.documentElement.scrollWidth <= innerWidth]"
    share, fits = measured(html.render(explain(OTHER), Look()), asked, tmp_path)
    assert share == pytest.approx(0.702, abs=0.005)
    assert fits


def test_explaining_as_a_table_imports_no_other_form():
    script = (
        "import sys; from kvforensics.app import app; app(['explain', sys.argv[1]], standalone_mode=False);"
        "print([m for m in sys.modules if m.startswith('kvforensics.report.') or m == 'kvforensics.redacting'])"
    )
    done = subprocess.run([sys.executable, "-c", script, LOG], capture_output=True, text=True, check=True)
    loaded = done.stdout.splitlines()[-1]
    for name in ("html", "html_style", "svg", "jira", "slack", "csv", "brief", "formats", "redacting"):
        assert f".{name}'" not in loaded
