"""probe and check as commands: exit codes, one line for what is wrong, files written whole."""

import json
import subprocess
import sys
import textwrap

import pytest

from kvforensics import probing
from kvforensics.output_file import write_whole
from kvforensics.probe_progress import lines
from kvforensics.report import probe_json
from tests.kvforensics.measured import config_file, measured_by_vllm
from tests.kvforensics.probe_stand_ins import ROOT, SAMPLE, run
from tests.kvforensics.test_checking import TRUTH
from tests.kvforensics.test_probe_left import left_by_vllm
from tests.render.lines import render


@pytest.fixture
def logged(tmp_path):
    """A log, and a probe of the same start."""
    (tmp_path / "server.log").write_text(render(TRUTH))
    (tmp_path / "probe.json").write_text(probe_json.render(measured_by_vllm(TRUTH)))
    return tmp_path / "server.log", tmp_path / "probe.json"


def test_check_ends_by_its_verdict(logged, tmp_path):
    """0 all inside, 1 a term outside, 3 nothing to compare; in every form."""
    log, probe = logged
    assert run("check", log, probe)[0] == 0
    wrong = tmp_path / "wrong.json"
    wrong.write_text(probe_json.render(measured_by_vllm(TRUTH, model_memory=1 << 30)))
    code, out, _ = run("check", log, wrong, "--format", "json")
    assert code == 1
    found = json.loads(out)
    assert (found["schema"], found["verdict"]) == ("kvforensics.check/1", "outside")
    (outside,) = [t for t in found["terms"] if t["verdict"] == "outside"]
    assert outside["quantity"] == "model_memory"
    assert run("check", log, wrong, "--tolerance", "2GiB")[0] == 0
    left_by_vllm(tmp_path / "left")
    code, out, _ = run("check", log, tmp_path / "left", "--format", "json")
    assert code == 3
    assert json.loads(out)["terms"][0]["measured"]["low"] == 80 << 30
    empty = json.loads(probe.read_text())
    empty["startups"][0]["engines"] = []
    (tmp_path / "empty.json").write_text(json.dumps(empty))
    assert run("check", log, tmp_path / "empty.json", "--format", "markdown")[0] == 3


def test_wrong_usage_is_code_2_and_one_line(logged, tmp_path):
    log, probe = logged
    damaged = json.loads(probe.read_text())
    damaged["startups"][0]["engines"][0]["ranks"][0]["quantities"]["total_memory"] |= {"low": 2, "high": 1}
    wrong = tmp_path / "wrong.json"
    wrong.write_text(json.dumps(damaged))
    for arguments in (
        ("check", log, tmp_path / "gone.json"),
        ("check", log, probe, "--tolerance", "-5"),
        ("check", log, wrong),
        ("check", log, log),
        ("check", tmp_path / "gone.log", probe),
        ("check", log, probe, "--format", "xml"),
        ("check", log, probe, "--startup", "9"),
        ("check", log, probe, "--out", tmp_path / "no" / "such.md"),
        ("check", log, probe, "--out", tmp_path),
        ("probe",),
        ("probe", "--from", tmp_path),
        ("probe", "--from", probe),
        ("probe", "--from", tmp_path, "--model", config_file(tmp_path)),
        ("check", log, tmp_path),
        ("probe", "--model", config_file(tmp_path), "--device", "cuda:x"),
        ("probe", "--model", config_file(tmp_path), "--device", "sim:9999999999GiB"),
        ("probe", "--model", "nobody/nothing-1B", "--device", "sim:24GiB"),
        (
            "probe",
            "--model",
            config_file(tmp_path),
            "--device",
            "sim:24GiB",
            "--gpu-memory-utilization",
            "0.9",
            "--dtype",
            "x",
        ),
    ):
        code, out, err = run(*arguments)
        assert (code, out, len(err.splitlines())) == (2, "", 1), (arguments, code, out, err)


