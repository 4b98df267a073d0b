"""From a rebuilt start-up to the scenario that would have predicted it, and the figures to hold against it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.cards import UnknownCard
from reconstruct.ledger import is_measured
from reconstruct.planner.config import specs_as_started
from reconstruct.planner.errors import Unsupported, WouldNotStart
from reconstruct.planner.launch import Launch
from reconstruct.predict.hardware import hardware_by_total, hardware_of
from reconstruct.predict.scenario import Fixed, Scenario
from reconstruct.releases import RELEASES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parsers.launch_settings import Settings
    from reconstruct.interval import Interval
    from reconstruct.ledger import Account, StartUpLedger
    from reconstruct.predict.hardware import Hardware

TERMS = (
    "total_memory", "model_memory", "transient_peak_headroom", "non_torch_increase", "total_consumed",
    "cudagraph_memory_estimate",
    "cudagraph_memory_actual", "available_kv_cache_memory", "initial_free_memory",
)  # fmt: skip
CLOSE = 2
"""Releases that a log may leave open and still be compared as its oldest."""
ENGINE_TERMS = ("num_blocks", "kv_cache_tokens")


class UntoldCard(Unsupported):
    """Nothing in a log tells its card."""


class Observed(NamedTuple):
    """What a log states of one rank and its engine: each term's interval, by name."""

    rank: str
    stage: int
    terms: dict[str, Interval]


def scenario_of(
    startup: StartUpLedger, config: Mapping[str, object], card: str | None, release: str | None = None
) -> Scenario:
    """Give the launch that a log states, on a card that it names or that `card` names; `release` where the log leaves it open.

    The card's memory is the table's, as a plan before the start would have it; the log's own only where the table has
    none that fits. Raises Unsupported where the card or the release is not
    told, or where the settings are beyond the model.
    """
    settings = startup.settings
    speculation = settings.get("speculative_config")
    if speculation not in {None, "None"}:
        raise Unsupported("speculative decoding: the log does not hold the draft's config")
    launch = Launch(
        engine_version=release or RELEASES[startup.version.span.low],
        tensor_parallel_size=settings.number("tensor_parallel_size") or 1,
        pipeline_parallel_size=settings.number("pipeline_parallel_size") or 1,
        decode_context_parallel_size=settings.number("decode_context_parallel_size") or 1,
        dtype=_dtype(settings),
        kv_cache_dtype=settings.text("kv_cache_dtype") or "auto",
        block_size=settings.number("block_size"),
        max_model_len=settings.number("max_model_len"),
        max_num_seqs=settings.number("max_num_seqs"),
        max_num_batched_tokens=settings.number("max_num_batched_tokens") or 8192,
        num_gpu_blocks_override=settings.number("num_gpu_blocks_override"),
        disable_hybrid_kv_cache_manager=settings.get("disable_hybrid_kv_cache_manager") is True,
        use_v1=startup.eras[0].engine == "V1",
        runner="pooling" if pools(startup) else "auto",
    )
    hardware = _hardware(startup, card)
    utilization = startup.engines[0].capacity.interval("gpu_memory_utilization") if startup.engines else None
    exact = utilization.low if utilization is not None and utilization.is_point else None
    return Scenario(
        config=config,
        launch=launch._replace(device=hardware.device, allow_long_max_model_len=_is_long(config, launch)),
        hardware=hardware,
        gpu_memory_utilization=float(exact) if exact is not None else None,
        quantization=settings.text("quantization"),
        data_parallel_size=settings.number("data_parallel_size") or 1,
        expert_parallel=settings.get("enable_expert_parallel") is True,
        enforce_eager=settings.get("enforce_eager") is True,
        batched_tokens_given=settings.number("max_num_batched_tokens") is not None,
        lora=adapts(startup),
        charge_graphs=_charged(startup),
        runner=_runner(startup),
        compiles=startup.compiles,
        cache_bytes=settings.number("kv_cache_memory_bytes"),
        fixed=_facts(startup),
    )


def tells_settings(startup: StartUpLedger) -> bool:
    """Whether what the log does not state is sure to be the release's default, and the release is known closely."""
    settings, span = startup.settings, startup.version.span
    told = settings.lists_changes or settings.lists_all or settings.number("max_num_seqs") is not None
    return told and span.high - span.low <= CLOSE


