"""Reading workers of every release by stubs with that release's attributes, and the journalling worker itself."""

import sys
import types

import pytest

from live_probe import vllm_extension, vllm_worker
from live_probe.child_process import ENGINES
from live_probe.device import AllocatorStats, MemoryInfo
from live_probe.host import HostMemory
from live_probe.journal import Journal, read_journal
from live_probe.measurement import Environment, Failure
from live_probe.step_recorder import StepRecorder
from live_probe.vllm_worker import ProbeSetupError, Recorded, rank_name, reader_of
from live_probe.worker_reading import read_worker

NS = types.SimpleNamespace
W, P, H, N, C, G, T, F, R, M = 100, 50, 40, 7, 107, 9, 1000, 900, 800, 600
POOL = NS(num_blocks=10, kv_cache_tensors=[NS(size=30), NS(size=30)])
OLD_POOL = NS(num_blocks=10, tensors={"a": NS(size=30), "b": NS(size=30)})


def worker(pool=POOL, **fields):
    """A worker with the configs that all releases keep."""
    runner = NS(model_memory_usage=W, kv_cache_config=pool) if pool else NS(model_memory_usage=W)
    return NS(model_runner=runner, cache_config=NS(block_size=16), model_config=NS(max_model_len=512), rank=0, **fields)


def profiled(**fields):
    """A worker from 0.9.1 on, which keeps its first snapshot."""
    return worker(init_snapshot=NS(total_memory=T, free_memory=F), requested_memory=R, **fields)


STUBS = {
    "0.8.5": worker(pool=None, init_gpu_memory=F),
    "0.9.0": worker(pool=OLD_POOL, init_gpu_memory=F),
    "0.9.1": worker(init_snapshot=NS(total_memory=T, free_memory=F), requested_memory=R + 0.7),
    "0.10.2": profiled(non_torch_memory=N, peak_activation_memory=P, available_kv_cache_memory_bytes=M + 0.25),
    "0.18.1": profiled(
        non_torch_memory=N,
        peak_activation_memory=P + G,
        cudagraph_memory_estimate=G,
        available_kv_cache_memory_bytes=M,
    ),
    "0.20.2": profiled(
        non_torch_memory=N, peak_activation_memory=P, cudagraph_memory_estimate=G, available_kv_cache_memory_bytes=M
    ),
    "0.27.1": profiled(
        total_consumed=C, peak_activation_memory=H + G, cudagraph_memory_estimate=G, available_kv_cache_memory_bytes=M
    ),
    "0.33.0": profiled(
        total_consumed=C, peak_activation_memory=H + G, cudagraph_memory_estimate=G, available_kv_cache_memory_bytes=M
    ),
}
BASE = {"initial_free_memory": F, "model_memory": W, "block_size": 16, "max_model_len": 512}
SINCE_0_9_1 = {**BASE, "total_memory": T, "requested_memory": R}
BLOCKS = {"num_blocks": 10, "kv_cache_bytes": 60, "bytes_per_block": 6}
INCREASES = {"torch_peak_increase": P, "transient_peak_headroom": P, "non_torch_increase": N, "total_consumed": W + N}
EXPECTED = {
    "0.8.5": BASE,
    "0.9.0": {**BASE, **BLOCKS},
    "0.9.1": {**SINCE_0_9_1, **BLOCKS},
    "0.10.2": {
        **SINCE_0_9_1,
        **BLOCKS,
        **INCREASES,
        "available_kv_cache_memory": M,
        "cudagraph_memory_applied": 0,
    },
    "0.18.1": {
        **SINCE_0_9_1,
        **BLOCKS,
        **INCREASES,
        "cudagraph_memory_estimate": G,
        "cudagraph_memory_applied": G,
        "available_kv_cache_memory": M,
    },
}
EXPECTED["0.20.2"] = EXPECTED["0.18.1"]
EXPECTED["0.27.1"] = {
    **SINCE_0_9_1,
    **BLOCKS,
    "total_consumed": C,
    "transient_peak_headroom": H,
    "cudagraph_memory_estimate": G,
    "cudagraph_memory_applied": G,
    "available_kv_cache_memory": M,
}
EXPECTED["0.33.0"] = EXPECTED["0.27.1"]


@pytest.mark.parametrize("version", STUBS)
def test_each_releases_attributes_become_the_same_quantities(version):
    """Names and meanings are the contract's, whatever the release calls them."""
    reading = read_worker(STUBS[version], version, graphs_charged=True)
    assert {m.name: m.value for m in reading.measurements} == EXPECTED[version]
    assert all(absent.reason for absent in reading.missing)
    assert not {m.name for m in reading.measurements} & {absent.name for absent in reading.missing}


def test_an_estimate_that_is_not_charged_is_not_taken_off_the_peak():
    """VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0: the peak holds no graphs then."""
    stub = profiled(total_consumed=C, peak_activation_memory=H, cudagraph_memory_estimate=G)
    values = {m.name: m.value for m in read_worker(stub, "0.33.0", graphs_charged=False).measurements}
    assert (values["transient_peak_headroom"], values["cudagraph_memory_applied"]) == (H, 0)


