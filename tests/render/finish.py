"""Graph capture, the usage account and the ready lines, or the traceback."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.render import words
from tests.render.parts import Failure
from tests.render.refusals import Refusal, first_that_cannot, refusal
from tests.render.speakers import Process, engine_prints_local, locally_first

if TYPE_CHECKING:
    from tests.render.log import Log
    from tests.render.truth import Truth

WORKER = "v1/worker/gpu_worker.py"
WHILE_STARTING = (
    Failure.FREE_BELOW_DESIRED,
    Failure.EXTERNAL_ABOVE_DESIRED,
    Failure.OOM_LOADING,
    Failure.UNRELATED,
)
ADVICE = (
    "This may lead to unexpected consequences if the model is not static. To run the model in eager mode, set "
    "'enforce_eager=True' or use '--enforce-eager' in the CLI."
)
SPARE = (
    "If out-of-memory error occurs during cudagraph capture, consider decreasing `gpu_memory_utilization` or switching "
    "to eager mode. You can also reduce the `max_num_seqs` as needed to decrease memory usage."
)


def v0_capture_notice(truth: Truth) -> list[str]:
    """What V0 says before it captures; 1~3 GiB is advice, not a measurement."""
    if truth.since("0.6.5"):
        return [f"Capturing cudagraphs for decoding. {ADVICE} {SPARE}"]
    if truth.since("0.6.4"):
        return [f"Capturing cudagraphs for decoding. {ADVICE}", SPARE]
    more = " You can also reduce the `max_num_seqs` as needed to decrease memory usage." if truth.since("0.3.0") else ""
    hint = (
        "CUDA graphs can take additional 1~3 GiB memory per GPU. If you are running out of memory, consider decreasing "
        f"`gpu_memory_utilization` or enforcing eager mode.{more}"
    )
    return [f"Capturing the model for CUDA graphs. {ADVICE}", hint]


def v0_notices(log: Log) -> None:
    """Every rank announces its capture."""
    if not log.truth.enforce_eager:
        for worker in log.cast.workers:
            for line in v0_capture_notice(log.truth):
                log.info(worker, "worker/model_runner.py", line)


def capture(log: Log, index: int) -> None:
    """Graphs are measured; V1 prints once per node from 0.11.1, its pool line and the usage account on every rank."""
    truth, worker, rank = log.truth, log.cast.workers[index], log.truth.ranks[index]
    runner = "worker/model_runner.py" if truth.v0 else "v1/worker/gpu_model_runner.py"
    once = not truth.v0 and truth.since("0.11.1") and not truth.v2_runner
    if not truth.enforce_eager:
        if locally_first(truth, index):
            log.plain(worker, "Capturing CUDA graph shapes: 100%|██████████| 51/51 [00:03<00:00, 39.58it/s]")
        log.wait(3)
        if locally_first(truth, index) or not once:
            log.info(worker, runner, words.graphs_captured(truth, rank, 3.0 + index))
    if truth.graph_estimate(rank) > 0:
        log.info(worker, WORKER, words.graph_pool(truth, rank))
    if not truth.v0 and truth.since("0.10.2") and not truth.profiles_nothing:
        level = log.info if truth.version == "0.10.2" or truth.since("0.26.0") else log.debug
        level(worker, WORKER, words.usage(truth, rank))


def ready(log: Log) -> None:
    """The engine is up, the server answers."""
    truth, api = log.truth, log.cast.api
    for dp, core in enumerate(log.cast.engines):
        unit = "s (compilation: 5.20 s)" if truth.since("0.20.0") else "seconds"
        sentence = f"init engine (profile, create kv cache, warmup model) took 17.92 {unit}"
        if truth.since("0.6.4") and (not truth.since("0.11.1") or engine_prints_local(truth, dp)):
            log.info(core, "engine/llm_engine.py" if truth.v0 else "v1/engine/core.py", sentence)
    if not truth.v0 and truth.since("0.9.0"):
        total = sum(truth.capacity(dp).num_blocks for dp in range(truth.dp))
        level = log.debug if truth.since("0.11.1") else log.info
        for dp in range(truth.dp if truth.since("0.9.2") else 1):
            level(api, "v1/metrics/loggers.py", words.blocks_after_init(truth, dp, total))
    log.wait(1)
    if truth.since("0.6.0"):
        log.info(api, "entrypoints/launcher.py", "Available routes are:")
        log.info(api, "entrypoints/launcher.py", "Route: /health, Methods: GET")
    for line in ("Started server process [1]", "Waiting for application startup.", "Application startup complete."):
        log.plain(api, f"INFO:     {line}")
    log.plain(api, "INFO:     Uvicorn running on http://0.0.0.0:8000 (Press CTRL+C to quit)")


# -- endings ----------------------------------------------------------------------------------------------------------


def traceback(found: Refusal, callers: tuple[tuple[str, str], ...]) -> list[str]:
    """A traceback of our own making in Python's layout."""
    lines = ["Traceback (most recent call last):"]
    for file, function in (*callers, (found.file, found.place)):
        lines.append(f'  File "/usr/local/lib/python3.12/dist-packages/vllm/{file}", line 42, in {function}')
    return [*lines, f"{found.kind}: {found.text}"]


