"""`plan`: from a model's name or config and a launch to a predicted ledger, a verdict and what would make it start."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from kvforensics.errors import UsageFault
from parsers.tuples import NamedTuple
from reconstruct.planner.config_sources import UnreadableConfig, find_config
from reconstruct.planner.errors import BadSetting, Unsupported
from reconstruct.planner.launch import Launch
from reconstruct.predict.hardware import UnknownCard, hardware_of
from reconstruct.predict.ledger import predict
from reconstruct.predict.scenario import Fixed, Scenario
from reconstruct.predict.sizes import full_config, model_id
from reconstruct.releases import RELEASES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from reconstruct.interval import Interval
    from reconstruct.predict.changes import Change
    from reconstruct.predict.ledger import Prediction

LARGEST_SCAN = 64


class NoConfig(UsageFault):
    """No config is known for a model's name."""


class Request(NamedTuple):
    """What the command asks, under vLLM's option names; None means that the option was not given.

    cards: how many there are. compiles: whether the compile cache is empty. capture_size: --max-cudagraph-capture-size.
    offline: the LLM class starts the engine. other_use: bytes that other processes hold on each card. facts: terms that the
    user states.
    """

    model: str
    gpu: str
    config: Path | None = None
    engine_version: str = RELEASES[-1]
    cards: int | None = None
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    decode_context_parallel_size: int = 1
    expert_parallel: bool = False
    gpu_memory_utilization: float | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    block_size: int | None = None
    dtype: str = "auto"
    kv_cache_dtype: str = "auto"
    quantization: str | None = None
    enforce_eager: bool = False
    compiles: bool | None = None
    charge_graphs: bool | None = None
    capture_size: int | None = None
    cache_bytes: int | None = None
    lora: bool = False
    offline: bool = False
    pooling: bool = False
    total_memory: Interval | None = None
    other_use: int = 0
    facts: tuple[Fixed, ...] = ()


class Plan(NamedTuple):
    """The answer to one request; changes are empty where it starts anyway, the smallest first where it may not."""

    request: Request
    prediction: Prediction
    changes: tuple[Change, ...]


class ScanRow(NamedTuple):
    """One cell of a scan: the settings that vary, and the prediction, or why there is none."""

    settings: tuple[tuple[str, str], ...]
    prediction: Prediction | None
    refusal: str


def config_of(model: str, folder: Path | None = None) -> Mapping[str, object]:
    """Give the config of a model: a file or folder, the local Hugging Face cache, or the table of known sizes.

    `folder` is searched for org--name.json first. A name is never matched to a similar one; a path into the Hugging
    Face cache holds the name. Raises NoConfig, UsageFault for a file that is no config, and
    Unsupported where only a model's cache is known.
    """
    path = Path(model)
    try:
        if path.is_file() or (path / "config.json").is_file():
            found = find_config(model, path)
            if found is not None:
                return found.config
        name = model_id(model)
        stored = folder / f"{name.replace('/', '--')}.json" if folder is not None else None
        if stored is not None and stored.is_file():
            found = find_config(name, stored)
        else:
            found = None if full_config(name) is not None else find_config(name)
    except UnreadableConfig as fault:
        raise UsageFault(str(fault)) from None
    if found is not None and found.source == "catalogue":
        raise Unsupported(
            f"only the cache of {name} is known here, not its weights; pass --config with its config.json"
        )
    config = found.config if found is not None else full_config(name)
    if config is None:
        raise NoConfig(f"no config of {model} is known; pass --config with its config.json or the folder that holds it")
    return config


