"""Starting the engine in a process of its own: with a stand-in for vLLM always, with the real one by `-m vllm`."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

import pytest

from kvforensics.probe_model import model_for_vllm
from live_probe import child_process
from live_probe.journal import Journal
from live_probe.measurement import Environment, Failure, Snapshot
from live_probe.vllm_engine import EngineRun, probe_engine

ROOT = Path(__file__).resolve().parents[2]
PYTHONS = tuple(path for path in os.environ.get("KVFORENSICS_VLLM_PYTHONS", "").split(os.pathsep) if path)
STAND_IN = """
import asyncio, os, signal, subprocess, sys, tempfile, time
from pathlib import Path
from types import SimpleNamespace
from live_probe.journal import Journal
from live_probe.measurement import Environment, Measurement, Snapshot

class LLM:
    def __init__(self, worker_cls, ending):
        assert worker_cls == "live_probe.vllm_worker.ProbeWorker"
        folder = Path(os.environ["KVFORENSICS_PROBE_DIR"])
        if ending == "moves":
            os.chdir("/")
        print("engine says hello", flush=True)
        (folder / "temporary").write_text(tempfile.mkdtemp())
        if ending == "unborn":
            raise SystemExit(3)
        for rank in range(2):
            journal = Journal(folder / f"rank-{rank}.jsonl")
            journal.write(Environment("card", False, "vllm", "0.33.0", "2.13", "550"))
            journal.write(Snapshot("load_model", "before", f"rank {rank}", 5, 10, 1, 2, 3, 0.1))
            if ending == "killed" and rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            journal.write(Snapshot("load_model", "after", f"rank {rank}", 4, 10, 1, 2, 3, 0.2))
            journal.write(Measurement("model_memory", 7 + rank))
        if ending == "hangs":
            worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
            (folder / "worker.pid").write_text(str(worker.pid))
            time.sleep(60)
        if ending == "fails":
            raise SystemExit(1)

class AsyncEngineArgs:
    def __init__(self, worker_cls, data_parallel_size):
        self.engines = data_parallel_size

class AsyncLLM:
    @classmethod
    def from_engine_args(cls, asked):
        from live_probe.vllm_worker import rank_name
        asyncio.get_running_loop()
        for index in range(asked.engines):
            alone = SimpleNamespace(data_parallel_size=1, data_parallel_rank=0, data_parallel_index=index)
            name = rank_name(SimpleNamespace(rank=0, parallel_config=alone))
            journal = Journal(Path(os.environ["KVFORENSICS_PROBE_DIR"]) / f"{name.replace(' ', '-')}.jsonl")
            journal.write(Environment("card", False, "vllm", "0.33.0", "2.13", "550"))
            journal.write(Snapshot("load_model", "after", name, 4, 10, 1, 2, 3, 0.2))
        return cls()

    def shutdown(self):
        print("engines were told to end", flush=True)

sys.modules["vllm.v1.engine.async_llm"] = SimpleNamespace(AsyncLLM=AsyncLLM)
"""


@pytest.fixture
def engine(tmp_path, monkeypatch):
    """An interpreter that finds the stand-in under the name vllm."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "vllm.py").write_text(STAND_IN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    return EngineRun(tmp_path / "probe", timeout_s=30)


def alive(pid):
    """Whether a process is there and not only waiting to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_every_rank_gives_a_record(engine):
    """In the order of their names; the engine's own words are kept beside them."""
    records = probe_engine({"ending": "well"}, engine, run=1)
    assert [(record.rank, record.run, record.outcome) for record in records] == [
        ("rank 0", 1, "ready"),
        ("rank 1", 1, "ready"),
    ]
    assert [record.value("model_memory") for record in records] == [7, 8]
    assert "hello" in (engine.folder / "engine.log").read_text()
    assert not Path((engine.folder / "temporary").read_text()).exists()  # sockets and caches of the engine's go with it


