"""Starts that die, hang or are interrupted: what they leave, and that no process of theirs remains."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from kvforensics import probing
from kvforensics.report import probe_json
from live_probe.child_process import UNSEEN
from tests.kvforensics.measured import SMALL_BATCH, config_file
from tests.kvforensics.probe_stand_ins import ROOT, STAND_IN_TORCH, STAND_IN_VLLM, command, gone, run


@pytest.fixture
def engine(tmp_path, monkeypatch):
    """An environment with a vLLM and a torch that only play; gives what changes the number of cards."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "vllm.py").write_text(STAND_IN_VLLM)
    (site / "vllm-0.33.0.dist-info").mkdir()
    (site / "vllm-0.33.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.33.0\n")

    def cards(count):
        (site / "torch.py").write_text(
            STAND_IN_TORCH.replace("CARDS, __version__ = 0", f"CARDS, __version__ = {count}")
        )

    cards(0)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(ROOT), str(site))))
    monkeypatch.setattr(probing, "find_spec", lambda _name: True)
    monkeypatch.setattr(probing.tempfile, "tempdir", str(tmp_path))  # what a dead start leaves goes with the test
    return cards


def test_a_probe_by_the_torch_engine_writes_its_json(tmp_path):
    """The whole way, through the process that simulates; the schema's own keys. Its folder tells the same."""
    out, temporary, kept = tmp_path / "probe.json", tmp_path / "t", tmp_path / "kept"
    temporary.mkdir()
    asked = ("probe", "--model", config_file(tmp_path), "--device", "sim:512MiB", "--out", out, *SMALL_BATCH)
    asked += ("--keep", kept)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "TMPDIR": str(temporary)}
    sorting = ("--engine-version", "0.16.0")  # for its sort torch loads its compiler, which makes a folder of its own
    ended = subprocess.run(command(*asked, *sorting), cwd=tmp_path, env=environment, check=False)
    assert ended.returncode == 0
    written = json.loads(out.read_text())
    assert written["schema"] == "kvforensics.probe/1"
    (startup,) = written["startups"]
    quantities = startup["engines"][0]["ranks"][0]["quantities"]
    assert quantities["total_memory"]["low"] == quantities["total_memory"]["high"] == 512 << 20
    assert quantities["model_memory"]["origin"] == "measured"
    assert (startup["outcome"], startup["first_line"]) == ("ready", None)
    assert written["environment"]["simulated"] is True
    assert written["snapshots"][0].keys() >= {
        "step", "when", "rank", "free", "total", "allocated", "reserved", "peak"
    }  # fmt: skip
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "kept", "probe.json", "t"]
    assert not list(temporary.iterdir())
    (tmp_path / "config.json").unlink()
    code, again, err = run("probe", "--from", kept, "--format", "json")
    assert (code, err) == (0, "")
    assert json.loads(again) == {**written, "notes": [f"read from the journals in {kept}"]}


def test_a_start_killed_in_any_step_leaves_its_json(tmp_path):
    """SIGKILL of the engine's process in each step: code 1, the step named, the figures before it there."""
    script = textwrap.dedent(f"""
        import gc, os, signal, torch
        from typer.testing import CliRunner
        from kvforensics import probing
        from kvforensics.app import whole_app
        from live_probe import torch_child
        from live_probe.child_process import records_of
        from live_probe.journal import Journal

        def dying_in(step):
            def probe_torch(start, engine, run=0):
                engine.folder.mkdir(parents=True)
                child = os.fork()
                if child == 0:
                    plain = Journal.write
                    def write(self, entry):
                        plain(self, entry)
                        if getattr(entry, "step", "") == step and getattr(entry, "when", "") == "before":
                            os.kill(os.getpid(), signal.SIGKILL)
                    Journal.write = write
                    torch_child.go_through(start, engine.folder / "rank-0.jsonl")
                    os._exit(0)
                code = os.waitpid(child, 0)[1]
                return records_of(engine.folder, "torch", run, "killed" if os.WIFSIGNALED(code) else "")
            return probe_torch

        torch.ones(2, 2, device="meta").add(1).sort(dim=-1)  # torch imports its meta kernels on first use
        gc.collect()
        gc.freeze()
        for step in {STEPS!r}:
            probing.probe_torch = dying_in(step)
            asked = ["probe", "--model", {str(config_file(tmp_path))!r}, "--device", "sim:512MiB", *{SMALL_BATCH!r}]
            asked = [word for word in asked if step not in ("capture_model", "profile_cudagraph_memory")
                     or word != "--enforce-eager"]
            result = CliRunner().invoke(whole_app(), [*asked, "--out", f"{tmp_path}/{{step}}.json"])
            assert result.exit_code == 1, (step, result.exit_code, result.output, result.exception)
    """)
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, timeout=120)
    for place, step in enumerate(STEPS):
        written = json.loads((tmp_path / f"{step}.json").read_text())
        (failure,) = written["startups"][0]["failures"]
        assert (failure["step"], failure["kind"]) == (step, "killed")
        assert failure["total"] == 512 << 20
        assert {snapshot["step"] for snapshot in written["snapshots"]} >= set(STEPS[:place]) - {"capture_model"} - {
            "profile_cudagraph_memory"
        }