def adapts(startup: StartUpLedger) -> bool:
    """Whether LoRA adapters are served beside the model."""
    return startup.settings.get("enable_lora") is True or bool(startup.log.of("adapters"))


def pools(startup: StartUpLedger) -> bool:
    """Whether an embedding or reward model runs: the configuration line then holds a pooler's own."""
    texts = [s.text("config") or "" for s in startup.log.of("engine_config", "engine_config_v0", "engine_config_v1")]
    return any("pooler_config=PoolerConfig(" in text for text in texts)


def _is_long(config: Mapping[str, object], launch: Launch) -> bool:
    """Whether the start was allowed a length beyond the model's own."""
    try:
        return specs_as_started(config, launch).launch.allow_long_max_model_len
    except (Unsupported, WouldNotStart):
        return False


def _dtype(settings: Settings) -> str:
    stated = settings.text("dtype") or "auto"
    return {"half": "float16", "float": "float32"}.get(stated, stated)


def _hardware(startup: StartUpLedger, card: str | None) -> Hardware:
    total = next(
        (
            interval
            for engine in startup.engines
            for rank in engine.ranks
            if (interval := rank.account.interval("total_memory")).width is not None
        ),
        None,
    )
    if card is not None:
        found = hardware_of(card)
        if total is None or found.total_memory.meet(total) is not None:
            return found
        return found._replace(total_memory=total)
    for path in (s.text("path") or "" for s in startup.log.of("device_name")):
        name = path.partition("device_name=")[2].split(",")[0].removesuffix(".json").replace("_", " ")
        try:
            found = hardware_of(name)
        except UnknownCard:
            continue
        narrowed = found.total_memory.meet(total) if total is not None else None
        return found._replace(total_memory=narrowed or total or found.total_memory)
    by_total = hardware_by_total(total) if total is not None else None
    if by_total is None:
        raise UntoldCard("the log names no card, and its total memory fits several: say which with --gpu")
    return by_total


def _charged(startup: StartUpLedger) -> bool | None:
    kinds = {s.kind for engine in startup.log.engines for rank in engine.ranks for s in rank.statements}
    return True if "graph_charged" in kinds else False if "graph_not_charged" in kinds else None


def _runner(startup: StartUpLedger) -> str | None:
    """Give the model runner, by the source file that its lines name: gpu_model_runner.py, or V2's gpu/model_runner.py."""
    if startup.eras[0].engine == "V0":
        return "V1"
    files = {s.record.file or "" for engine in startup.log.engines for rank in engine.ranks for s in rank.statements}
    if any(name.endswith("gpu_model_runner.py") for name in files):
        return "V1"
    return "V2" if any(name.endswith("model_runner.py") for name in files) else None


def _facts(startup: StartUpLedger) -> tuple[Fixed, ...]:
    """Give the budget, where the log prints it and no line states the utilisation behind it."""
    if startup.settings.get("gpu_memory_utilization") is not None or startup.settings.lists_changes:
        return ()
    for engine in startup.engines:
        for rank in engine.ranks:
            found = rank.account.get("requested_memory")
            if found is not None and found.interval.width is not None and found.origin == "printed":
                return (Fixed("requested_memory", found.interval, "printed"),)
    return ()


def observed(startup: StartUpLedger) -> tuple[Observed, ...]:
    """Give the measured terms of the first rank of every stage, with the engine's capacity under the first.

    A rank's M is no measurement where only the sign of it is known.
    """
    found = []
    seen: set[int] = set()
    for engine in startup.engines[:1]:
        for rank in engine.ranks:
            stage = rank.pp or 0
            if rank.name == "drafter" or stage in seen:
                continue
            seen.add(stage)
            terms = _bounded(rank.account, TERMS)
            if len(seen) == 1:
                terms |= _bounded(engine.capacity, ENGINE_TERMS)
            found.append(Observed(rank.name, stage, terms))
    return tuple(found)


def _bounded(account: Account, names: tuple[str, ...]) -> dict[str, Interval]:
    """Give the terms that are measured."""
    found = {}
    for name in names:
        if is_measured(account.interval(name)):
            found[name] = account.interval(name)
    return found