def test_data_parallel_engines_are_started_as_the_server_does(engine):
    """LLM refuses several; each engine of a dense model believes that it is alone, and its rank 0 is not another's."""
    records = probe_engine({"data_parallel_size": 2}, engine)
    assert [(record.rank, record.outcome) for record in records] == [("dp 0 rank 0", "ready"), ("dp 1 rank 0", "ready")]
    assert "told to end" in (engine.folder / "engine.log").read_text()


def test_what_is_asked_may_be_longer_than_a_command_line(engine):
    """A config.json can be."""
    assert probe_engine({"ending": "x" * (1 << 18)}, engine)[0].outcome == "ready"


def test_a_folder_named_from_here_is_the_same_everywhere(engine, monkeypatch):
    """A worker may run in another working folder, and a full disk loses no more than the note."""
    monkeypatch.chdir(engine.folder.parent)
    (engine.folder / child_process.ENDING_NAME).mkdir(parents=True)
    records = probe_engine({"ending": "moves"}, engine._replace(folder=Path(engine.folder.name)))
    assert [record.outcome for record in records] == ["ready", "ready"]


def test_the_engines_sockets_have_room(engine, monkeypatch):
    """However deep the user's temporary files lie; where there is room they stay there."""
    for depth, stays in ((0, True), (99, False)):
        usual = Path(tempfile.mkdtemp(dir="/tmp")) / ("d" * depth)
        usual.mkdir(exist_ok=True)
        monkeypatch.setattr(tempfile, "tempdir", str(usual))
        probe_engine({"ending": "well"}, engine)
        used = Path((engine.folder / "temporary").read_text()).parent
        assert used.is_relative_to(usual) is stays
        assert len(f"{used}/{uuid.uuid4()}") <= 107
        shutil.rmtree(usual.parent if depth else usual)


def test_the_ending_is_noted_beside_the_journals(engine):
    """It is there for whoever reads the folder later; half a note is none."""
    assert child_process.ending_of(engine.folder) == child_process.UNSEEN
    probe_engine({"ending": "well"}, engine)
    assert child_process.ending_of(engine.folder) == ""
    (engine.folder / child_process.ENDING_NAME).write_text("")
    assert child_process.ending_of(engine.folder) == child_process.UNSEEN
    probe_engine({"ending": "fails"}, engine)
    assert child_process.ending_of(engine.folder) == "the engine ended with exit code 1"


def test_a_killed_engine_leaves_what_its_ranks_had(engine):
    """The rank that was in a step names it, the other the engine's end."""
    first, second = probe_engine({"ending": "killed"}, engine)
    assert (first.failure.kind, first.value("model_memory")) == ("EngineDied", 7)
    assert (second.failure.kind, second.failure.step) == ("killed", "load_model")
    assert second.failure.message.endswith("killed by signal 9")


def test_an_engine_that_fails_later_is_no_success(engine):
    """All ranks went well, the engine did not."""
    records = probe_engine({"ending": "fails"}, engine)
    assert [record.failure.message for record in records] == ["the engine ended with exit code 1"] * 2


def test_an_engine_without_workers_is_one_failed_record(engine):
    """With the log to look into."""
    (record,) = probe_engine({"ending": "unborn"}, engine)
    assert "exit code 3" in record.failure.message
    assert "engine.log" in record.failure.message


def test_ranks_come_in_the_order_of_their_numbers(tmp_path):
    """Ten and more as well, and engine by engine."""
    names = [f"dp {dp} rank {rank}" for dp in (0, 1, 10) for rank in (0, 1, 2, 10)]
    for name in reversed(names):
        journal = Journal(tmp_path / f"{name.replace(' ', '-')}-4711.jsonl")
        journal.write(Environment("card", False, "vllm", "0.33.0", "2.13", "550"))
    assert [record.rank for record in child_process.records_of(tmp_path, "vllm", 0, "")] == names


