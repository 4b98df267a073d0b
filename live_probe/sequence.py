"""The start-up sequence of a vLLM release, step by step, on any device; every step between two snapshots.

vLLM 0.8-0.33, vllm/v1/worker/gpu_worker.py: Worker.init_device, load_model, determine_available_memory,
initialize_from_config, compile_or_warm_up_model; vllm/v1/core/kv_cache_utils.py for the pool.
"""

from __future__ import annotations

import time
from collections.abc import Callable  # noqa: TC003  NamedTuple fields are evaluated by get_type_hints
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch

from live_probe import budget
from live_probe.buffers import RunnerBuffers, SamplerBuffers
from live_probe.decoder import Decoder
from live_probe.device import snapshot_of
from live_probe.eras import era_of
from live_probe.graphs import GraphCapturer, capture_groups
from live_probe.measurement import INTERRUPTED, ONLY_RANK, Failure, Measurement, NotMeasured, Snapshot
from live_probe.parameters import torch_dtype
from live_probe.samplers import TritonBuffers, dummy_sampler

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from live_probe.device import Device, GraphPool
    from live_probe.launch import LaunchSettings
    from live_probe.measurement import When
    from live_probe.shape import DecoderShape

SPLIT_LIMIT_MIB = 20
"""The least max_split_size_mb that torch allows, which vLLM sets while it loads (0.21+) and profiles (0.31+)."""


class StartRefusedError(ValueError):
    """The engine itself would refuse to start here."""


class Watchers(NamedTuple):
    """Called with every snapshot and figure as it is taken, to journal it or to show progress."""

    on_snapshot: Callable[[Snapshot], object] = lambda _snapshot: None
    on_measurement: Callable[[Measurement], object] = lambda _measurement: None


UNWATCHED = Watchers()


class StartUpResult(NamedTuple):
    """What one run of the sequence measured, as far as it came."""

    measurements: tuple[Measurement, ...]
    missing: tuple[NotMeasured, ...]
    snapshots: tuple[Snapshot, ...]
    failure: Failure | None


