"""Who prints, and the prefix that shows it (vllm/logger.py, logging_utils, executor sources of each release)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tests.render.truth import Truth

RESET = "\x1b[0;0m"


class Process(NamedTuple):
    """One process: the name it prints, its pid, and for a Ray actor where it runs."""

    name: str | None
    pid: int
    host: str | None = None
    """Ray's address of another node; with `ray` and None it is the driver's node."""
    ray: bool = False


class Cast(NamedTuple):
    """Every process of a start-up; `engines` by dp, `workers` and `newcomers` by rank index."""

    api: Process
    engines: tuple[Process, ...]
    workers: tuple[Process, ...]
    newcomers: tuple[Process, ...]
    """The workers under the name they carry before their groups exist."""


def cast(truth: Truth) -> Cast:
    """Name every process as that release does."""
    base = 40000 + truth.start % 9000
    if truth.v0:
        main = Process(None, base)
        workers = tuple(_v0_worker(truth, index, base) for index in range(len(truth.ranks)))
        return Cast(main, (main,), workers, workers)
    api = Process("APIServer" if truth.since("0.10.1") else None, base)
    engines = tuple(Process(_engine_name(truth, dp), base + 100 + dp) for dp in range(truth.dp))
    workers = tuple(_worker(truth, index, base, engines) for index in range(len(truth.ranks)))
    newcomers = tuple(
        worker if worker in engines or worker.ray else worker._replace(name=_newcomer_name(truth, worker))
        for worker in workers
    )
    return Cast(api, engines, workers, newcomers)


def _v0_worker(truth: Truth, index: int, base: int) -> Process:
    """Rank 0 works in the main process; the others are mp workers from 0.4.3, Ray actors before or on request."""
    if index == 0:
        return Process(None, base)
    if truth.ray or not truth.since("0.4.3"):
        name = "RayWorkerWrapper" if truth.since("0.4.1") else "RayWorkerVllm"
        return Process(name, base + 500 + index, _host(truth, index), ray=True)
    return Process("VllmWorkerProcess", base + 500 + index)


def _engine_name(truth: Truth, dp: int) -> str | None:
    """Up to 0.10.0 only DP engines are decorated (v1/engine/core.py DPEngineCoreProc); 0.10.2-0.17 always say DPn."""
    if truth.since("0.18.0"):
        return f"EngineCore_DP{dp}" if truth.dp > 1 else "EngineCore"
    if truth.since("0.10.2"):
        return f"EngineCore_DP{dp}"
    named = truth.since("0.10.1") or (truth.dp > 1 and truth.since("0.8.4"))
    return f"EngineCore_{dp}" if named else None


def _worker(truth: Truth, index: int, base: int, engines: tuple[Process, ...]) -> Process:
    dp, pp, tp = truth.scope(index)
    if truth.ray:
        return Process("RayWorkerWrapper", base + 500 + index, _host(truth, index), ray=True)
    if truth.world == 1:
        return engines[dp]
    pid = base + 500 + index
    if not truth.since("0.10.1"):
        return Process(f"VllmWorker rank={index % truth.world}", pid)
    parts = [f"PP{pp}"] * (truth.pp > 1) + [f"TP{tp}"] * (truth.tp > 1)
    if not truth.since("0.10.2"):
        return Process(f"VllmWorker {'_'.join(parts)}", pid)
    if shows_dp(truth):
        parts.insert(0, f"DP{dp}")
    if truth.dcp > 1 and truth.since("0.11.1"):
        parts.append(f"DCP{index % truth.dcp}")
    return Process("_".join(["Worker", *parts]), pid)


def shows_dp(truth: Truth) -> bool:
    """Whether workers know their DP rank: dense engines are independent from 0.14.0 (v1/engine/core.py)."""
    return truth.dp > 1 and (truth.moe or not truth.since("0.14.0"))


def _newcomer_name(truth: Truth, worker: Process) -> str | None:
    """Before the groups exist: nothing from 0.10.2 to 0.16, `Worker` from 0.17.0."""
    if not truth.since("0.10.2"):
        return worker.name
    return "Worker" if truth.since("0.17.0") else None


def _host(truth: Truth, index: int) -> str | None:
    per_node = len(truth.ranks) // truth.nodes
    node = index // per_node
    return f"10.0.0.{node + 2}" if node else None


def prefix(truth: Truth, process: Process, record: bool) -> str:
    """What stands before a physical line of that process; from 0.31.0 only before records."""
    if process.ray:
        core = "" if truth.v0 or truth.since("0.31.0") else _driver(truth)
        place = f", ip={process.host}" if process.host else ""
        actor = f"({process.name} pid={process.pid}{place})"
        return core + (f"\x1b[36m{actor}\x1b[0m " if truth.colour else f"{actor} ")
    if process.name is None or (truth.since("0.31.0") and not record):
        return ""
    plain = f"({process.name} pid={process.pid}) "
    if not truth.colour or truth.since("0.31.0"):
        return plain
    shade = "\x1b[0;36m" if truth.since("0.12.0") else "\x1b[1;36m"
    return f"{shade}{plain[:-1]}{RESET} "


def _driver(truth: Truth) -> str:
    """Ray prints its actors' lines through the engine core, whose stdout adds its own name."""
    driver = cast(truth).engines[0]
    return prefix(truth, driver, record=False)


def locally_first(truth: Truth, index: int) -> bool:
    """Whether rank `index` prints a line of scope `local`.

    The world group's local rank decides, and from 0.11.1 the mp executor adds the DP rank's device offset to it, so
    only the first rank of each node does, not the first of each engine (v1/worker/gpu_worker.py init_device,
    distributed/parallel_state.py is_local_first_rank). Ray gives each engine its own local ranks.
    """
    within = index % truth.world if truth.ray else index
    per_node = max((truth.world if truth.ray else len(truth.ranks)) // truth.nodes, 1)
    return within % per_node == 0


def engine_prints_local(truth: Truth, dp: int) -> bool:
    """Whether an engine core prints a line of scope `local`: it does unless it hosts a worker that is not first."""
    hosts_worker = truth.world == 1 and not truth.ray
    return not (hosts_worker and truth.since("0.11.1")) or locally_first(truth, dp)