def failing_ranks(truth: Truth) -> list[int]:
    """The workers whose own check or allocation fails; of the planner's errors the one whose engine refuses."""
    if truth.failure is Failure.REQUEST_TOO_LONG:
        poor = first_that_cannot(truth)
        return [next(i for i, rank in enumerate(truth.ranks) if rank is poor)]
    if truth.failure is Failure.NO_KV_MEMORY:
        return [next((i for i, rank in enumerate(truth.ranks) if truth.check_memory(rank) <= 0), 0)]
    if truth.failure in (Failure.FREE_BELOW_DESIRED, Failure.EXTERNAL_ABOVE_DESIRED):
        short = (i for i, rank in enumerate(truth.ranks) if rank.initial_free_memory < truth.requested_float(rank))
        return list(short) or [0]
    return [len(truth.ranks) - 1]


def fail(log: Log) -> None:
    """Workers say what hit them, the engine repeats it, the server gives up."""
    truth = log.truth
    planned = truth.failure in (Failure.NO_KV_MEMORY, Failure.REQUEST_TOO_LONG)
    if truth.v0:
        _fail_v0(log)
        return
    ranks = failing_ranks(truth)
    core_dp = truth.scope(ranks[0]).dp
    core = log.cast.engines[core_dp]
    found = refusal(truth, ranks[0])
    if not planned and log.cast.workers[ranks[0]] is not core:
        early = truth.failure in (Failure.FREE_BELOW_DESIRED, Failure.EXTERNAL_ABOVE_DESIRED)
        for index in ranks:
            speaker = (log.cast.newcomers if early else log.cast.workers)[index]
            _worker_fails(log, speaker, refusal(truth, index))
        found = _wrapped(truth, found)
    _engine_fails(log, core, found)


def _worker_fails(log: Log, worker: Process, found: Refusal) -> None:
    truth = log.truth
    starting = truth.since("0.8.5") and truth.failure in WHILE_STARTING
    said = "failed to start." if starting else "hit an exception." if truth.since("0.8.5") else "hit an exception: %s"
    lines = [f"WorkerProc {said}", *traceback(found, (("v1/executor/multiproc_executor.py", "worker_main"),))]
    log.say(worker, "ERROR", "v1/executor/multiproc_executor.py", "\n".join(lines))


def _wrapped(truth: Truth, found: Refusal) -> Refusal:
    """How the engine learns of a worker's end."""
    if truth.failure in WHILE_STARTING:
        text = (
            "WorkerProc initialization failed due to an exception in a background process. "
            "See stack trace for root cause."
        )
        return Refusal("Exception", text, "wait_for_ready", "v1/executor/multiproc_executor.py")
    text = f"Worker failed with error '{found.text}', please check the stack trace above for the root cause"
    return Refusal("RuntimeError", text, "get_response", "v1/executor/multiproc_executor.py")


def _engine_fails(log: Log, core: Process, found: Refusal) -> None:
    truth = log.truth
    callers = (("v1/engine/core.py", "run_engine_core"), ("v1/engine/core.py", "_initialize_kv_caches"))
    account = traceback(found, callers)
    if not truth.since("0.8.5"):
        log.say(
            core, "ERROR", "v1/engine/core.py", "\n".join(["EngineCore hit an exception: " + account[0], *account[1:]])
        )
        fatal = "Got fatal signal from worker processes, shutting down. See stack trace above for root cause issue."
        log.say(log.cast.api, "CRITICAL", "v1/engine/core_client.py", fatal)
        log.plain(log.cast.api, "Killed")
        return
    log.say(core, "ERROR", "v1/engine/core.py", "\n".join(["EngineCore failed to start.", *account]))
    for line in (f"Process {core.name or 'EngineCore_0'}:", *account):
        log.plain(core, line)
    cores = " Failed core proc(s): {}" if truth.since("0.9.0") else ""
    end = Refusal(
        "RuntimeError",
        f"Engine core initialization failed. See root cause above.{cores}",
        "wait_for_engine_startup",
        "v1/engine/utils.py",
    )
    for line in traceback(end, (("entrypoints/openai/api_server.py", "run_server"),)):
        log.plain(log.cast.api, line)


def _fail_v0(log: Log) -> None:
    """V0 lets the exception go through; a worker that is not the driver logs it first."""
    truth = log.truth
    planned = truth.failure in (Failure.NO_KV_MEMORY, Failure.REQUEST_TOO_LONG)
    index = 0 if planned else failing_ranks(truth)[-1]
    found = refusal(truth, index)
    worker = log.cast.workers[index]
    callers = (("engine/llm_engine.py", "__init__"), ("worker/worker.py", "determine_num_available_blocks"))
    if worker.name == "VllmWorkerProcess":
        said = f"Exception in worker {worker.name} while processing method determine_num_available_blocks."
        log.say(worker, "ERROR", "executor/multiproc_worker_utils.py", "\n".join([said, *traceback(found, callers)]))
    for line in traceback(found, callers):
        log.plain(log.cast.api, line)
