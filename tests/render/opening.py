"""From the first line to the loaded weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.render import settings_lines, words
from tests.render.numbers_as_printed import rounded
from tests.render.parts import Failure
from tests.render.speakers import Process, locally_first, shows_dp

if TYPE_CHECKING:
    from tests.render.log import Log
    from tests.render.truth import Truth


LOADER = "model_executor/model_loader"


def settings(log: Log) -> None:
    """The API server: version, arguments, what the configuration resolved to."""
    truth, api = log.truth, log.cast.api
    if truth.between("0.7.0", "0.11.1"):
        log.info(Process(None, 0), "__init__.py", "Automatically detected platform cuda.")
    if truth.since("0.15.0"):
        for line in settings_lines.BANNER:
            log.info(api, "entrypoints/utils.py", line.format(version=truth.shown_version, model=truth.model))
    elif truth.since("0.4.1"):
        log.info(api, "entrypoints/openai/api_server.py", f"vLLM API server version {truth.shown_version}")
    log.info(api, "entrypoints/utils.py", settings_lines.arguments(truth))
    log.wait(4)
    if truth.since("0.10.1"):
        log.info(api, "config/model.py", f"Resolved architecture: {truth.architecture}")
    if truth.since("0.9.2"):
        log.info(api, "config/model.py", f"Using max model len {truth.full_model_len}")
    if truth.kv_cache_dtype.startswith("fp8"):
        log.info(api, "config/cache.py", _fp8(truth))
    if not truth.v0 and truth.since("0.7.0"):
        sentence = f"Chunked prefill is enabled with max_num_batched_tokens={truth.max_num_batched_tokens}."
        log.info(api, "config/scheduler.py", sentence)
    if truth.since("0.14.0"):
        log.info(api, "config/vllm.py", "Asynchronous scheduling is enabled.")
    log.wait(6)


def _fp8(truth: Truth) -> str:
    kind = "fp8" if not truth.since("0.20.0") else truth.kv_cache_dtype
    stop = "." if truth.between("0.10.0", "0.20.0") else ""
    return (
        f"Using {kind} data type to store kv cache. It reduces the GPU memory footprint and boosts the performance. "
        f"Meanwhile, it may cause accuracy drop without a proper scaling factor{stop}"
    )


def engine(log: Log, dp: int) -> None:
    """The engine's configuration line."""
    file = "v1/engine/core.py" if not log.truth.v0 else "engine/llm_engine.py"
    log.info(log.cast.engines[dp], file, settings_lines.engine_config(log.truth))


def groups(log: Log, dp: int) -> None:
    """V1 workers of one engine join their process groups and say which ranks they are."""
    truth = log.truth
    size = truth.world * (truth.dp if shows_dp(truth) else 1)
    log.wait(2)
    for index in truth.of_engine(dp):
        worker, scope = log.cast.newcomers[index], truth.scope(index)
        rank = index if shows_dp(truth) else index % truth.world
        address = "distributed_init_method=tcp://127.0.0.1:55875"
        if truth.dp > 1 and shows_dp(truth) and truth.since("0.8.0"):
            teller = log.debug if truth.since("0.11.1") else log.info
            teller(worker, "distributed/parallel_state.py", f"Adjusting world_size={size} rank={rank} {address} for DP")
        line = f"world_size={size} rank={rank} local_rank={_local_rank(truth, index)} {address} backend=nccl"
        log.debug(worker, "distributed/parallel_state.py", line)
        if truth.since("0.11.1"):
            log.info(worker, "distributed/parallel_state.py", line)
        if size > 1 and (locally_first(truth, index) or not truth.since("0.11.1")):
            log.info(worker, "distributed/device_communicators/pynccl.py", "vLLM is using nccl==2.27.5")
        if truth.since("0.8.0") and (locally_first(truth, index) or not truth.since("0.19.1")):
            dp_rank = scope.dp if shows_dp(truth) else 0
            sentence = f"rank {rank} in world size {size} is assigned as DP rank {dp_rank}, PP rank {scope.pp}, "
            log.info(worker, "distributed/parallel_state.py", sentence + _places(truth, index))


