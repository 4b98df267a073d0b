"""Torch's text in each of its forms, and the step that an error fell into."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kvforensics.explanation import explain
from parsers.matching import statements
from parsers.record import Record
from parsers.rules.out_of_memory import other_processes
from reconstruct.interval import Interval
from tests.kvforensics.findings.starts import card, oom, start, truth
from tests.render.lines import render
from tests.render.parts import Failure

if TYPE_CHECKING:
    from kvforensics.findings import Finding

HEAD = "CUDA out of memory. Tried to allocate 896.00 MiB. GPU 2 has a total capacity of 95.00 GiB of which 510.31 MiB is free. "
OWN = "Including non-PyTorch memory, this process has 94.49 GiB memory in use. "
OTHERS = "Process 2892987 has 588.00 MiB memory in use. Process 2893782 has 78.02 GiB memory in use. "
SPLIT = "Of the allocated memory 91.24 GiB is allocated by PyTorch, {}and 1.17 GiB is reserved by PyTorch but unallocated. If so"
PRIVATE = "with 3.44 GiB allocated in private pools (e.g., CUDA Graphs), "


def fields(text: str) -> dict[str, str]:
    """The holes of the one statement that a text makes."""
    found, _ = statements([Record(1, f"torch.OutOfMemoryError: {text}", prefixed=True)])
    assert [s.kind for s in found] == ["out_of_memory"]
    return {p.name: p.text for p in found[0].fields}


@pytest.mark.parametrize("others", ["", OTHERS], ids=["alone", "with others"])
@pytest.mark.parametrize("own", ["", OWN], ids=["own unsaid", "own said"])
@pytest.mark.parametrize("private", ["", PRIVATE], ids=["no pools", "private pools"])
def test_every_clause_becomes_a_field(others: str, own: str, private: str) -> None:
    got = fields(HEAD + others + own + SPLIT.format(private))
    assert (got["oom_tried"], got["oom_free"], got["total_memory"]) == ("896.00 MiB", "510.31 MiB", "95.00 GiB")
    assert (got["oom_allocated"], got["oom_unallocated"]) == ("91.24 GiB", "1.17 GiB")
    assert got.get("oom_in_use") == ("94.49 GiB" if own else None)
    assert got.get("oom_private") == ("3.44 GiB" if private else None)


@pytest.mark.parametrize("own", ["", OWN])
def test_other_processes_are_read_one_by_one(own: str) -> None:
    found, _ = statements([Record(1, HEAD + OTHERS + own + SPLIT.format(""))])
    assert [(pid, used.text) for pid, used in other_processes(found[0])] == [
        (2892987, "588.00 MiB"),
        (2893782, "78.02 GiB"),
    ]


@pytest.mark.parametrize("word", ["capacity", "capacty"])
@pytest.mark.parametrize("device", ["GPU 0 ", "GPU  "])
def test_misprints_of_torch_are_read(word: str, device: str) -> None:
    """Torch 2.1 misspells capacity, torch 2.3 forgets the device's number."""
    text = f"CUDA out of memory. Tried to allocate 1.50 GiB. {device}has a total {word} of 79.18 GiB "
    got = fields(text + "of which 1.02 GiB is free. ")
    assert got["oom_tried"] == "1.50 GiB"


def test_the_bracket_of_old_torch_is_read() -> None:
    got = fields(
        "CUDA out of memory. Tried to allocate 1.50 GiB (GPU 0; 79.15 GiB total capacity; 70.00 GiB already allocated; "
        "1.02 GiB free; 71.00 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory"
    )
    assert (got["oom_allocated"], got["oom_free"], got["oom_reserved"]) == ("70.00 GiB", "1.02 GiB", "71.00 GiB")


def found(log: str, identifier: str) -> Finding:
    """The one finding of this id."""
    hits = [f for v in explain(log.encode()).verdicts for f in v.findings if f.id == identifier]
    assert len(hits) == 1
    return hits[0]


@pytest.mark.parametrize("version", ["0.6.3", "0.8.5", "0.11.0", "0.19.1", "0.33.0"])
@pytest.mark.parametrize(
    ("failure", "step"),
    [(Failure.OOM_LOADING, "load"), (Failure.OOM_PROFILING, "profile"), (Failure.OOM_KV_CACHE, "kv-allocation")],
)
def test_the_lines_before_the_error_tell_the_step(version: str, failure: Failure, step: str) -> None:
    engine = "V0" if version == "0.6.3" else "V1"
    log = oom(failure, version, engine=engine)
    assert {f.id for v in explain(log.encode()).verdicts for f in v.findings if f.id.startswith("oom-")} == {
        f"oom-at-{step}"
    }


def test_private_pools_before_a_capture_line_mean_the_capture() -> None:
    """Private pools hold graphs, and after the KV cache was sized only the capture makes them."""
    found(oom(Failure.OOM_CAPTURE, "0.17.1"), "oom-at-capture")


def test_the_graph_profile_belongs_to_the_profile() -> None:
    """A capture inside profile_cudagraph_memory is no capture of the start."""
    log = oom(Failure.OOM_PROFILING, place="_capture_cudagraphs").replace(
        "in worker_main", "in profile_cudagraph_memory"
    )
    log = log.replace("in run_engine_core", "in profile_cudagraph_memory")
    found(log, "oom-at-profile")