def test_probe_takes_model_flags_and_release_from_a_log(monkeypatch):
    """What the command line says goes before what the log says; both answers come, code 1 if a term is outside."""
    asked = []

    def probe(request, _watch):
        asked.append(request)
        return measured_by_vllm(TRUTH)

    monkeypatch.setattr(probing, "probe", probe)
    code, out, _ = run("probe", "--log", SAMPLE, "--max-num-seqs", 7, "--format", "json")
    (request,) = asked
    assert (request.model, request.engine_version) == ("meta-llama/Llama-3.1-8B-Instruct", "0.33.0")
    assert (request.flags.max_model_len, request.flags.max_num_batched_tokens, request.flags.max_num_seqs) == (
        8192,
        8192,
        7,
    )
    assert request.flags.gpu_memory_utilization == 0.92
    assert request.card == "sim:H100-80GB"
    written = json.loads(out)
    assert (written["schema"], written["check"]["schema"]) == ("kvforensics.probe/1", "kvforensics.check/1")
    assert code in (0, 1, 3)


@pytest.mark.parametrize(
    ("printed", "asked"),
    [
        ("/root/.cache/huggingface/hub/models--Qwen--Qwen3-8B/snapshots/b968826d9c46dd6066d1", "Qwen/Qwen3-8B"),
        ("/data/models/Qwen3-8B", ""),
    ],
)  # fmt: skip
def test_a_model_of_the_hubs_cache_is_known_by_its_id(monkeypatch, tmp_path, printed, asked):
    """Any other path of the log's machine is refused in one line that says what to add."""
    log = tmp_path / "server.log"
    log.write_text(render(TRUTH).replace(TRUTH.model, printed))
    heard = []
    monkeypatch.setattr(
        probing, "probe", lambda request, _watch: heard.append(request.model) or measured_by_vllm(TRUTH)
    )
    code, _, err = run("probe", "--log", log)
    assert heard == ([asked] if asked else [])
    if not asked:
        assert (code, len(err.splitlines())) == (2, 1)
        assert "add --model" in err


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    """No temporary file is left, and a failed write leaves the old text."""
    path = tmp_path / "answer.md"
    write_whole(path, "old")
    write_whole(path, "new\n")
    assert path.read_text() == "new\n"
    with pytest.raises(ValueError, match="--out"):
        write_whole(tmp_path / "gone" / "answer.md", "x")
    with pytest.raises(UnicodeEncodeError):
        write_whole(path, "\ud800")
    assert path.read_text() == "new\n"
    assert [p.name for p in tmp_path.iterdir()] == ["answer.md"]


def test_progress_reads_journals_while_they_grow(tmp_path):
    """The last whole snapshot of each rank; a half-written line is left for the next look."""
    journals = f"journals: {tmp_path.parent}"
    assert lines(tmp_path, "probe") == ("probe: starting", journals)
    row = {"step": "load_model", "when": "before", "rank": "rank 0", "free": 3 << 30, "total": 4 << 30, "seconds": 2.2}
    whole = json.dumps({"kind": "snapshot", "value": row})
    (tmp_path / "rank-0.jsonl").write_text(whole + "\n" + whole[:40])
    assert lines(tmp_path, "run 1 of 2") == (
        "run 1 of 2, rank 0: in load_model, 2 s, 3.00 of 4.00 GiB free",
        journals,
    )


def test_explain_and_check_import_no_torch(logged):
    """Neither does the command line itself."""
    script = textwrap.dedent(f"""
        import sys
        from typer.testing import CliRunner
        from kvforensics.app import whole_app
        heavy = {{"torch", "numpy", "live_probe"}}
        assert CliRunner().invoke(whole_app(), ["explain", {str(SAMPLE)!r}]).exit_code == 0
        assert not heavy & set(sys.modules), heavy & set(sys.modules)
        assert CliRunner().invoke(whole_app(), ["check", {str(logged[0])!r}, {str(logged[1])!r}]).exit_code == 0
        assert "torch" not in sys.modules
    """)
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, timeout=60)