def test_a_given_pool_leaves_reasons_not_numbers():
    """kv_cache_memory_bytes: the worker never profiled."""
    reading = read_worker(profiled(), "0.33.0", graphs_charged=True)
    missing = {absent.name: absent.reason for absent in reading.missing}
    assert "kv_cache_memory_bytes" in missing["total_consumed"]
    assert "kv_cache_memory_bytes" in missing["available_kv_cache_memory"]
    assert "cudagraph_memory_applied" not in {m.name for m in reading.measurements}


def test_a_cpu_worker_keeps_hardly_anything():
    """Its budget and its pool; model_memory_usage is None there."""
    stub = NS(requested_cpu_memory=R, model_runner=NS(model_memory_usage=None, kv_cache_config=POOL), rank=0)
    reading = read_worker(stub, "0.32.0", graphs_charged=True)
    assert {m.name: m.value for m in reading.measurements} == {"requested_memory": R, **BLOCKS}
    assert "model_memory" in {absent.name for absent in reading.missing}


def test_a_worker_that_has_done_nothing_yet_can_be_read():
    """A start that died early."""
    reading = read_worker(NS(), "0.33.0", graphs_charged=True)
    assert reading.measurements == ()
    assert reading.missing


class CpuWorker:
    """The engine's own worker, reduced to what its start-up touches."""

    def __init__(self, vllm_config, rank=0):
        self.vllm_config = vllm_config
        self.rank = rank
        self.device_config = NS(device_type="cpu")
        self.calls = []

    def init_device(self):
        self.device = NS(type="cpu")
        self.requested_cpu_memory = R
        self.model_runner = NS(
            profile_run=lambda: self.calls.append("profile_run"),
            capture_model=lambda: 77,
            model_memory_usage=None,
        )

    def load_model(self, *, load_dummy_weights=False):
        self.calls.append(("load_model", load_dummy_weights))

    def determine_available_memory(self):
        self.model_runner.profile_run()
        return 640

    def initialize_from_config(self, kv_cache_config):
        self.model_runner.kv_cache_config = kv_cache_config

    def compile_or_warm_up_model(self):
        return self.model_runner.capture_model()


@pytest.fixture
def vllm(monkeypatch, tmp_path):
    """A vllm to import, and the folder that the environment names."""
    module = types.ModuleType("vllm")
    module.__version__ = "0.33.0"
    module.envs = NS(VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=True)
    monkeypatch.setitem(sys.modules, "vllm", module)
    monkeypatch.setenv(vllm_worker.PROBE_DIR, str(tmp_path / "probe"))
    return module


@pytest.fixture
def made(vllm):
    """A recorded worker, built as vLLM builds it."""
    built = type("ProbeWorker", (Recorded, CpuWorker), {})
    return built("config", rank=3)


def path_of(tmp_path):
    (path,) = (tmp_path / "probe").glob("rank-3-*.jsonl")
    return path


def journal(tmp_path):
    return read_journal(path_of(tmp_path))


def test_a_recorded_worker_does_its_work_and_leaves_its_ledger(made, tmp_path):
    """Results pass through, steps are framed, runner steps nested, figures noted."""
    made.init_device()
    made.load_model(load_dummy_weights=True)
    assert made.determine_available_memory() == 640
    made.initialize_from_config(POOL)
    assert made.compile_or_warm_up_model() == 77
    assert made.calls == [("load_model", True), "profile_run"]
    record = journal(tmp_path)
    assert (record.rank, record.outcome) == ("rank 3", "ready")
    assert (record.environment.engine, record.environment.version) == ("vllm", "0.33.0")
    assert [s.step for s in record.snapshots if s.when == "before"] == [
        "init_device",
        "load_model",
        "determine_available_memory",
        "profile_run",
        "initialize_from_config",
        "compile_or_warm_up_model",
        "capture_model",
    ]
    values = {m.name: m.value for m in record.measurements}
    assert values == {"requested_memory": R, "kv_pool_memory": 640, "cudagraph_memory_actual": 77, **BLOCKS}
    assert "num_blocks" not in {absent.name for absent in record.missing}
    assert all(s.total > s.free > 0 and s.peak >= s.allocated > 0 for s in record.snapshots)


def test_a_step_that_fails_is_named_once_and_raised(made, tmp_path):
    """The innermost step, with what was free; the engine sees its own error."""
    made.init_device()

    def refuse():
        raise MemoryError("no room\nat all")

    made.model_runner.profile_run = StepRecorder(Journal(path_of(tmp_path)), "rank 3", HostMemory).framed(
        "profile_run", refuse
    )
    with pytest.raises(MemoryError):
        made.determine_available_memory()
    failure = journal(tmp_path).failure
    assert (failure.step, failure.kind, failure.message) == ("profile_run", "MemoryError", "no room")
    assert failure.total > failure.free > 0