@pytest.mark.parametrize("how", ["timeout", "Ctrl-C"])
def test_no_process_is_left_behind(engine, monkeypatch, how):
    """Neither the engine nor what it started."""
    engine = engine._replace(timeout_s=3)
    if how == "Ctrl-C":

        def interrupt(_child, timeout=None):
            monkeypatch.undo()
            time.sleep(2)
            raise KeyboardInterrupt

        monkeypatch.setattr(subprocess.Popen, "wait", interrupt)
        with pytest.raises(KeyboardInterrupt):
            probe_engine({"ending": "hangs"}, engine)
    else:
        records = probe_engine({"ending": "hangs"}, engine)
        assert {record.failure.message for record in records} == {"the engine did not start within 3 s"}
    pid = int((engine.folder / "worker.pid").read_text())
    deadline = time.monotonic() + 5
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(pid)


@pytest.mark.parametrize("kind", ["killed", "SystemExit", "KeyboardInterrupt"])
def test_an_end_from_outside_is_told_by_who_asked_for_it(tmp_path, kind):
    """vLLM's workers turn SIGTERM into SystemExit: the reason is the timeout, or the user."""
    journal = Journal(tmp_path / "rank-0.jsonl")
    journal.write(Environment("card", False, "vllm", "0.33.0", "2.13", "550"))
    journal.write(Snapshot("load_model", "before", "rank 0", 5, 10, 1, 2, 3, 0.1))
    journal.write(Failure("load_model", kind, "", 5, 10))
    (record,) = child_process.records_of(tmp_path, "vllm", 0, "the engine did not start within 3 s")
    assert record.failure.message == "the engine did not start within 3 s"
    stopped = child_process.interrupted(record).failure
    assert (stopped.step, stopped.kind, stopped.message) == ("load_model", "interrupted", "interrupted by the user")


def test_an_error_of_the_engines_own_stands(tmp_path):
    """Whatever the end that followed."""
    journal = Journal(tmp_path / "rank-0.jsonl")
    journal.write(Environment("card", False, "vllm", "0.33.0", "2.13", "550"))
    journal.write(Failure("load_model", "ValueError", "no", 5, 10))
    (record,) = child_process.records_of(tmp_path, "vllm", 0, "interrupted by the user")
    assert child_process.interrupted(record).failure == Failure("load_model", "ValueError", "no", 5, 10)


def test_whoever_interrupts_twice_waits_no_longer(tmp_path, monkeypatch):
    """A child that will not end is killed outright as soon as its end is interrupted."""
    script = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('here', flush=True); signal.pause()"
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, start_new_session=True)
    assert child.stdout.readline() == b"here\n"
    plain = child.wait

    def interrupted(timeout=None):
        if timeout is not None:
            raise KeyboardInterrupt
        return plain()

    monkeypatch.setattr(child, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        child_process._end_group(child)
    assert child.returncode == -signal.SIGKILL
    child.stdout.close()


CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 1024,
    "max_position_embeddings": 512,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}
NEEDS_VLLM = pytest.mark.skipif(not PYTHONS, reason="KVFORENSICS_VLLM_PYTHONS names no interpreter that has vLLM")