STEPS = (
    "init_device", "init_runner", "load_model", "init_sampler", "memory_profiling", "profile_run",
    "profile_cudagraph_memory", "initialize_kv_cache", "capture_model", "replay_profile_run",
)  # fmt: skip


def test_the_real_engines_ranks_become_a_ledger(engine, tmp_path):
    """Arguments by vLLM's names, one rank each, the log kept where asked."""
    code, out, err = run(
        "probe", "--engine", "vllm", "--model", config_file(tmp_path), "--tp", 2, "--max-model-len", 256,
        "--keep", tmp_path / "kept", "--format", "json",
    )  # fmt: skip
    assert (code, err) == (0, "")
    (startup,) = json.loads(out)["startups"]
    ranks = startup["engines"][0]["ranks"]
    assert [(r["name"], r["tp"], r["quantities"]["model_memory"]["low"]) for r in ranks] == [
        ("rank 0", 0, 7),
        ("rank 1", 1, 8),
    ]
    asked = json.loads((tmp_path / "kept" / "run-0" / "asked").read_text())
    assert (asked["tensor_parallel_size"], asked["max_model_len"]) == (2, 256)
    assert json.loads((Path(asked["model"]) / "config.json").read_text())["model_type"] == "llama"


def test_the_real_engine_that_dies_leaves_ledger_and_log(engine, tmp_path):
    """Code 1; the answer names the engine's own log, which is still there."""
    code, out, _ = run(
        "probe", "--engine", "vllm", "--model", config_file(tmp_path), "--quantization", "fails", "--format", "json"
    )
    written = json.loads(out)
    assert code == 1
    assert written["startups"][0]["failures"][0]["message"] == "the engine ended with exit code 1"
    (note,) = [note for note in written["notes"] if "log" in note]
    assert (Path(note.rpartition(": ")[2]) / "run-0" / "engine.log").is_file()


def test_a_card_that_others_hold_is_refused(engine, tmp_path):
    """By what is in use on it where the driver lists no one; --share goes on, with a server's own batch."""
    engine(1)
    asked = ("probe", "--engine", "vllm", "--model", config_file(tmp_path))
    code, out, err = run(*asked, "--keep", tmp_path / "kept", "--share", "--format", "json")
    assert code == 0, err
    given = json.loads((tmp_path / "kept" / "run-0" / "asked").read_text())
    assert (given["max_num_batched_tokens"], given["max_num_seqs"]) == (8192, 1024)
    full = STAND_IN_TORCH.replace("80 << 30", "40 << 30").replace("CARDS, __version__ = 0", "CARDS, __version__ = 1")
    (tmp_path / "site" / "torch.py").write_text(full)
    code, out, err = run(*asked)
    assert (code, out) == (2, "")
    assert "--share" in err


