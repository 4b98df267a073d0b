"""The sentences that carry a figure, in the words of each release (vllm-log wording is the program's own output)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.render.numbers_as_printed import GIB, MIB, fixed, rounded, whole

if TYPE_CHECKING:
    from tests.render.parts import Rank
    from tests.render.truth import Truth

DOCS = "See https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details."


def gib(truth: Truth, size: float) -> str:
    """GiB as the V1 worker prints it: `%.2f` up to 0.13, rounded from 0.14.0."""
    return rounded(size) if truth.since("0.14.0") else fixed(size)


# -- weights ----------------------------------------------------------------------------------------------------------


def weights_loaded(truth: Truth, rank: Rank, seconds: float) -> str:
    """W; the label GB means GiB (v1/worker/gpu_model_runner.py, worker/model_runner.py load_model)."""
    if not truth.since("0.8.0"):
        return f"Loading model weights took {fixed(rank.model_memory, 4)} GB"
    if truth.since("0.14.0"):
        memory = "" if truth.v2_runner and not truth.since("0.28.0") else " memory"
        return f"Model loading took {rounded(rank.model_memory)} GiB{memory} and {seconds:.6f} seconds"
    unit = "GiB" if truth.since("0.8.4") else "GB"
    memory = " memory" if truth.since("0.11.1") and not truth.v0 else ""
    return f"Model loading took {fixed(rank.model_memory, 4)} {unit}{memory} and {seconds:.6f} seconds"


# -- V0's ledger ------------------------------------------------------------------------------------------------------


def v0_profile(truth: Truth, rank: Rank, seconds: float) -> str:
    """The three-line account (0.6.5+ worker/worker.py determine_num_available_blocks)."""
    u, budget = truth.gpu_memory_utilization, truth.requested_float(rank)
    return (
        f"Memory profiling takes {seconds:.2f} seconds\n"
        f"the current vLLM instance can use total_gpu_memory ({fixed(rank.total_memory)}GiB) x "
        f"gpu_memory_utilization ({u:.2f}) = {fixed(budget)}GiB\n"
        f"model weights take {fixed(rank.model_memory)}GiB; non_torch_memory takes {fixed(truth.non_torch(rank))}GiB; "
        f"PyTorch activation peak memory takes {fixed(rank.torch_peak_increase)}GiB; "
        f"the rest of the memory reserved for KV Cache is {fixed(truth.available_float(rank))}GiB."
    )


def v0_profile_one_line(truth: Truth, rank: Rank) -> str:
    """The one-line account of 0.6.4, its misspelt unit included."""
    neighbours = rank.total_memory - rank.initial_free_memory
    loaded = neighbours + rank.model_memory
    after = rank.total_memory - truth.free_after(rank)
    return (
        f"Memory profiling results: total_gpu_memory={fixed(rank.total_memory)}GiB "
        f"initial_memory_usage={fixed(loaded)}GiB "
        f"peak_torch_memory={fixed(rank.model_memory + rank.torch_peak_increase)}GiB "
        f"memory_usage_post_profile={fixed(after)}Gib non_torch_memory={fixed(truth.non_torch(rank))}GiB "
        f"kv_cache_size={fixed(truth.available_float(rank))}GiB "
        f"gpu_memory_utilization={truth.gpu_memory_utilization:.2f}"
    )


def v0_blocks(truth: Truth, blocks: int, bytes_per_block: int) -> str:
    """Blocks on device and in swap; the device has its name from 0.7.3 (executor/executor_base.py)."""
    device = "cuda" if truth.since("0.7.0") else "GPU"
    return f"# {device} blocks: {blocks}, # CPU blocks: {truth.swap_space // bytes_per_block}"


# -- V1: budget and profile -------------------------------------------------------------------------------------------


def snapshot(truth: Truth, rank: Rank) -> str:
    """Repr of the baseline snapshot (0.14.0+ utils/mem_utils.py MemorySnapshot)."""
    used = rank.total_memory - rank.initial_free_memory
    allocated = "torch_allocated=0.0GiB, " if truth.since("0.27.0") else ""
    return (
        f"worker init memory snapshot: torch_peak=0.0GiB, {allocated}"
        f"free_memory={rounded(rank.initial_free_memory)}GiB, "
        f"total_memory={rounded(rank.total_memory)}GiB, cuda_memory={rounded(used)}GiB, torch_memory=0.0GiB, "
        f"non_torch_memory={rounded(used)}GiB, timestamp={1776822175.437332 + truth.start}, auto_measure=True"
    )


def requested(truth: Truth, rank: Rank) -> str:
    return f"worker requested memory: {rounded(truth.requested(rank))}GiB"


def external_weights(truth: Truth, rank: Rank) -> str:
    """0.32.0+ v1/worker/utils.py request_memory: the first figure is the budget before E is taken off."""
    whole_budget = truth.requested(rank) + rank.external_weight_memory
    return (
        f"Weights are held outside this process: of the {rounded(whole_budget)} GiB utilization budget, "
        f"{rounded(rank.external_weight_memory)} GiB is externally held and {rounded(truth.requested(rank))} GiB "
        "remains for the engine's own allocations."
    )


def initial_free(truth: Truth, rank: Rank) -> str:
    """F, u and R at DEBUG; three wordings, two ways of printing u."""
    free, budget = rank.initial_free_memory, truth.requested_float(rank)
    if not truth.since("0.10.1"):
        now = truth.free_after(rank)
        return (
            f"Initial free memory: {fixed(free)} GiB, free memory: {fixed(now)} GiB, "
            f"requested GPU memory: {fixed(budget)} GiB"
        )
    u = truth.gpu_memory_utilization
    share = f"{u:f}" if truth.since("0.14.0") else f"{u:.2f}"
    return f"Initial free memory: {gib(truth, free)} GiB; Requested memory: {share} (util), {gib(truth, budget)} GiB"


def free_after(truth: Truth, rank: Rank) -> str:
    after = truth.free_after(rank)
    within = after - (rank.initial_free_memory - truth.requested_float(rank))
    return f"Free memory after profiling: {gib(truth, after)} GiB (total), {gib(truth, within)} GiB (within requested)"


def profile(truth: Truth, rank: Rank, seconds: float) -> str:
    """Repr of the profiling result (DEBUG)."""
    third = (
        f"total consumed (from mem_get_info): {gib(truth, rank.total_consumed)}GiB"
        if truth.by_consumption
        else f"non-torch forward increase memory: {gib(truth, rank.non_torch_increase)}GiB"
    )
    return (
        f"Memory profiling takes {seconds:.2f} seconds. "
        f"Total non KV cache memory: {gib(truth, truth.non_kv(rank))}GiB; "
        f"torch peak memory increase: {gib(truth, rank.torch_peak_increase)}GiB; {third}; "
        f"weights memory: {gib(truth, rank.model_memory)}GiB."
    )


def available(truth: Truth, rank: Rank) -> str:
    return f"Available KV cache memory: {gib(truth, truth.available_float(rank))} GiB"


def explicit_memory(truth: Truth, rank: Rank, size: int) -> str:
    """What an explicit KV-cache size prints in place of a profile; F has every digit in 0.10.2 and 0.11.0."""
    early = not truth.since("0.11.1")
    free = whole(rank.initial_free_memory) if early else gib(truth, rank.initial_free_memory)
    does, gap = ("does does", "") if early else ("does", " ")
    return (
        f"Initial free memory {free} GiB, reserved {gib(truth, size)}{gap}GiB memory for KV Cache as specified by "
        f"kv_cache_memory_bytes config and skipped memory profiling. This {does} not respect the "
        "gpu_memory_utilization config. Only use kv_cache_memory_bytes config when you want manual control of KV "
        "cache memory size. If OOM'ed, check the difference of initial free memory between the current run and the "
        "previous run where kv_cache_memory_bytes is suggested and update it correspondingly."
    )


def startup_plan(truth: Truth, rank: Rank, size: int) -> str:
    """0.26.0+ v1/worker/startup_plan.py maybe_apply_startup_plan."""
    free = fixed(rank.initial_free_memory)
    return (
        "Applying persisted startup plan (fingerprint 5f3c9a1e77d0): "
        f"kv_cache_memory_bytes={size} ({fixed(size)} GiB), "
        f"recorded free-memory baseline {free} GiB, current {free} GiB. Memory profiling will be skipped."
    )


def mm_reserve(truth: Truth, rank: Rank) -> str:
    """0.25.0+: half of the reservation is the raw-frame budget in this rendering."""
    raw = truth.raw_frame_budget
    decoder = truth.mm_reservation - raw
    return (
        f"Reserving {rounded(truth.mm_reservation)} GiB of GPU memory for frontend multimodal decoding "
        f"({rounded(raw)} GiB raw-frame semaphore budget, {rounded(decoder)} GiB decoder+CUDA-context across 1 API "
        f"server(s) @ {rounded(decoder)} GiB/server); KV cache memory reduced to {rounded(truth.pool(rank))} GiB."
    )


# -- V1: graphs -------------------------------------------------------------------------------------------------------


def graph_profiling(truth: Truth) -> str:
    names = zip(("PIECEWISE", "FULL"), truth.graph_sizes, strict=True)
    return "Profiling CUDA graph memory: " + ", ".join(f"{name}={n} (largest=512)" for name, n in names if n)


def graph_detail(mode: str, first: int, count: int, further: int) -> str:
    per_graph = max(further, MIB)
    return (
        f"Estimated {mode} CUDA graph memory: {first / MIB:.2f} MiB first-capture + "
        f"({count}-1) × {per_graph / MIB:.2f} MiB per-graph"
    )


def graph_estimate(truth: Truth, rank: Rank) -> str:
    return f"Estimated CUDA graph memory: {truth.graph_estimate(rank) / GIB:.2f} GiB total"


def graph_flag(truth: Truth, rank: Rank) -> str:
    """What the estimate means in terms of u (v1/worker/gpu_worker.py determine_available_memory, 0.18.0+)."""
    u, share = truth.gpu_memory_utilization, truth.graph_estimate(rank) / rank.total_memory
    more = min(round(u + share, 4), 1.0)
    if truth.charges_graphs:
        era = (
            "(default since v0.21.0). The"
            if truth.since("0.20.0")
            else "(VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=1). This will become the default in v0.19. The"
        )
        off = " To disable, set VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0." if truth.since("0.20.0") else ""
        return (
            f"CUDA graph memory profiling is enabled {era} current --gpu-memory-utilization={u:.4f} is equivalent to "
            f"--gpu-memory-utilization={round(u - share, 4):.4f} without CUDA graph memory profiling. To maintain the "
            f"same effective KV cache size as before, increase --gpu-memory-utilization to {more:.4f}.{off}"
        )
    if truth.since("0.20.0"):
        return (
            "CUDA graph memory profiling is disabled (VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0). Without it, CUDA "
            "graph memory is not accounted for during KV cache allocation, which may require lowering "
            "--gpu-memory-utilization to avoid OOM. Consider re-enabling it (the default as of v0.21.0) and increasing "
            f"--gpu-memory-utilization from {u:.4f} to {more:.4f}."
        )
    return (
        "In v0.19, CUDA graph memory profiling will be enabled by default "
        "(VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=1), which more accurately accounts for CUDA graph memory during KV "
        "cache allocation. To try it now, set "
        "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=1 and increase --gpu-memory-utilization from "
        f"{u:.4f} to {more:.4f} to maintain the same effective KV cache size."
    )


def graphs_captured(truth: Truth, rank: Rank, seconds: float) -> str:
    """No memory before 0.6.4; a free-memory delta afterwards."""
    took = f", took {fixed(rank.cudagraph_actual)} GiB" if truth.since("0.6.4") else "."
    return f"Graph capturing finished in {seconds:.0f} secs{took}"


def graph_pool(truth: Truth, rank: Rank) -> str:
    actual, estimate = rank.cudagraph_actual, truth.graph_estimate(rank)
    difference = abs(actual - estimate)
    return (
        f"CUDA graph pool memory: {rounded(actual)} GiB (actual), {rounded(estimate)} GiB (estimated), "
        f"difference: {rounded(difference)} GiB ({100 * difference / max(actual, 1):.1f}%)."
    )


def usage(truth: Truth, rank: Rank) -> str:
    """The usage account with its two suggestions (0.10.2+ compile_or_warm_up_model); GiB by `round` always."""
    into_budget, into_free = truth.suggested(rank)
    first = truth.version == "0.10.2"
    in_budget, in_free = ("", "") if first else (f" ({rounded(into_budget)} GiB)", f" ({rounded(into_free)} GiB)")
    in_use = truth.available_float(rank)
    current = f"{int(in_use)} bytes." if first else f"{rounded(in_use)} GiB."
    return (
        f"Free memory on device ({rounded(rank.initial_free_memory)}/{rounded(rank.total_memory)} GiB) on startup. "
        f"Desired GPU memory utilization is ({truth.gpu_memory_utilization}, {rounded(truth.requested_float(rank))} "
        f"GiB). Actual usage is {_usage_parts(truth, rank)}{rounded(rank.cudagraph_actual)} GiB for CUDAGraph memory. "
        f"Replace gpu_memory_utilization config with `--kv-cache-memory={into_budget}`{in_budget} to fit into "
        f"requested memory, or `--kv-cache-memory={into_free}`{in_free} to fully utilize gpu memory. "
        f"Current kv cache memory in use is {current}"
    )


def _usage_parts(truth: Truth, rank: Rank) -> str:
    peak = rounded(truth.printed_peak(rank))
    if truth.by_consumption:
        consumed = rounded(rank.total_consumed)
        return f"{consumed} GiB for consumed memory (weights + non-torch), {peak} GiB for peak activation, and "
    weights, other = rounded(rank.model_memory), rounded(rank.non_torch_increase)
    return f"{weights} GiB for weight, {peak} GiB for peak activation, {other} GiB for non-torch memory, and "


# -- V1: the planner --------------------------------------------------------------------------------------------------


def overriding(computed: int, override: int) -> str:
    return f"Overriding num_gpu_blocks={computed} with num_gpu_blocks_override={override}"


def auto_fit(truth: Truth, memory: int) -> str:
    """0.14.0+; from 0.32.0 the pool is named by device and the null block is off."""
    reached, asked = truth.max_model_len, truth.full_model_len
    named = truth.since("0.32.0")
    where = f"available KV cache memory ({rounded(memory)} GiB GPU)" if named else "available GPU memory"
    if reached >= asked:
        return f"Auto-fit max_model_len: full model context length {asked} fits in {where}"
    bracket = "" if named else f" ({rounded(memory)} GiB available for KV cache)"
    return f"Auto-fit max_model_len: reduced from {asked} to {reached} to fit in {where}{bracket}"


def context_parallel(truth: Truth) -> str:
    if truth.since("0.12.0"):
        return (
            f"Multiplying the GPU KV cache size by the cp_world_size {truth.dcp} "
            f"(pcp_world_size 1 * dcp_world_size {truth.dcp})."
        )
    return f"Multiplying the GPU KV cache size by the dcp_world_size {truth.dcp}."


def kv_size(tokens: int) -> str:
    return f"GPU KV cache size: {tokens:,} tokens"


def concurrency(truth: Truth, times: float) -> str:
    """Thousands commas in V1 from 0.8.0 on."""
    length = truth.max_model_len
    shown = f"{length:,}" if not truth.v0 and truth.since("0.8.0") else str(length)
    return f"Maximum concurrency for {shown} tokens per request: {times:.2f}x"


def blocks_after_init(truth: Truth, engine: int, blocks: int) -> str:
    """The API process's block count, summed over DP engines (v1/metrics/loggers.py log_engine_initialized)."""
    whose = f"Engine {engine:03d}: " if truth.since("0.9.1") else ""
    return f"{whose}vllm cache_config_info with initialization after num_gpu_blocks is: {blocks}"
