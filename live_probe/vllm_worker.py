"""A worker class that vLLM loads by name: `worker_cls="live_probe.vllm_worker.ProbeWorker"` (V1 engine, 0.8-0.33).

It is the platform's own worker, with every start-up step journalled as it happens into the folder that
KVFORENSICS_PROBE_DIR names: one file for each rank, whichever process or node it runs in. Nothing else changes.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from live_probe.child_process import ENGINES, PROBE_DIR
from live_probe.device import CudaDevice
from live_probe.host import HostMemory
from live_probe.journal import Journal
from live_probe.measurement import Environment
from live_probe.step_recorder import StepRecorder
from live_probe.worker_reading import WorkerReading, read_worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from live_probe.device import MemoryReader

WORKER_STEPS = (
    "init_device",
    "load_model",
    "determine_available_memory",
    "initialize_from_config",
    "compile_or_warm_up_model",
)
RUNNER_STEPS = ("profile_run", "profile_cudagraph_memory", "initialize_kv_cache", "capture_model")


class ProbeSetupError(RuntimeError):
    """The worker was loaded without the folder it should write to."""


class Recorded:
    """Mixed in before a platform's worker: journals its steps and, after each, what the worker knows.

    The worker's constructor arguments pass through untouched.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401  whatever the release's executor passes
        super().__init__(*args, **kwargs)
        recorder = StepRecorder(Journal(_journal_path(self)), rank_name(self), lambda: reader_of(self))
        recorder.write(environment_of(self))
        for step in WORKER_STEPS:
            if hasattr(self, step):
                setattr(self, step, self._reading_after(recorder, step, getattr(self, step)))

    def _reading_after(self, recorder: StepRecorder, step: str, method: Callable[..., Any]) -> Callable[..., Any]:
        framed = recorder.framed(step, method)

        def run(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            result = framed(*args, **kwargs)
            if step == "init_device":
                recorder.write(environment_of(self))
                self._frame_runner(recorder)
            reading = reading_of(self)
            for measurement in reading.measurements:
                recorder.write(measurement)
            for absent in reading.missing:
                recorder.write(absent)
            return result

        return run

    def _frame_runner(self, recorder: StepRecorder) -> None:
        runner = getattr(self, "model_runner", None)
        for step in RUNNER_STEPS:
            if hasattr(runner, step):
                setattr(runner, step, recorder.framed(step, getattr(runner, step)))


def __getattr__(name: str) -> type:
    """Build ProbeWorker on first use: only a process that runs vLLM may import it."""
    if name != "ProbeWorker":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    built = type("ProbeWorker", (Recorded, platform_worker()), {"__module__": __name__})
    globals()["ProbeWorker"] = built
    return built


def platform_worker() -> type:
    """Give the worker class that vLLM would have chosen by itself (platforms: check_and_update_config)."""
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        from vllm.v1.worker.cpu_worker import CPUWorker

        return CPUWorker  # type: ignore[no-any-return]
    if current_platform.is_xpu():
        from vllm.v1.worker.xpu_worker import XPUWorker

        return XPUWorker  # type: ignore[no-any-return]
    from vllm.v1.worker.gpu_worker import Worker

    return Worker  # type: ignore[no-any-return]


def reading_of(worker: object) -> WorkerReading:
    """Read the worker with the release's own switch for charging graphs."""
    import vllm
    from vllm import envs

    charged = bool(getattr(envs, "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", False))
    return read_worker(worker, vllm.__version__, graphs_charged=charged)


def reader_of(worker: object) -> MemoryReader | None:
    """Give the memory of the worker's device, or None before it has chosen one.

    Reading a CUDA card earlier would open a context on it, perhaps on the wrong one.
    """
    device = getattr(worker, "device", None)
    kind = getattr(device, "type", "")
    if kind == "cuda":
        return CudaDevice(getattr(device, "index", None) or 0)
    return HostMemory() if kind == "cpu" or (device is None and _is_cpu(worker)) else None


def _is_cpu(worker: object) -> bool:
    config = getattr(worker, "device_config", None)
    return getattr(config, "device_type", getattr(getattr(config, "device", None), "type", "")) == "cpu"


def rank_name(worker: object) -> str:
    """Name the rank, with its data-parallel engine where there are several.

    Engines of a dense model are told that they are alone, and which they are by data_parallel_index (0.14.0 on,
    vllm/v1/engine/core.py: run_engine_core).
    """
    rank = f"rank {getattr(worker, 'rank', 0)}"
    config = getattr(worker, "parallel_config", None)
    if getattr(config, "data_parallel_size", 1) == 1 and ENGINES not in os.environ:
        return rank
    return f"dp {getattr(config, 'data_parallel_index', getattr(config, 'data_parallel_rank', 0))} {rank}"


def environment_of(worker: object) -> Environment:
    """Say what runs here."""
    import torch
    import vllm

    reader = reader_of(worker)
    device = "CPU" if isinstance(reader, HostMemory) else getattr(reader, "name", "not chosen yet")
    return Environment(device, False, "vllm", vllm.__version__, torch.__version__, "not read", (f"pid {os.getpid()}",))


def _journal_path(worker: object) -> Path:
    folder = os.environ.get(PROBE_DIR)
    if not folder:
        raise ProbeSetupError(f"set {PROBE_DIR} to the folder that the probe's journals go to")
    return Path(folder) / f"{rank_name(worker).replace(' ', '-')}-{os.getpid()}.jsonl"
