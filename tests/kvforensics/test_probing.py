"""From a request to measured ledgers, on simulated cards of every size."""

import gc
import json
from pathlib import Path

import pytest

from kvforensics import probing
from kvforensics.errors import UsageFault
from kvforensics.probe_flags import Flags
from kvforensics.probe_ledger import Run, startup_of
from kvforensics.probe_model import config_of, model_for_vllm
from kvforensics.probing import Request, probe
from kvforensics.report import probe_json
from kvforensics.report.look import Look
from kvforensics.report.probe_document import probe_document
from live_probe.measurement import Failure, Measurement, NotMeasured, ProbeRecord, Unread
from reconstruct.planner.errors import Unsupported
from tests.kvforensics.measured import MIB, TINY, config_file, environment, probe_here
from tests.live_probe.tiny import tiny

FLAGS = Flags(max_num_batched_tokens=256, max_num_seqs=16, enforce_eager=True)


@pytest.fixture(autouse=True, scope="module")
def quick_collections():
    """The engine collects garbage at every step, which need not walk all of torch."""
    import torch

    torch.ones(2, 2, device="meta").add(1).sort(dim=-1)  # torch imports its meta kernels on first use
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    """The engine runs here, and no card is found whatever the machine has."""
    monkeypatch.setattr(probing, "probe_torch", probe_here)
    monkeypatch.setattr(probing, "cuda_device_count", lambda: 0)


@pytest.fixture
def ask(tmp_path):
    """Probe the tiny model on a card of that size."""
    model = str(config_file(tmp_path))

    def run(device="sim:512MiB", flags=FLAGS, **more):
        return probe(Request(model, flags, device=device, **more))

    return run


def quantities(report, run=0):
    engine = report.startups[run].engines[0]
    return engine.ranks[0].account, engine.capacity


