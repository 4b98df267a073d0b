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
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from kvforensics.app import app, whole_app
from kvforensics.explanation import explain
from kvforensics.redacting import LONGEST, shareable
from kvforensics.report import html, jira, markup_jira, markup_slack, slack, svg
from kvforensics.report.brief import briefs
from kvforensics.report.json import explain_object
from kvforensics.report.look import Look
from tests.kvforensics.findings.starts import FOREIGN, READY, RESTART, UNRELATED, said
from tests.kvforensics.report import ledgers
from tests.kvforensics.report.pages import measured, needs_chromium, parsed
from tests.kvforensics.report.test_reports import REPORTS, hostile
from tests.render import lines, strategies, wrappers

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


# Masking


def test_no_redact_keeps_what_is_quoted(tmp_path):
    log = tmp_path / "x.log"
    quote = "(EngineCore pid=9) INFO 01-05 08:00:00 [gpu_worker.py:1] Odd memory of http://gpu17.lab:80 is 3.5 GiB\n"
    log.write_text(Path(OTHER).read_text() + quote)
    for form in ("table", "json"):
        assert "gpu17" not in run("explain", str(log), "--format", form, "--width", "200")[1]
        assert "gpu17" in run("explain", str(log), "--format", form, "--width", "200", "--no-redact")[1]


def figures(text):
    """Give all that an explanation says but for names: quantities with lines, gaps, conflicts, findings."""
    report = explain_object(explain(text))
    return [
        (
            s["version"], s["outcome"], s["first_line"], s["last_line"], s["conflicts"], s["findings"], s["unsaid"],
            [
                (
                    e["dp"], e["capacity"], e["residual"],
                    [(r["name"], r["dp"], r["pp"], r["tp"], r["quantities"], r["missing"]) for r in e["ranks"]],
                )
                for e in s["engines"]
            ],
        )
        for s in report["startups"]
    ]  # fmt: skip


def copy(text, size=1 << 20):
    return b"".join(shareable([text[at : at + size] for at in range(0, len(text), size)]))


@RELAXED
@given(strategies.truths(), st.sampled_from(wrappers.WRAPPERS), st.integers(1, 5000))
def test_a_shared_log_is_explained_alike(truth, wrap, size):
    """Whatever wraps the lines and wherever the pieces are cut: the same lines, the same ledger."""
    text = wrap(lines.render(truth)).encode()
    shared = copy(text, size)
    assert shared.count(b"\n") == text.count(b"\n")
    assert figures(shared) == figures(text)


@pytest.mark.parametrize("log", sorted(SAMPLES.glob("*.log")), ids=lambda log: log.stem)
def test_a_shared_sample_is_explained_alike(log):
    text = log.read_bytes()
    assert figures(copy(text)) == figures(text)


@given(st.binary(max_size=300), st.integers(1, 50))
def test_any_bytes_keep_their_line_ends(text, size):
    shared = copy(text, size)
    assert re.findall(rb"[\r\n]", shared) == re.findall(rb"[\r\n]", text)
    assert shared == copy(text)


def test_a_log_with_nothing_to_hide_stays_as_it_is():
    text = b"\xff\xfe INFO 01-05 08:00:00 [x.py:1] 13.88 GiB\r\n\x1b[32mok\x1b[0m no line end"
    assert copy(text) == text


def test_machines_stay_apart_under_other_names():
    shared = copy(
        b"(RayWorker pid=1, ip=10.0.0.7) a\n(RayWorker pid=2, ip=10.0.0.8) b\n(RayWorker pid=1, ip=10.0.0.7) c\n"
        b"Jan 05 08:00:00 gpu17 vllm[913]: d\nhost=gpu17 HF_TOKEN=hf_abcdefghijklmnop /home/alice/x\n"
    ).decode()
    a, b, c, journal, last = shared.splitlines()
    assert a[:-1] == c[:-1]
    assert a[:-1].replace("pid=1", "pid=2") != b[:-1]
    assert f"host={journal.split()[3]} " in last
    assert not re.search("10\\.0|gpu17|hf_|alice", shared)


SECRETS = ("sk-proj-AbCdEf123456", "hf_QwErTyUiOp98765asdf", "hunter2hunter2", "glpat-a1B2c3D4e5F6g7")
LAUNCHES = (
    "+ vllm serve m --api-key {} --port 8000",
    "non-default args: {{'model': 'm', 'hf_token': '{}', 'max_model_len': 8192}}",
    "export HF_TOKEN={} && vllm serve m",
    "Authorization: Bearer {}",
    "model='/home/{}/models/x', dtype=auto",
)


