"""From the profile to the planned pool."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.render import words
from tests.render.speakers import engine_prints_local, locally_first

if TYPE_CHECKING:
    from tests.render.log import Log

WORKER = "v1/worker/gpu_worker.py"
RUNNER = "v1/worker/gpu_model_runner.py"
PLANNER = "v1/core/kv_cache_utils.py"


def v0_profile(log: Log, index: int) -> None:
    """V0 prints its account from 0.6.4 on, every rank its own."""
    truth, worker, rank = log.truth, log.cast.workers[index], log.truth.ranks[index]
    if truth.between("0.6.4", "0.6.5"):
        log.info(worker, "worker/worker.py", words.v0_profile_one_line(truth, rank))
    elif truth.since("0.6.5"):
        log.info(worker, "worker/worker.py", words.v0_profile(truth, rank, 1.05 + index))


def v0_blocks(log: Log) -> None:
    """V0's block counts, after the minimum over ranks and the override."""
    truth, main = log.truth, log.cast.api
    blocks = min(truth.own_blocks(index) for index in range(len(truth.ranks)))
    if truth.num_blocks_override is not None:
        log.info(main, "engine/llm_engine.py", words.overriding(blocks, truth.num_blocks_override))
        blocks = truth.num_blocks_override
    file = "executor/executor_base.py" if truth.since("0.7.0") else "executor/gpu_executor.py"
    log.info(main, file, words.v0_blocks(truth, blocks, max(rank.bytes_per_block for rank in truth.ranks)))
    if truth.since("0.6.3"):
        log.info(main, file, words.concurrency(truth, truth.concurrency(blocks)))


def profile(log: Log, index: int) -> None:
    """A V1 worker's profile: estimates, DEBUG terms, M, what the estimate means."""
    truth, worker, rank = log.truth, log.cast.workers[index], log.truth.ranks[index]
    log.wait(5)
    if truth.kv_cache_memory_bytes is not None:
        if truth.startup_plan:
            log.info(worker, "v1/worker/startup_plan.py", words.startup_plan(truth, rank, truth.kv_cache_memory_bytes))
        log.info(worker, WORKER, words.explicit_memory(truth, rank, truth.kv_cache_memory_bytes))
        _reserve(log, index)
        return
    if not truth.since("0.9.1"):
        return
    estimate(log, index)
    log.debug(worker, WORKER, words.initial_free(truth, rank))
    if truth.since("0.10.1"):
        log.debug(worker, WORKER, words.free_after(truth, rank))
    log.debug(worker, WORKER, words.profile(truth, rank, 9.87 + index))
    if locally_first(truth, index) or not truth.since("0.11.1"):
        log.info(worker, WORKER, words.available(truth, rank))
    if truth.graph_estimate(rank) > 0:
        off = truth.since("0.20.0") and not truth.charges_graphs
        log.say(worker, "WARNING" if off else "INFO", WORKER, words.graph_flag(truth, rank))
    _reserve(log, index)


def _reserve(log: Log, index: int) -> None:
    truth = log.truth
    if truth.mm_reservation and truth.since("0.25.0") and locally_first(truth, index):
        log.info(log.cast.workers[index], "multimodal/gpu_ipc_memory.py", words.mm_reserve(truth, truth.ranks[index]))


def estimate(log: Log, index: int) -> None:
    """The graph estimate of 0.18.0 on; the V2 runner (0.29+) says nothing here at INFO."""
    truth, worker, rank = log.truth, log.cast.workers[index], log.truth.ranks[index]
    if not truth.estimates_graphs or truth.v2_runner:
        return
    log.info(worker, RUNNER, words.graph_profiling(truth))
    caps = rank.captures
    piecewise, full = truth.graph_sizes
    if piecewise:
        detail = words.graph_detail("PIECEWISE", caps.piecewise_first, piecewise, caps.piecewise_next)
        log.debug(worker, RUNNER, detail)
    if full:
        log.debug(worker, RUNNER, words.graph_detail("FULL", caps.full_first, full, caps.full_next))
    log.info(worker, RUNNER, words.graph_estimate(truth, rank))


def overrides(log: Log, dp: int) -> None:
    """One override line per worker, before the check from 0.20.1 on and while counting blocks before."""
    truth, core = log.truth, log.cast.engines[dp]
    if truth.num_blocks_override is None:
        return
    for index in truth.of_engine(dp):
        log.info(core, PLANNER, words.overriding(truth.own_blocks(index), truth.num_blocks_override))


def auto_fit(log: Log, dp: int) -> None:
    truth = log.truth
    if truth.auto_fit and engine_prints_local(truth, dp):
        limiting = min(truth.of_engine(dp), key=lambda index: truth.longest(truth.ranks[index]))
        if truth.max_model_len >= truth.full_model_len:
            limiting = truth.of_engine(dp)[0]
        memory = truth.check_memory(truth.ranks[limiting])
        log.info(log.cast.engines[dp], PLANNER, words.auto_fit(truth, memory))


def capacity(log: Log, dp: int) -> None:
    """Blocks, tokens and concurrency: per worker before the minimum up to 0.11.0, once afterwards."""
    truth, core = log.truth, log.cast.engines[dp]
    if not truth.since("0.11.1"):
        for index in truth.of_engine(dp):
            if truth.num_blocks_override is not None:
                log.info(core, PLANNER, words.overriding(truth.own_blocks(index), truth.num_blocks_override))
            own = truth.overridden(truth.own_blocks(index))
            _multiplied(log, dp)
            log.info(
                core, PLANNER, words.kv_size(truth.tokens(own)) if truth.since("0.8.0") else f"# GPU blocks: {own}"
            )
            log.info(core, PLANNER, words.concurrency(truth, truth.concurrency(own)))
        return
    if not truth.since("0.20.1"):
        overrides(log, dp)
    found = truth.capacity(dp)
    _report_once(log, dp, found.tokens, found.concurrency)


def _multiplied(log: Log, dp: int) -> None:
    truth = log.truth
    if truth.dcp > 1 and truth.between("0.10.2", "0.20.1"):
        log.info(log.cast.engines[dp], PLANNER, words.context_parallel(truth))


def _report_once(log: Log, dp: int, tokens: int, times: float) -> None:
    """0.11.1+ kv_cache_utils.py; the concurrency line of 0.11.x still comes once per worker."""
    truth, core = log.truth, log.cast.engines[dp]
    local = engine_prints_local(truth, dp)
    for index in truth.of_engine(dp):
        first = index == truth.of_engine(dp)[0]
        if first or not truth.since("0.20.1"):
            _multiplied(log, dp)
        if first and local:
            size = words.kv_size(tokens)
            merged = f"{size}, {words.concurrency(truth, times)}" if truth.since("0.28.0") else size
            log.info(core, PLANNER, merged)
        if (not truth.since("0.12.0")) or (first and local and not truth.since("0.28.0")):
            log.info(core, PLANNER, words.concurrency(truth, times))