def scenario_of(request: Request) -> Scenario:
    """Give the scenario of a request. Raises UsageFault for a card that no table has, or for more ranks than cards."""
    try:
        hardware = hardware_of(request.gpu, request.total_memory)
    except UnknownCard as error:
        raise UsageFault(f"--gpu {request.gpu}: {error}") from None
    ranks = request.tensor_parallel_size * request.pipeline_parallel_size * request.data_parallel_size
    if request.cards is not None and ranks > request.cards:
        raise UsageFault(f"--count {request.cards}: tp x pp x dp asks for {ranks} cards")
    config = config_of(str(request.config)) if request.config is not None else config_of(request.model)
    launch = Launch(
        engine_version=request.engine_version,
        tensor_parallel_size=request.tensor_parallel_size,
        pipeline_parallel_size=request.pipeline_parallel_size,
        decode_context_parallel_size=request.decode_context_parallel_size,
        dtype=request.dtype,
        kv_cache_dtype=request.kv_cache_dtype,
        block_size=request.block_size,
        max_model_len=request.max_model_len,
        max_num_seqs=request.max_num_seqs,
        max_num_batched_tokens=request.max_num_batched_tokens or 8192,
        runner="pooling" if request.pooling else "auto",
        device=hardware.device,
    )
    return Scenario(
        config=config,
        launch=launch,
        hardware=hardware,
        gpu_memory_utilization=request.gpu_memory_utilization,
        quantization=request.quantization,
        data_parallel_size=request.data_parallel_size,
        expert_parallel=request.expert_parallel,
        enforce_eager=request.enforce_eager,
        compiles=request.compiles,
        batched_tokens_given=request.max_num_batched_tokens is not None,
        offline=request.offline,
        lora=request.lora,
        charge_graphs=request.charge_graphs,
        capture_size=request.capture_size,
        cache_bytes=request.cache_bytes,
        other_use=request.other_use,
        fixed=request.facts,
    )


def plan(request: Request) -> Plan:
    """Predict one start and look for the smallest change that makes it certain.

    Raises UsageFault for options that make no sense, Unsupported where model or release is not known.
    """
    from reconstruct.predict.changes import changes_of

    scenario = scenario_of(request)
    prediction = predict(scenario)
    found = () if prediction.outcome == "starts" else changes_of(scenario, prediction, request.cards)
    return Plan(request, prediction, found)


def scanned(request: Request, axes: Sequence[str]) -> list[ScanRow]:
    """Predict every combination of `name=value,value` axes. Raises UsageFault for an unknown name or a wrong value."""
    parsed = [_axis(axis) for axis in axes]
    size = 1
    for _, values in parsed:
        size *= len(values)
    if size > LARGEST_SCAN:
        raise UsageFault(f"--scan asks for {size} plans; {LARGEST_SCAN} at most")
    rows = []
    for chosen in product(*(values for _, values in parsed)):
        fields = {name: value for (name, _), (_, value) in zip(parsed, chosen, strict=True)}
        shown = tuple((_short(name), text) for (name, _), (text, _) in zip(parsed, chosen, strict=True))
        try:
            rows.append(ScanRow(shown, predict(scenario_of(request._replace(**fields))), ""))  # type: ignore[arg-type]  # _axis checked each value against its field
        except (Unsupported, BadSetting) as refusal:
            rows.append(ScanRow(shown, None, str(refusal)))
    return rows


_SHORT = {"tp": "tensor_parallel_size", "pp": "pipeline_parallel_size", "dp": "data_parallel_size",
          "dcp": "decode_context_parallel_size", "version": "engine_version", "quantisation": "quantization"}  # fmt: skip
_WHOLE = frozenset(
    "tensor_parallel_size pipeline_parallel_size data_parallel_size decode_context_parallel_size max_model_len "
    "max_num_seqs max_num_batched_tokens block_size capture_size".split()
)
_TEXT = frozenset("gpu engine_version dtype kv_cache_dtype quantization".split())
_FLAGS = frozenset("expert_parallel enforce_eager lora".split())


def _short(name: str) -> str:
    return next((short for short, full in _SHORT.items() if full == name), name.replace("_", "-"))


def _axis(text: str) -> tuple[str, list[tuple[str, object]]]:
    name, equals, listed = text.partition("=")
    field = _SHORT.get(name.strip(), name.strip().removeprefix("--").replace("-", "_"))
    known = _WHOLE | _TEXT | _FLAGS | {"gpu_memory_utilization"}
    if not equals or not listed or field not in known:
        names = ", ".join(sorted(_short(one) for one in known))
        raise UsageFault(f"--scan {text}: write name=value,value with one of {names}")
    return field, [(value, _value(field, value.strip(), text)) for value in listed.split(",")]


def _value(field: str, value: str, text: str) -> object:
    if field in _TEXT:
        return None if value in {"none", "None"} else value
    if field in _FLAGS:
        if value.casefold() in {"true", "false"}:
            return value.casefold() == "true"
        raise UsageFault(f"--scan {text}: '{value}' is neither true nor false")
    try:
        return float(value) if field == "gpu_memory_utilization" else int(value)
    except ValueError:
        raise UsageFault(f"--scan {text}: '{value}' is no number") from None
