"""What leaves with a report or a shared log: nobody's name, no machine, no key, and every figure."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from kvforensics.app import whole_app
from kvforensics.explanation import explain
from kvforensics.redacting import LONGEST, shareable
from kvforensics.report.json import explain_object
from tests.kvforensics.test_tickets import OTHER, RELAXED, SAMPLES, run
from tests.render import lines, strategies, wrappers


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