def test_a_start_becomes_a_ledger_that_closes(ask):
    """Every figure exact, of origin measured, and M - (R - C - H - G) = 0."""
    report = ask()
    account, capacity = quantities(report)
    assert not report.died
    assert report.simulated
    assert report.startups[0].engines[0].residual == (0, 0)
    assert {q.origin for q in account.quantities.values()} == {"measured"}
    assert all(q.interval.is_point for q in (*account.quantities.values(), *capacity.quantities.values()))
    assert account.interval("total_memory").low == 512 * MIB
    blocks, size = capacity.interval("num_blocks").low, capacity.interval("bytes_per_block").low
    assert 0 <= capacity.interval("kv_pool_memory").low - blocks * size < size
    assert capacity.interval("max_concurrency").low == blocks / (512 // 16)
    assert capacity.get("gpu_memory_utilization").origin == "default"


@pytest.mark.parametrize(
    ("device", "share", "step"),
    [
        ("sim:1MiB", 0.9, "init_runner"),
        ("sim:512MiB,used=300MiB", 0.9, "request_memory"),
        ("sim:16MiB", 0.9, "load_model"),
        ("sim:2MiB", 0.9, "profile_run"),
        ("sim:24MiB", 0.3, "plan_kv_cache"),
        ("sim:24MiB", 1.0, "initialize_kv_cache"),
    ],
)
def test_a_card_too_small_leaves_the_ledger_so_far(ask, tmp_path, device, share, step):
    """The step and what was free are named, in JSON and in words; what is missing says why."""
    if step == "load_model":
        (tmp_path / "config.json").write_text(json.dumps({**TINY, "intermediate_size": 1 << 14}))
    report = ask(device, FLAGS._replace(gpu_memory_utilization=share), engine_version="0.20.0")
    (failure,) = (record.failure for record in report.records)
    assert failure.step == step
    assert report.startups[0].outcome == "failed"
    written = json.loads(probe_json.render(report))
    assert written["startups"][0]["failures"][0]["step"] == step
    assert step in probe_document(report, Look()).blocks[0].lines[0]
    (engine,) = written["startups"][0]["engines"]
    reasons = [*engine["capacity"]["missing"].values(), *engine["ranks"][0]["missing"].values()]
    assert any(step in reason for reason in reasons)


def test_a_card_without_room_for_a_context_is_a_start_that_died(ask):
    """Before the first snapshot: the reason and the rank are told all the same."""
    report = ask("sim:T4-16GB,used=14.7GiB", share=True)
    (record,) = report.records
    assert (record.rank, record.failure.step, record.failure.kind) == ("rank 0", "init_device", "DeviceMemoryError")
    assert "the driver asked for" in record.failure.message
    assert report.died


def test_one_rank_stands_for_its_group(ask):
    """Of tensor-parallel ranks the first is there, with its share, and is said to be alone."""
    report = ask(flags=FLAGS._replace(tensor_parallel_size=2))
    (rank,) = report.startups[0].engines[0].ranks
    assert (rank.pp, rank.tp) == (0, 0)
    assert report.startups[0].settings.get("tensor_parallel_size") == 2
    assert "one rank of 2" in str(probe_document(report, Look()).facts)
    assert rank.account.interval("model_memory").low < quantities(ask())[0].interval("model_memory").low


def test_one_engine_stands_for_its_like(ask):
    """Data-parallel engines of a dense model share nothing: one is gone through, and said to be one."""
    alone, one_of_two = ask(), ask(flags=FLAGS._replace(data_parallel_size=2))
    assert one_of_two.records[0].measurements == alone.records[0].measurements
    assert any("one of 2" in note for note in one_of_two.notes)
    assert not any("data-parallel" in note for note in alone.notes)


def test_engines_that_share_experts_are_no_likes(tmp_path):
    """Data-parallel engines cut the experts among them (FusedMoE): one of them alone would not do as it does."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(tiny("mixtral")))
    with pytest.raises(Unsupported, match="data-parallel"):
        probe(Request(str(path), FLAGS._replace(data_parallel_size=2), device="sim:512MiB"))
    assert not probe(Request(str(path), FLAGS, device="sim:512MiB")).died


def test_runs_are_kept_apart(ask):
    """Each its own start-up, snapshots and times."""
    report = ask(repeat=3)
    written = json.loads(probe_json.render(report))
    assert [startup["run"] for startup in written["startups"]] == [0, 1, 2]
    assert {snapshot["run"] for snapshot in written["snapshots"]} == {0, 1, 2}
    assert len(written["snapshots"]) == 3 * len(report.records[0].snapshots)
    assert {time["step"] for time in written["timings"]} >= {"load_model", "profile_run", "memory_profiling"}


def test_others_on_the_card_are_refused_unless_shared(ask):
    """With the way out in the message."""
    with pytest.raises(UsageFault, match="--share"):
        ask("sim:8GiB,used=2GiB", FLAGS._replace(gpu_memory_utilization=0.1))
    report = ask("sim:8GiB,used=2GiB", FLAGS._replace(gpu_memory_utilization=0.1), share=True)
    assert not report.died
    (process,) = json.loads(probe_json.render(report))["environment"]["processes"]
    assert process["used"] == 2048 * MIB


def test_without_a_card_one_is_simulated_and_said_to_be(ask):
    """In the notes and in the headline."""
    report = ask(None, card="sim:600MiB")
    assert any("600MiB was simulated" in note for note in report.notes)
    assert "SIMULATED" in probe_document(report, Look()).headline


@pytest.mark.parametrize(
    ("more", "error", "words"),
    [
        ({"device": "sim:Voodoo2"}, UsageFault, "no card"),
        ({"device": "tpu"}, UsageFault, "--device"),
        ({"engine": "sglang"}, UsageFault, "vllm or torch"),
        ({"engine": "vllm", "device": "sim:24GiB"}, UsageFault, "only the torch engine"),
        ({"engine_version": "0.6.0"}, Unsupported, "0.8.0"),
        ({"flags": Flags(pipeline_parallel_size=2)}, Unsupported, "--engine vllm"),
        ({"flags": Flags(tensor_parallel_size=8)}, Unsupported, "8 ranks"),
        ({"flags": Flags(kv_cache_dtype="fp8")}, Unsupported, "fp8"),
        ({"flags": Flags(dtype="int3")}, UsageFault, "--dtype"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(ask, monkeypatch, more, error, words):
    monkeypatch.setattr(probing, "probe_torch", lambda *_: pytest.fail("it ran"))
    with pytest.raises(error, match=words):
        ask(**{"device": "sim:512MiB", **more})


def test_a_missing_torch_is_one_line_that_names_the_extra(ask, monkeypatch):
    monkeypatch.setattr(probing, "find_spec", lambda _name: None)
    with pytest.raises(UsageFault, match=r"kvforensics\[probe\]"):
        ask()


def test_models_are_found_by_folder_and_by_known_name(tmp_path, ask):
    """The folder of a config.json; an id of the shipped sizes; else a line that says what to pass."""
    config_file(tmp_path)
    assert config_of(str(tmp_path))["hidden_size"] == 128
    assert config_of("meta-llama/Llama-3.1-8B-Instruct")["vocab_size"] == 128256
    with pytest.raises(UsageFault, match=r"config\.json"):
        config_of("nobody/nothing-1B")
    with pytest.raises(UsageFault, match="cannot read"):
        config_of(str(tmp_path / "gone.json"))


def test_vllm_is_given_a_folder_that_it_can_start_from(tmp_path):
    """Config and a tokenizer of one token; a folder with more than a config is the model itself; else the id."""
    (tmp_path / "given").mkdir()
    config_file(tmp_path / "given")
    for model in (str(tmp_path / "given"), str(tmp_path / "given" / "config.json")):
        made = Path(model_for_vllm(model, tmp_path / Path(model).suffix[1:]))
        assert sorted(path.name for path in made.iterdir()) == [
            "config.json",
            "tokenizer.json",
            "tokenizer_config.json",
        ]
        assert json.loads((made / "config.json").read_text()) == TINY
    (tmp_path / "given" / "model.safetensors").touch()
    assert model_for_vllm(str(tmp_path / "given"), tmp_path) == str(tmp_path / "given")
    assert model_for_vllm("nobody/nothing-1B", tmp_path) == "nobody/nothing-1B"


def test_an_interrupted_run_gives_what_it_had_and_is_the_last(ask, monkeypatch):
    """Ctrl-C: outcome unfinished, no further run."""

    def interrupt(start, engine, run=0):
        probe_here(start, engine, run)
        journal = engine.folder / "rank-0.jsonl"
        lines = journal.read_text().splitlines()
        cut = next(i for i, line in enumerate(lines) if '"profile_run", "when": "before"' in line)
        journal.write_text("\n".join(lines[: cut + 1]) + "\n")
        raise KeyboardInterrupt

    monkeypatch.setattr(probing, "probe_torch", interrupt)
    report = ask(repeat=3)
    assert (report.interrupted, len(report.records)) == (True, 1)
    assert report.startups[0].outcome == "unfinished"
    assert (report.records[0].failure.step, report.records[0].failure.kind) == ("profile_run", "interrupted")
    assert quantities(report)[0].get("model_memory")


def test_temporary_folders_go_and_named_ones_stay(ask, tmp_path, monkeypatch):
    monkeypatch.setattr(probing.tempfile, "tempdir", str(tmp_path / "t"))
    (tmp_path / "t").mkdir()
    ask()
    assert not list((tmp_path / "t").iterdir())
    report = ask(keep=tmp_path / "kept")
    assert (tmp_path / "kept" / "run-0" / "rank-0.jsonl").is_file()
    assert not report.died
    with pytest.raises(UsageFault, match="not empty"):
        ask(keep=tmp_path / "kept")


def ranks_of(tp, pp, blocks, dp=1):
    """Records of every rank, each with its own blocks for a pool."""
    found = []
    for d in range(dp):
        for place in range(tp * pp):
            name = f"dp {d} rank {d * tp * pp + place}" if dp > 1 else f"rank {place}"
            pool = blocks[place] * 100 + 7
            figures = (
                Measurement("kv_pool_memory", pool), Measurement("bytes_per_block", 100),
                Measurement("num_blocks", min(blocks), "blocks"),
            )  # fmt: skip
            missing = (NotMeasured("model_memory", "not kept"),)
            found.append(ProbeRecord(name, 0, environment(), figures, missing, (), Unread("no NVML")))
    return tuple(found)


def test_every_rank_of_every_engine_has_its_place():
    """pp outer, tp inner, engines apart; the rank with the fewest blocks binds."""
    flags = Flags(tensor_parallel_size=2, pipeline_parallel_size=2, data_parallel_size=2)
    startup = startup_of(ranks_of(2, 2, (9, 8, 5, 6), dp=2), Run("vllm", "0.33.0", flags, {}, "m"))
    assert [engine.dp for engine in startup.engines] == [0, 1]
    for engine in startup.engines:
        assert [(rank.pp, rank.tp) for rank in engine.ranks] == [(0, 0), (0, 1), (1, 0), (1, 1)]
        assert engine.binding_rank == engine.ranks[2].name
        assert engine.capacity.interval("kv_cache_bytes").low == 500
        assert engine.capacity.interval("unused_kv_memory").low == 7
        assert engine.ranks[0].account.missing["model_memory"].reason == "not kept"


def test_a_report_tells_nothing_of_people(ask):
    """Home folders and hosts in a failure's words are masked; of processes only numbers are told."""
    (record,) = ranks_of(1, 1, (5,))
    words = "OSError: /home/alice/models is gone on node host=gpu07.corp"
    record = record._replace(failure=Failure("load_model", "OSError", words, 0, 0))
    run = Run("vllm", "0.33.0", Flags(), {}, "/home/alice/models/x")
    report = probing.ProbeReport("/home/alice/models/x", "vllm", (startup_of((record,), run),), (record,), ())
    text = probe_json.render(report) + str(probe_document(report, Look()))
    assert "alice" not in text
    assert "gpu07" not in text