def _local_rank(truth: Truth, index: int) -> int:
    per_node = max(len(truth.ranks) // truth.nodes, 1)
    return index % per_node


def _places(truth: Truth, index: int) -> str:
    """The rest of the assignment; each new kind of parallelism added a word."""
    tp = truth.scope(index).tp
    expert = "N/A" if truth.since("0.14.0") and not truth.moe else f"{index % truth.world}"
    parts = (
        ("PCP rank 0", truth.since("0.12.0")),
        (f"TP rank {tp}", True),
        ("ETP rank 0", truth.since("0.30.0")),
        (f"EP rank {expert}", truth.since("0.9.0")),
        ("EPLB rank N/A", truth.since("0.17.0")),
    )
    return ", ".join(text for text, present in parts if present)


def baseline(log: Log, index: int) -> None:
    """The snapshot before loading (V1 DEBUG from 0.14.0) and external weights."""
    truth, worker, rank = log.truth, log.cast.newcomers[index], log.truth.ranks[index]
    if truth.v0 or not truth.since("0.14.0"):
        return
    if truth.since("0.32.0") and rank.external_weight_memory and locally_first(truth, index):
        log.info(worker, "v1/worker/utils.py", words.external_weights(truth, rank))
    log.debug(worker, "v1/worker/gpu_worker.py", words.snapshot(truth, rank))
    log.debug(worker, "v1/worker/gpu_worker.py", words.requested(truth, rank))


def loading(log: Log, index: int) -> None:
    """Weights come in; who says so changed with 0.11.1 and the V2 runner."""
    truth, worker, rank = log.truth, log.cast.workers[index], log.truth.ranks[index]
    runner = "worker/model_runner.py" if truth.v0 else "v1/worker/gpu_model_runner.py"
    first = locally_first(truth, index)
    once = not truth.v0 and truth.since("0.11.1")
    if truth.since("0.5.0") and (first or not once):
        log.info(worker, runner, f"Starting to load model {truth.model}...")
    if first and truth.v2_runner:
        log.info(worker, "v1/worker/gpu_worker.py", "Using V2 Model Runner")
    if first or not once:
        log.info(worker, "platforms/cuda.py", _backend(truth))
    log.wait(3)
    if first:
        log.plain(worker, "Loading safetensors checkpoint shards: 100% Completed | 4/4 [00:03<00:00,  1.19it/s]")
    if truth.failure in (Failure.OOM_LOADING, Failure.UNRELATED):
        return
    if truth.since("0.8.0") and (first or not once):
        log.info(
            worker, "model_executor/model_loader/default_loader.py", f"Loading weights took {3.35 + index:.2f} seconds"
        )
    if truth.since("0.16.0") and first:
        peak = rounded(rank.model_memory + (64 << 20))
        log.debug(
            worker, "model_executor/model_loader/base_loader.py", f"Peak GPU memory after loading weights: {peak} GiB"
        )
    if truth.since("0.4.1") and (first or not once or truth.v2_runner):
        log.info(worker, runner, words.weights_loaded(truth, rank, 3.992785 + index))


def _backend(truth: Truth) -> str:
    if truth.v0 or truth.between("0.11.1", "0.12.0"):
        return "Using Flash Attention backend." if truth.v0 else "Using FLASH_ATTN backend."
    if not truth.since("0.12.0"):
        return "Using Flash Attention backend on V1 engine."
    names = (
        "('FLASH_ATTN', 'FLASHINFER', 'TRITON_ATTN')" if not truth.since("0.16.0") else "['FLASH_ATTN', 'TRITON_ATTN']."
    )
    return f"Using FLASH_ATTN attention backend out of potential backends: {names}"


def hybrid_block(log: Log, index: int) -> None:
    """Attention blocks raised to the size of a state page."""
    truth = log.truth
    if any(group.kind == "mamba" for group in truth.groups) and (index == 0 or truth.since("0.18.0")):
        speaker = log.cast.workers[index] if truth.since("0.18.0") else log.cast.api
        sentence = f"Setting attention block size to {truth.block_size} tokens to ensure that attention page size is "
        log.info(speaker, "platforms/interface.py", f"{sentence}>= mamba page size.")
