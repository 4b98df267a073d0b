"""DEBUG lines that carry no figure: what surrounds the ledger in a real log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.render.speakers import Process

if TYPE_CHECKING:
    from tests.render.log import Log

SWITCHES = (
    *("CACHE_ROOT", "CONFIG_ROOT", "USE_TRITON_AWQ", "USE_STANDALONE_COMPILE", "USE_MEGA_AOT_ARTIFACT"),
    *("MAIN_CUDA_VERSION", "FUSED_MOE_CHUNK_SIZE", "DISABLE_COMPILE_CACHE", "MARLIN_USE_ATOMIC_ADD", "ROCM_USE_AITER"),
    *("USE_DEEP_GEMM", "FLASHINFER_MOE_BACKEND", "ALLREDUCE_USE_SYMM_MEM", "KV_CACHE_LAYOUT", "USE_FLASHINFER_SAMPLER"),
)
SIZES = tuple(sorted({1, 2, 4, *range(8, 257, 8), *range(256, 513, 16)}, reverse=True))


def platforms(log: Log) -> None:
    """Each new process looks for its platform before it has a name."""
    nobody = Process(None, 0)
    for process in range(2 + len(log.cast.workers)):
        log.debug(nobody, "plugins/__init__.py", "No plugins for group vllm.platform_plugins found.")
        for name in ("TPU", "CUDA", "ROCm", "XPU", "CPU"):
            log.debug(nobody, "platforms/__init__.py", f"Checking if {name} platform is available.")
        log.debug(nobody, "platforms/__init__.py", "Automatically detected platform cuda.")
        log.wait(0.2 * process)


def compiling(log: Log, index: int) -> None:
    """One worker compiles its share: factors, passes, stored graphs."""
    worker = log.cast.workers[index]
    for turn in range(20):
        for name in SWITCHES:
            log.debug(worker, "compilation/backends.py", f" 'VLLM_{name}{turn or ''}': False,")
    for graph in range(17):
        log.debug(
            worker, "compilation/passes/vllm_inductor_pass.py", f"NoOpEliminationPass completed in 0.{graph % 7} ms"
        )
        log.debug(worker, "compilation/passes/vllm_inductor_pass.py", "PostCleanupPass completed in 0.2 ms")
        log.debug(
            worker, "compilation/.../utility/fix_functionalization.py", "De-functionalized 0 nodes, removed 0 nodes"
        )
        handle = f"artifact_compile_range_1_8192_subgraph_{graph}"
        sentence = (
            f"Store the {graph}-th graph for compile range(1, 8192) from inductor_standalone via handle ('{handle}')"
        )
        log.debug(worker, "compilation/backends.py", sentence)
    log.info(worker, "compilation/backends.py", "Compiling a graph for compile range (1, 8192) takes 5.20 s")
    log.info(worker, "compilation/monitor.py", "torch.compile took 9.25 s in total")


def capturing(log: Log) -> None:
    """Workers interleave, and a progress bar shares its line with a record."""
    for mode in ("PIECEWISE", "FULL"):
        for count, size in enumerate(SIZES):
            for worker in log.cast.workers:
                log.debug(worker, "v1/worker/gpu_model_runner.py", "ubatch_slices: None, ubatch_slices_padded: None")
                batch = f"BatchDescriptor(num_tokens={size}, num_reqs=None, uniform=False, has_lora=False)"
                log.debug(worker, "compilation/cuda_graph.py", f"Capturing a cudagraph on ({mode},{batch})")
                log.debug(worker, "v1/worker/gpu_model_runner.py", f"Batch descriptor for {size} tokens dispatched")
            if count % 6 == 5:
                share = f"{count * 2:2d}%|██▎  | {count}/51 [00:00<00:00, 54.34it/s]"
                log.glue(f"Capturing CUDA graphs (mixed prefill-decode, {mode}):  {share}")
        for worker in log.cast.workers:
            log.debug(worker, "distributed/device_communicators/shm_broadcast.py", "Poller received notify event")