def test_a_card_that_answers_no_more_still_leaves_its_failure(tmp_path):
    """After a kernel's fault the snapshot behind the step fails too; the first message is what the journal holds."""
    reader = HostMemory()

    def fail():
        reader.memory = fail
        raise RuntimeError("CUDA error: an illegal memory access")

    path = tmp_path / "rank-3.jsonl"
    written = Journal(path)
    written.write(Environment("card", False, "vllm", "0.33.0", "2.13", "550"))
    with pytest.raises(RuntimeError, match="illegal"):
        StepRecorder(written, "rank 3", lambda: reader).framed("capture_model", fail)()
    failure = read_journal(path).failure
    assert failure == Failure("capture_model", "RuntimeError", "CUDA error: an illegal memory access", 0, 0)


def test_without_a_folder_the_worker_says_what_to_set(vllm, monkeypatch):
    """Better no start than a start that records nothing."""
    monkeypatch.delenv(vllm_worker.PROBE_DIR)
    with pytest.raises(ProbeSetupError, match="KVFORENSICS_PROBE_DIR"):
        type("ProbeWorker", (Recorded, CpuWorker), {})("config")


@pytest.mark.parametrize(
    ("platform", "module", "name"),
    [("cpu", "cpu_worker", "CPUWorker"), ("xpu", "xpu_worker", "XPUWorker"), ("cuda", "gpu_worker", "Worker")],
)
def test_probe_worker_is_the_platforms_own_worker(vllm, monkeypatch, platform, module, name):
    """Resolved by vLLM through the module's attribute, on first use only."""
    current = NS(is_cpu=lambda: platform == "cpu", is_xpu=lambda: platform == "xpu")
    monkeypatch.setitem(sys.modules, "vllm.platforms", NS(current_platform=current))
    monkeypatch.setitem(sys.modules, f"vllm.v1.worker.{module}", NS(**{name: CpuWorker}))
    built = vllm_worker.ProbeWorker
    monkeypatch.delattr(vllm_worker, "ProbeWorker")
    assert issubclass(built, CpuWorker)
    assert built.__mro__[1] is Recorded
    with pytest.raises(AttributeError, match="Other"):
        _ = vllm_worker.Other


def test_a_card_is_not_touched_before_the_worker_chose_it():
    """A reading would open a context, perhaps on the wrong card."""
    assert reader_of(NS(device_config=NS(device_type="cuda"))) is None
    assert isinstance(reader_of(NS(device_config=NS(device_type="cpu"))), HostMemory)
    assert isinstance(reader_of(NS(device_config=NS(device=NS(type="cpu")))), HostMemory)
    assert isinstance(reader_of(NS(device=NS(type="cpu"))), HostMemory)


def test_ranks_are_named_with_their_engine_where_there_are_several(monkeypatch):
    """Data-parallel engines count their ranks from 0 each; those of a dense model are told nothing of each other."""
    alone = NS(rank=2, parallel_config=NS(data_parallel_size=1, data_parallel_rank=0, data_parallel_index=3))
    assert rank_name(NS(rank=2)) == rank_name(alone) == "rank 2"
    assert rank_name(NS(rank=2, parallel_config=NS(data_parallel_size=4, data_parallel_rank=1))) == "dp 1 rank 2"
    monkeypatch.setenv(ENGINES, "4")
    assert rank_name(alone) == "dp 3 rank 2"


def test_the_extension_answers_with_plain_values_and_clashes_with_nothing(vllm):
    """vLLM appends it to the worker's bases and asserts that no name is taken."""
    names = [name for name in dir(vllm_extension.ProbeExtension) if not name.startswith("__")]
    assert names == ["kvf_read"]
    assert "__init__" not in vars(vllm_extension.ProbeExtension)
    mixed = type("Worker", (CpuWorker, vllm_extension.ProbeExtension), {})("config", rank=1)
    mixed.init_device()
    answer = mixed.kvf_read()
    assert answer["rank"] == "rank 1"
    assert {key: answer["measurements"][0][key] for key in ("name", "value")} == {
        "name": "requested_memory",
        "value": R,
    }
    assert answer["memory"]["total"] > answer["memory"]["free"] > 0
    assert all(type(value) in (str, int, tuple) for entry in answer["measurements"] for value in entry.values())


def test_host_memory_reads_the_system_and_this_process(tmp_path):
    """MemAvailable, MemTotal, VmRSS, VmHWM, in bytes."""
    (tmp_path / "self").mkdir()
    (tmp_path / "meminfo").write_text("MemTotal: 100 kB\nMemAvailable: 60 kB\nHugePages_Total: 0\n")
    (tmp_path / "self" / "status").write_text("Name:\tpython\nVmHWM:\t9 kB\nVmRSS:\t8 kB\n")
    host = HostMemory(tmp_path)
    assert host.memory() == MemoryInfo(60 * 1024, 100 * 1024)
    assert host.stats() == AllocatorStats(8192, 8192, 9216, 9216)