def test_a_card_that_does_not_open_is_named(engine, tmp_path):
    """Only the cards that a start takes are opened at all."""
    engine(1)
    broken = STAND_IN_TORCH.replace("CARDS, __version__ = 0", "CARDS, __version__ = 2").replace(
        "set_device = staticmethod(lambda device: None)", "set_device = staticmethod(lambda device: device.broken())"
    ).replace("def __init__(self, *names): pass", "def __init__(self, kind, index): self.index = index\n"
              "    def broken(self):\n        if self.index: raise RuntimeError('CUDA error: busy\\nmore')")  # fmt: skip
    (tmp_path / "site" / "torch.py").write_text(broken)
    asked = ("probe", "--engine", "vllm", "--model", config_file(tmp_path), "--share")
    assert run(*asked)[0] == 0
    code, out, err = run(*asked, "--tensor-parallel-size", "2")
    assert (code, out) == (2, "")
    assert "CUDA device 1 does not open: CUDA error: busy; --python" in err


def heeding_signals():
    """Undo what `nohup` and a shell's `&` leave to their children: Ctrl-C and a closed terminal ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_no_process_outlives_the_command(engine, tmp_path, how):
    """Ctrl-C, a plain kill, a closed terminal: the shell's code, one line, the ledger so far. SIGKILL: the folder tells it."""
    out, kept, temporary = tmp_path / "probe.json", tmp_path / "kept", tmp_path / "t"
    temporary.mkdir()
    asked = ("probe", "--engine", "vllm", "--model", config_file(tmp_path), "--quantization", "hangs")
    child = subprocess.Popen(
        command(*asked, "--keep", kept, "--out", out), stderr=subprocess.PIPE, text=True, cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(temporary)},
        preexec_fn=heeding_signals,  # noqa: PLW1509 - no threads here
    )  # fmt: skip
    worker = kept / "run-0" / "worker.pid"
    deadline = time.monotonic() + 20
    while not (worker.is_file() and worker.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    child.send_signal(how)
    _, err = child.communicate(timeout=30)
    assert gone(int(worker.read_text()))
    assert not list(temporary.iterdir())
    code, found, _ = run("probe", "--from", kept, "--format", "json")
    (startup,) = json.loads(found)["startups"]
    (failure,) = startup["failures"]
    assert (code, failure["step"]) == (1, "load_model")
    assert startup["engines"][0]["ranks"][0]["quantities"]["model_memory"]["low"] == 7
    if how == signal.SIGKILL:
        assert failure["message"] == UNSEEN
        assert not out.exists()
    else:
        assert child.returncode == 128 + how
        assert err.splitlines() == [
            "kvforensics: run 1, rank 0: interrupted in load_model with 4 of 10 GiB free; no process is left"
        ]
        assert json.loads(out.read_text())["startups"] == [startup]
        assert startup["outcome"] == "unfinished"


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_what_was_measured_is_not_lost_by_a_signal_while_it_is_written(engine, tmp_path, monkeypatch, how):
    """The answer comes first, and nothing was interrupted; whoever asks twice waits no longer."""
    plain, out, times = probe_json.render, tmp_path / "probe.json", []

    def interrupted(report):
        times.append(how)
        for _ in times:
            os.kill(os.getpid(), how)
        return plain(report)

    monkeypatch.setattr(probe_json, "render", interrupted)
    signals = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    signal.signal(how, signal.default_int_handler)
    try:
        asked = ("probe", "--engine", "vllm", "--model", config_file(tmp_path), "--out", out)
        assert run(*asked) == (0, "", "")
        assert json.loads(out.read_text())["startups"][0]["outcome"] == "ready"
        out.unlink()
        assert run(*asked)[0] == 130
        assert not out.exists()
    finally:
        for number, handler in signals.items():
            signal.signal(number, handler)


def test_a_start_that_hangs_is_ended_in_time(engine, tmp_path):
    """After --timeout seconds, with code 1."""
    asked = ("probe", "--engine", "vllm", "--model", config_file(tmp_path), "--quantization", "hangs", "--timeout", 3)
    code, out, _ = run(*asked, "--keep", tmp_path / "kept")
    assert code == 1
    assert "did not start within 3 s" in " ".join(out.split())
    assert gone(int((tmp_path / "kept" / "run-0" / "worker.pid").read_text()))