@pytest.fixture
def arguments(tmp_path, monkeypatch):
    """LLM arguments for a tiny model with dummy weights, on whatever platform that vLLM is for."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    for name, value in (
        ("VLLM_CPU_KVCACHE_SPACE", "1"),
        ("HF_HUB_OFFLINE", "1"),
        ("VLLM_NO_USAGE_STATS", "1"),
    ):
        monkeypatch.setenv(name, value)
    return {
        "model": model_for_vllm(str(tmp_path / "config.json"), tmp_path),
        "load_format": "dummy",
        "skip_tokenizer_init": True,
        "enforce_eager": True,
        "dtype": "bfloat16",
        "max_model_len": 256,
        "max_num_seqs": 4,
        "max_num_batched_tokens": 256,
        "gpu_memory_utilization": 0.1,
    }


@NEEDS_VLLM
@pytest.mark.vllm
@pytest.mark.parametrize("python", PYTHONS)
def test_the_real_engine_leaves_its_ledger(arguments, tmp_path, python):
    """Through front end, engine core and worker; the pool by three ways is the same."""
    (record,) = probe_engine(arguments, EngineRun(tmp_path / "probe", python, timeout_s=400))
    assert record.failure is None, (tmp_path / "probe" / "engine.log").read_text()[-3000:]
    steps = {snapshot.step for snapshot in record.snapshots}
    assert steps >= {"init_device", "load_model", "determine_available_memory", "initialize_from_config"}
    page = 2 * record.value("block_size") * CONFIG["num_key_value_heads"] * CONFIG["head_dim"] * 2
    assert record.value("bytes_per_block") == CONFIG["num_hidden_layers"] * page
    assert record.value("kv_cache_bytes") == record.value("num_blocks") * record.value("bytes_per_block")
    spare = record.value("kv_pool_memory") - record.value("kv_cache_bytes")
    assert 0 <= spare < record.value("bytes_per_block")


@NEEDS_VLLM
@pytest.mark.vllm
@pytest.mark.parametrize("python", PYTHONS)
def test_the_real_engine_that_refuses_to_start_leaves_its_ledger_too(arguments, tmp_path, python):
    """The pool cannot hold one request: the engine says so after the workers have measured."""
    longest = 1 << 19
    deep = {**CONFIG, "num_hidden_layers": 8, "num_key_value_heads": 4, "max_position_embeddings": longest}
    (tmp_path / "model" / "config.json").write_text(json.dumps(deep))
    (record,) = probe_engine(
        {**arguments, "max_model_len": longest}, EngineRun(tmp_path / "probe", python, timeout_s=400)
    )
    assert record.failure is not None
    assert record.value("kv_pool_memory") > 0
    assert "determine_available_memory" in {snapshot.step for snapshot in record.snapshots}


@NEEDS_VLLM
@pytest.mark.vllm
@pytest.mark.parametrize("how", ["tensor", "pipeline", "data"])
@pytest.mark.parametrize("python", PYTHONS)
def test_every_rank_of_the_real_engine_leaves_its_ledger(arguments, tmp_path, monkeypatch, python, how):
    """Two ranks or two engines; older CPU engines find no room for two workers on two cores."""
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    ranks = {**arguments, f"{how}_parallel_size": 2}
    records = probe_engine(ranks, EngineRun(tmp_path / "probe", python, timeout_s=400))
    log = (tmp_path / "probe" / "engine.log").read_text()
    if not any(snapshot.step == "load_model" for record in records for snapshot in record.snapshots):
        pytest.skip(f"no worker was placed: {records[0].failure}")
    assert [record.failure for record in records] == [None, None], log[-3000:]
    names = ["dp 0 rank 0", "dp 1 rank 0"] if how == "data" else ["rank 0", "rank 1"]
    assert [record.rank for record in records] == names
    assert records[0].value("kv_cache_bytes") > 0


@NEEDS_VLLM
@pytest.mark.vllm
@pytest.mark.parametrize("python", PYTHONS)
def test_the_extension_reads_a_running_engine(arguments, tmp_path, python):
    """collective_rpc by name, plain values back."""
    script = (
        "import json, sys\n"
        "from vllm import LLM\n"
        "if __name__ == '__main__':\n"
        "    llm = LLM(worker_extension_cls='live_probe.vllm_extension.ProbeExtension', **json.loads(sys.argv[1]))\n"
        "    print('ANSWER', json.dumps(llm.collective_rpc('kvf_read')))\n"
    )
    (tmp_path / "read.py").write_text(script)
    ended = subprocess.run(
        [python, str(tmp_path / "read.py"), json.dumps(arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    answers = [line.partition("ANSWER ")[2] for line in ended.stdout.splitlines() if "ANSWER " in line]
    assert answers, ended.stderr[-3000:]
    (answer,) = json.loads(answers[0])
    assert answer["rank"] == "rank 0"
    values = {measurement["name"]: measurement["value"] for measurement in answer["measurements"]}
    assert values["kv_cache_bytes"] == values["num_blocks"] * values["bytes_per_block"] > 0
    assert answer["memory"]["total"] > answer["memory"]["free"] > 0