class StartUp:
    """One start-up. `watchers` hear of every snapshot and figure as it is taken.

    A start that dies gives all it measured before, and the step with what was free when it died.
    """

    def __init__(
        self,
        device: Device,
        shape: DecoderShape,
        launch: LaunchSettings,
        watchers: Watchers = UNWATCHED,
    ) -> None:
        self._device = device
        self._shape = shape
        self._launch = launch
        self._era = era_of(launch.version)
        self._watchers = watchers
        self._started = time.monotonic()
        self._step = "init_device"
        self._snapshots: list[Snapshot] = []
        self._measured: dict[str, Measurement] = {}
        self._missing: list[NotMeasured] = []
        self._triton = TritonBuffers(device.multiprocessors)
        self._sampler = dummy_sampler(launch, self._era.sampler, self._triton)
        self._pool_tensors: list[torch.Tensor] = []
        self._graphs: GraphPool | None = None

    def run(self) -> StartUpResult:
        """Go through every step and let everything go again, however it ends."""
        failure = None
        try:
            with self._device.running(), torch.no_grad():
                self._all_steps()
        except (RuntimeError, StartRefusedError, KeyboardInterrupt) as error:
            # torch raises RuntimeError, and subclasses of it, for everything a device refuses
            failure = self._failure(error)
        finally:
            self._let_go()
        return StartUpResult(tuple(self._measured.values()), tuple(self._missing), tuple(self._snapshots), failure)

    def _all_steps(self) -> None:
        initial = self._init_device()
        self._request_memory(initial)
        self._init_runner()
        self._load_model()
        if self._launch.kv_cache_memory_bytes:
            with self._taking("profile_run"):
                self._profile_run()
            self._skip_terms()
        else:
            self._memory_profiling(initial)
        blocks = self._plan_kv_cache()
        with self._taking("initialize_kv_cache"):
            self._pool_tensors = self._kv_tensors(blocks)
        self._capture_model()
        if self._launch.runner == "v1":
            with self._taking("dummy_sampler_run"):
                self._sampler(self._decoder.logits(self._decoder.forward(self._ids(self._rows))))
        self._replay()

    def _init_device(self) -> Snapshot:
        with self._taking("init_device"):
            if self._era.blas_warm_up:
                self._warm_blas()
            self._device.empty_cache()
        return self._snapshots[-1]

    def _warm_blas(self) -> None:
        """Let cuBLAS and cuBLASLt take their handles before the baseline (Worker.init_device, 0.33)."""
        size = (16, 16)
        ones = torch.ones(size, dtype=torch_dtype(self._launch.dtype), device=self._device.torch_device)
        torch.mm(ones, ones)
        torch.nn.functional.linear(ones, ones, ones[0])

    def _request_memory(self, initial: Snapshot) -> None:
        self._step = "request_memory"
        requested = budget.requested_memory(initial.total, self._launch.gpu_memory_utilization, self._era)
        self._note("total_memory", initial.total, "cudaMemGetInfo total", "init_device")
        self._note("initial_free_memory", initial.free, "free at the baseline", "init_device")
        rounding = "ceil" if self._era.budget == "ceil" else "floor"
        self._note("requested_memory", requested, f"{rounding}(total_memory * gpu_memory_utilization)")
        if self._era.budget != "unchecked" and initial.free < requested:
            raise StartRefusedError(
                f"free memory {initial.free} B is less than the {requested} B requested: "
                "lower --gpu-memory-utilization or free the card"
            )

    def _init_runner(self) -> None:
        with self._taking("init_runner"):
            self._buffers = RunnerBuffers(self._launch, self._shape, self._device.torch_device)

    def _load_model(self) -> None:
        self._device.empty_cache()
        with self._taking("load_model"):
            before = self._device.stats().allocated
            with self._limited("load_model"):
                compiled = bool(self._launch.capture_sizes)
                self._decoder = Decoder(
                    self._shape, self._device.torch_device, self._launch.dtype, compiled=compiled, era=self._era,
                    tokens=self._launch.max_num_batched_tokens,
                )  # fmt: skip
            self._device.empty_cache()
            weights = self._device.stats().allocated - before
        self._note("model_memory", weights, "allocated after - before", "load_model")
        if self._launch.runner == "v2":
            with self._taking("init_sampler"):
                self._sampler_buffers = SamplerBuffers(self._launch, self._shape, self._device.torch_device)

    def _memory_profiling(self, initial: Snapshot) -> None:
        self._device.empty_cache()
        self._device.reset_peak()
        with self._taking("memory_profiling") as floor:
            with self._taking("profile_run"), self._limited("profile_run"):
                self._profile_run()
            peak = self._snapshots[-1].peak
            if self._era.graph_profile == "while profiling":
                estimate = self._profile_cudagraph_memory()
            self._device.empty_cache()
        after = self._snapshots[-1]
        if self._era.graph_profile == "after profiling":
            estimate = self._profile_cudagraph_memory()
        elif self._era.graph_profile == "absent":
            self._absent("cudagraph_memory_estimate", "no release before 0.18.0 estimates graphs")
            estimate = 0
        self._check_growth(initial, after)
        read = budget.ProfilingSnapshots(initial, after, floor.allocated, peak)
        self._note_terms(read, estimate)

    def _profile_run(self) -> None:
        """Run the largest batch through model and sampler (GPUModelRunner.profile_run, _dummy_sampler_run)."""
        hidden = self._decoder.forward(self._buffers.input_ids)
        rows = torch.arange(self._rows, device=self._device.torch_device)
        sampled = hidden.index_select(0, rows)
        if self._launch.runner == "v1":
            sampled_again = torch.empty_like(sampled).uniform_()
            self._sampler(self._decoder.logits(sampled_again))
        else:
            self._sampler(self._decoder.logits(sampled))
        self._device.synchronize()

    def _profile_cudagraph_memory(self) -> int:
        groups = capture_groups(self._launch, self._era)
        estimate = 0
        with self._taking("profile_cudagraph_memory"):
            if groups:
                self._pool_tensors = self._kv_tensors(min(self._launch.max_num_seqs, groups[0].sizes[0]))
                estimate = self._capturer().estimate(groups, self._launch)
                self._pool_tensors = []
                self._device.empty_cache()
        self._note("cudagraph_memory_estimate", estimate, "", "profile_cudagraph_memory")
        return estimate

    def _check_growth(self, initial: Snapshot, after: Snapshot) -> None:
        """Refuse what no engine of any era goes on with: more free memory than before the model."""
        self._step = "memory_profiling"
        if after.free > initial.free:
            raise StartRefusedError(
                f"free memory grew from {initial.free} B to {after.free} B while profiling: "
                "another process released memory, start again once the card is quiet"
            )

    def _note_terms(self, read: budget.ProfilingSnapshots, estimate: int) -> None:
        terms = budget.profiled_terms(read, self._value("model_memory"), self._era)
        applied = estimate if self._launch.charge_graphs else 0
        steps = ("init_device", "memory_profiling", "profile_run")
        for name, value in terms._asdict().items():
            self._note(name, value, "", *steps)
        self._note("non_kv_cache_memory", terms.non_kv_cache_memory, "total_consumed + transient_peak_headroom")
        self._note("cudagraph_memory_applied", applied, "cudagraph_memory_estimate, or 0 where it is not charged")
        available = budget.available_kv_cache_memory(self._value("requested_memory"), terms, applied)
        self._note(
            "available_kv_cache_memory", available, "requested_memory - non_kv_cache_memory - cudagraph_memory_applied"
        )

    def _skip_terms(self) -> None:
        for name in ("total_consumed", "transient_peak_headroom", "available_kv_cache_memory"):
            self._absent(name, "kv_cache_memory_bytes was given, so that nothing was profiled")

    def _plan_kv_cache(self) -> int:
        """Divide the pool as the engine does and refuse where it would (kv_cache_utils.get_kv_cache_configs)."""
        self._step = "plan_kv_cache"
        pool = self._launch.kv_cache_memory_bytes or self._value("available_kv_cache_memory")
        plan = self._launch.cache
        per_block, longest = plan.bytes_per_block, plan.max_model_len
        self._note("kv_pool_memory", pool, "available_kv_cache_memory, or kv_cache_memory_bytes where given")
        self._note_count("block_size", plan.block_size, "tokens")
        self._note("bytes_per_block", per_block, "the pages of the widest group of layers")
        self._note_count("max_model_len", longest, "tokens")
        if pool <= 0:
            raise StartRefusedError(f"no memory is left for the cache ({pool} B): raise --gpu-memory-utilization")
        if pool < plan.least_memory:
            raise StartRefusedError(
                f"one request of {longest} tokens needs {plan.least_memory} B of cache, {pool} B are left: "
                "lower --max-model-len"
            )
        blocks = pool // per_block
        self._note_count("num_blocks", blocks, "blocks")
        self._note("kv_cache_bytes", blocks * per_block, "num_blocks * bytes_per_block")
        self._note("unused_kv_memory", pool - blocks * per_block, "kv_pool_memory - kv_cache_bytes")
        return blocks

    def _capture_model(self) -> None:
        groups = capture_groups(self._launch, self._era)
        if not groups:
            self._absent("cudagraph_memory_actual", "no graphs are captured with enforce_eager")
            return
        with self._taking("capture_model"):
            self._graphs, actual = self._capturer().capture(groups)
        self._note("cudagraph_memory_actual", actual, "free before - after the captures", "capture_model")

    def _replay(self) -> None:
        """Run the profile batch once more with pool and graphs in place: what H is kept for."""
        self._device.reset_peak()
        with self._taking("replay_profile_run") as before:
            self._profile_run()
        needed = self._snapshots[-1].peak - before.allocated
        self._note("replay_peak_headroom", needed, "peak - allocated before, pool in place", "replay_profile_run")

    @property
    def _rows(self) -> int:
        return min(self._launch.max_num_seqs, self._launch.max_num_batched_tokens)

    def _ids(self, tokens: int) -> torch.Tensor:
        return self._buffers.input_ids.narrow(0, 0, tokens)

    def _capturer(self) -> GraphCapturer:
        return GraphCapturer(self._device, lambda size: self._decoder.forward(self._ids(size)))

    def _kv_tensors(self, blocks: int) -> list[torch.Tensor]:
        """Allocate the pool's tensors; each serves one layer of every group (_allocate_kv_cache_tensors)."""
        device = self._device.torch_device
        return [torch.zeros(blocks * page, dtype=torch.int8, device=device) for page in self._launch.cache.pages]

    def _limited(self, step: str) -> AbstractContextManager[object]:
        return self._device.split_limit(SPLIT_LIMIT_MIB) if step in self._era.split_limited else nullcontext()

    @contextmanager
    def _taking(self, step: str) -> Iterator[Snapshot]:
        """Put a step between two snapshots; the second is taken even if the step dies, where the card still answers."""
        outer, self._step = self._step, step
        before = self._snapshot(step, "before")
        try:
            yield before
        except BaseException:
            with suppress(RuntimeError):
                self._snapshot(step, "after")
            raise
        self._snapshot(step, "after")
        self._step = outer

    def _snapshot(self, step: str, when: When) -> Snapshot:
        self._device.synchronize()
        snapshot = snapshot_of(self._device, step, when, ONLY_RANK, time.monotonic() - self._started)
        self._snapshots.append(snapshot)
        self._watchers.on_snapshot(snapshot)
        return snapshot

    def _note(self, name: str, value: int, equation: str, *steps: str) -> None:
        self._keep(Measurement(name, value, "B", equation, steps))

    def _note_count(self, name: str, value: int, unit: Literal["tokens", "blocks"]) -> None:
        self._keep(Measurement(name, value, unit))

    def _keep(self, measurement: Measurement) -> None:
        self._measured[measurement.name] = measurement
        self._watchers.on_measurement(measurement)

    def _absent(self, name: str, reason: str) -> None:
        self._missing.append(NotMeasured(name, reason))

    def _value(self, name: str) -> int:
        return self._measured[name].value

    def _failure(self, error: BaseException) -> Failure:
        try:
            free, total = self._device.memory()
        except RuntimeError:  # a card that has failed answers no more: the last snapshot stands then
            last = self._snapshots[-1] if self._snapshots else None
            free, total = (last.free, last.total) if last else (0, 0)
        kind = INTERRUPTED if isinstance(error, KeyboardInterrupt) else type(error).__name__
        message = str(error).splitlines()[0] if str(error) else kind
        return Failure(self._step, kind, message, free, total)

    def _let_go(self) -> None:
        if self._graphs is not None:
            self._graphs.release()
        for name in ("_decoder", "_buffers", "_sampler_buffers", "_sampler", "_triton"):
            if hasattr(self, name):
                delattr(self, name)
        self._pool_tensors = []
        with suppress(RuntimeError):  # nothing is measured after this
            self._device.empty_cache()