def test_what_was_missing_is_the_cost() -> None:
    """298 MiB were wanted and 65.38 MiB were free."""
    cost = found(oom(Failure.OOM_CAPTURE, place="capture_model"), "oom-at-capture").cost.bytes
    assert cost.contains((298 << 20) - (65 << 20) - 393216)
    assert cost.high is not None
    assert cost.high - (cost.low or 0) < 1 << 15


def test_a_lower_utilisation_frees_what_was_missing() -> None:
    """T x (u - u') covers the shortfall, and one step of 0.0001 more would not be proposed."""
    was = truth("0.31.0", card(), u=0.9, injected=Failure.OOM_CAPTURE)
    finding = found(render(was).replace("in _dummy_run", "in capture_model"), "oom-at-capture")
    lower = float(finding.actions[0].do.split()[-1])
    total = was.ranks[0].total_memory
    assert total * (0.9 - lower) >= (298 << 20) - (66 << 20)
    assert total * (0.9 - lower) <= (298 << 20) - (65 << 20) + total * 0.0002


def test_processes_named_by_torch_are_neighbours() -> None:
    busy = card(used=4.0)
    log = start("0.31.0", busy, u=0.7, injected=Failure.OOM_PROFILING)
    finding = found(log, "memory-held-by-others")
    assert "2892987" in finding.detail


def test_the_same_error_as_record_and_traceback_is_one_finding() -> None:
    log = oom(Failure.OOM_LOADING)
    assert log.count("CUDA out of memory") > 1
    assert isinstance(found(log, "oom-at-load").cost.bytes, Interval)


BEFORE = (
    "(EngineCore pid=7) INFO 11-19 12:15:00 [core.py:93] Initializing a V1 LLM engine (v0.27.0) with config: model='m/x', "
    "tensor_parallel_size=1\n"
    "(EngineCore pid=7) INFO 11-19 12:15:40 [gpu_model_runner.py:9] Model loading took 14.99 GiB memory and 5.2 seconds\n"
    "(EngineCore pid=7) INFO 11-19 12:16:00 [gpu_worker.py:9] Available KV cache memory: 53.11 GiB\n"
)
WHERE = (
    "(EngineCore pid=7) ERROR 11-19 12:16:36 [core.py:842] Traceback (most recent call last):\n"
    '(EngineCore pid=7) ERROR 11-19 12:16:36 [core.py:842]   File "/usr/vllm/v1/worker/gpu_model_runner.py", line 42, in '
    "{function}\n"
)


def found_in(error: str, function: str = "initialize_kv_cache_tensors") -> list[Finding]:
    """The findings of a start that dies in a call with an error."""
    said = "(EngineCore pid=7) ERROR 11-19 12:16:36 [core.py:842] "
    return list(explain((BEFORE + WHERE.format(function=function) + said + error).encode()).verdicts[0].findings)


@pytest.mark.parametrize(
    "error",
    [
        "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 23.91 GiB. "
        + SPLIT.format(""),
        (
            "RuntimeError: NPU out of memory. Tried to allocate 22.00 MiB (NPU 6; 60.97 GiB total capacity; 10.24 GiB already "
            "allocated; 10.24 GiB current active; 19.79 MiB free; 10.65 GiB reserved in total by PyTorch) If reserved memory is"
        ),
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "torch.AcceleratorError: CUDA error: out of memory",
        (
            "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:317, unhandled cuda error, NCCL version 2.21.5\n"
            "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 2 'out of memory'"
        ),
    ],
    ids=["XPU", "NPU", "cuBLAS", "CUDA", "NCCL"],
)
def test_memory_runs_out_in_many_words(error: str) -> None:
    assert [f.id for f in found_in(error)] == ["oom-at-kv-allocation"]


def test_a_kernel_that_does_not_fit_is_no_lack_of_device_memory() -> None:
    (found,) = found_in(
        "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 147456, limit: 101376."
    )
    assert found.id == "not-a-memory-failure"
    assert "more shared memory than the card has" in found.detail


def test_the_call_that_died_outranks_private_pools() -> None:
    assert found_in(f"torch.OutOfMemoryError: {HEAD}{OWN}{SPLIT.format(PRIVATE)}")[0].id == "oom-at-kv-allocation"


@pytest.mark.parametrize("own", ["", "Including non-PyTorch memory, this process has 0 bytes memory in use. "])
def test_this_process_by_another_pid_is_no_neighbour(own: str) -> None:
    """A container's driver knows it by the host's pid: the one that holds what torch had allocated."""
    others = "Process 258800 has 94.49 GiB memory in use. "
    (found,) = found_in(f"torch.OutOfMemoryError: {HEAD}{others}{own}{SPLIT.format('')}")
    assert "this process held 94.49 ±0.005 GiB" in found.detail


def test_a_budget_that_nothing_bounds_says_nothing_of_what_stood_outside() -> None:
    found = found_in(f"torch.OutOfMemoryError: {HEAD}{OWN}{SPLIT.format('')}")
    assert "outside" not in found[0].detail