@given(st.sampled_from(SECRETS), st.sampled_from(LAUNCHES), st.sampled_from(["", "> "]), st.data())
def test_a_secret_that_a_width_cut_is_masked_in_all_its_lines(secret, launch, lead, data):
    """Wherever the break lies inside it; and every line keeps its length."""
    line = launch.format(secret)
    at = line.index(secret) + data.draw(st.integers(1, len(secret) - 1))
    text = "".join(f"{lead}{part}\n" for part in ("INFO 01-05 08:00:00 [x.py:1] up", line[:at], line[at:]))
    shared = copy(text.encode()).decode()
    assert [len(part) for part in shared.split("\n")] == [len(part) for part in text.split("\n")]
    begun, rest = (part.removeprefix(lead) for part in shared.splitlines()[1:])
    assert set(begun[line.index(secret) :]) == {"*"}
    assert set(rest[: line.index(secret) + len(secret) - at]) == {"*"}


@pytest.mark.parametrize(
    "text",
    ["--api-key\ns3cr3tword --port 1\n", "x --api-key\ns3cr3tword\n", "a 'api_key': 's3cr3t\nword', b\n"],
)
def test_a_value_below_its_option_is_masked(text):
    assert not re.search("s3cr3t|word", copy(text.encode()).decode())


@pytest.mark.parametrize(
    "following",
    [
        "Available KV cache memory: 13.88 GiB",
        "INFO 01-05 08:00:00 [x.py:1] Up",
        "  indented",
        "--port 80",
        "",
        "# GPU blocks: 9",
    ],
)
def test_a_line_of_its_own_below_a_secret_keeps_its_words(following):
    text = f"INFO 01-05 08:00:00 [x.py:1] up\n+ vllm serve m --api-key s3cr3tword\n{following}\n"
    assert copy(text.encode()).decode().endswith(f" **********\n{following}\n")


@RELAXED
@given(strategies.truths(), st.integers(60, 120), st.sampled_from(SECRETS), st.integers(1, 5000))
def test_a_cut_log_with_secrets_is_explained_alike(truth, width, secret, size):
    """A terminal's width cuts names, keys and addresses too; the reader joins the lines by their length."""
    launch = f"(APIServer pid=1) INFO 01-05 07:59:59 [utils.py:233] non-default args: {{'model': '/home/alice/{truth.model}', "
    launch += f"'api_key': ['{secret}'], 'host': 'gpu17.lab', 'hf_token': '{secret}'}}\n"
    whole = (launch + lines.render(truth)).split("\n")
    text = "\n".join(line[at : at + width] for line in whole for at in range(0, len(line) or 1, width)).encode()
    shared = copy(text, size)
    assert figures(shared) == figures(text)
    assert secret not in shared.decode().replace("\n", "")
    assert "alice" not in shared.decode().replace("\n", "")


def test_a_line_without_end_is_passed_on_in_bounded_pieces():
    given_pieces = (b"x" * (1 << 16) for _ in range(40))
    assert max(len(piece) for piece in shareable(given_pieces)) < (1 << 16) + 2 * LONGEST


def test_the_command_writes_the_copy(tmp_path):
    log, out = tmp_path / "in.log", tmp_path / "out.log"
    log.write_bytes(b"a /home/alice/x\nb")
    assert run("redact", str(log)) == (0, "a /home/*****/x\nb", "")
    assert run("redact", str(log), "--out", str(out)) == (0, "", "")
    assert out.read_bytes() == b"a /home/*****/x\nb"
    assert run("redact", str(log), "--out", str(log))[0] == 0
    assert log.read_bytes() == b"a /home/*****/x\nb"


def test_a_log_that_is_not_there_leaves_no_copy(tmp_path):
    code, _, error = run("redact", str(tmp_path / "none"), "--out", str(tmp_path / "out"))
    assert (code, len(error.splitlines())) == (2, 1)
    assert not list(tmp_path.iterdir())


def test_the_command_stands_among_the_others():
    assert " redact " in CliRunner().invoke(whole_app(), ["--help"]).output


def test_json_says_nothing_of_people_and_machines():
    """Nor do its own fields: the input's name, the model's path, the addresses of nodes, which stay apart."""
    loads = [
        f"(RayWorkerWrapper pid={pid}, ip=10.1.2.{pid}) INFO 05-20 10:00:0{pid} [gpu_model_runner.py:1] "
        "Model loading took 14.99 GiB and 3.5 seconds"
        for pid in (3, 4)
    ]
    first = "INFO 05-20 10:00:00 [core.py:1] Initializing a V1 LLM engine (v0.9.2) with config: "
    text = "\n".join([f"{first}model='/home/alice/llama', tensor_parallel_size=2,", *loads])
    report = explain(text.encode())._replace(name="/home/alice/server.log")
    masked, whole = (json.dumps(explain_object(report, mask=mask)) for mask in (True, False))
    assert not any(private in masked for private in ("alice", "10.1.2."))
    assert all(private in whole for private in ("/home/alice/server.log", "/home/alice/llama", "10.1.2.3"))
    ranks = json.loads(masked)["startups"][0]["engines"][0]["ranks"]
    assert {rank["node"] for rank in ranks} == {"node 1", "node 2"}
