"""`probe`: from a model and its launch flags to measured ledgers, each start-up in processes of its own.

Knows neither torch nor vLLM: both run in children, and what they journal is read here.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from kvforensics.errors import UsageFault
from kvforensics.probe_cache import cache_plans, kv_plan
from kvforensics.probe_flags import NO_FLAGS, Flags, llm_arguments, torch_options
from kvforensics.probe_ledger import Run, startup_of
from kvforensics.probe_left import Asked, read_asked, records_left, write_asked
from kvforensics.probe_model import config_of, model_for_vllm
from live_probe.cards import UnknownCardError, parse_card
from live_probe.cards_here import EngineHere, NoEngineError, engine_here
from live_probe.child_process import BY_USER, ENGINE_DIED, EngineRun, interrupted, records_of
from live_probe.driver import DriverRefusesError, cuda_device_count
from live_probe.eras import NEWEST, UnsupportedVersionError, era_of
from live_probe.launch import LaunchError, resolve
from live_probe.measurement import INTERRUPTED
from live_probe.shape import UnsupportedModelError, decoder_shape
from live_probe.torch_start import TorchStart, probe_torch
from live_probe.vllm_engine import probe_engine
from parsers.tuples import NamedTuple
from reconstruct.planner.errors import BadSetting, Unsupported, WouldNotStart

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from live_probe.cards_here import CardHere
    from live_probe.launch import LaunchSettings
    from live_probe.measurement import ProbeRecord
    from live_probe.shape import JsonObject
    from parsers.launch_settings import Value
    from reconstruct.ledger import StartUpLedger
    from reconstruct.planner.result import KvPlan

DEFAULT_CARD = "sim:H100-80GB"
"""What is simulated where there is no card and none was named."""
_DEVICE = re.compile(r"sim:.*|cuda(:\d{1,3})?", re.ASCII)
LIMIT = 1 << 30
"""Bytes that others may hold together on a card that is not to be shared."""
SETTLED = (
    "dtype", "max_model_len", "max_num_seqs", "max_num_batched_tokens", "block_size", "gpu_memory_utilization",
)  # fmt: skip
"""The settings whose defaults depend on release and card."""
START = "start"
"""The step of a failure that came before the first one."""


class Request(NamedTuple):
    """What was asked.

    engine: `vllm`, `torch`, or None for whichever is there. device: `cuda`, `cuda:1`, `sim:NAME`, or None. python: the
    interpreter that has the engine. keep: a folder for journals and engine logs.
    """

    model: str
    flags: Flags = NO_FLAGS
    engine: str | None = None
    device: str | None = None
    engine_version: str | None = None
    repeat: int = 1
    share: bool = False
    timeout_s: float = 1800
    load_format: str = "dummy"
    python: str = sys.executable
    keep: Path | None = None
    card: str = DEFAULT_CARD
    """What is simulated where there is no card and no `device`."""


class ProbeReport(NamedTuple):
    """What one request gave. `startups` are its runs in order, `records` each rank's own account of them."""

    model: str
    engine: str
    startups: tuple[StartUpLedger, ...]
    records: tuple[ProbeRecord, ...]
    notes: tuple[str, ...]
    interrupted: bool = False

    @property
    def died(self) -> bool:
        """Whether a start did not reach its end."""
        return any(record.failure is not None for record in self.records)

    @property
    def simulated(self) -> bool:
        """Whether the figures come from a model of a card."""
        return any(record.environment.simulated for record in self.records)


class _Choice(NamedTuple):
    """The engine and the device that a request comes to, and why where it does not say."""

    engine: str
    device: str
    notes: tuple[str, ...]


class _Prepared(NamedTuple):
    """A start that is ready to go: called with where to run and the number of the run."""

    start: Callable[[EngineRun, int], tuple[ProbeRecord, ...]]
    engine: str
    version: str
    settled: Callable[[ProbeRecord], Mapping[str, Value]]
    """What defaults came to, as far as it is known, on the card that a record names."""
    planned: Callable[[ProbeRecord], KvPlan | None]
    """What a record's pool holds, where the engine itself does not state it."""
    here: EngineHere | None
    notes: tuple[str, ...]


def probe(
    request: Request, watch: Callable[[Path, int], AbstractContextManager[object]] = lambda _f, _r: nullcontext()
) -> ProbeReport:
    """Go through the start-up as often as asked, and give what was measured, however it ended.

    `watch` is entered around each run with the folder of its journals and its number. On Ctrl-C the report holds what was
    measured so far; no process is left. Raises UsageFault for what makes no sense or is refused on a shared card,
    Unsupported for a model or release that the engine cannot stand for.
    """
    folder = _folder(request.keep)
    try:
        asked = _asked(request, _choose(request))
        model = model_for_vllm(request.model, folder) if asked.here is not None else request.model
        ready = _prepared(asked, model)
        write_asked(folder, asked)
        records, stopped = _run_all(request, ready, folder, watch)
    except BaseException:
        _discard(folder, request.keep)
        raise
    notes = list(ready.notes)
    if ready.engine == "vllm" or any(r.failure is not None and r.failure.kind == ENGINE_DIED for r in records):
        notes += _kept(records, folder, request.keep)
    else:
        _discard(folder, request.keep)
    return ProbeReport(request.model, ready.engine, _startups(records, ready, asked), records, tuple(notes), stopped)


def left(folder: Path) -> ProbeReport:
    """Give the report of a probe from its folder: a probe that was killed itself wrote none.

    Needs neither torch nor vLLM nor the card. Raises as `probe` does, and UsageFault for a folder that is no probe's.
    """
    asked = read_asked(folder)
    ready = _prepared(asked, asked.model)
    found = records_left(folder, asked.engine)
    _check_refused(found)
    records = tuple(_known(record, ready.here) for record in found)
    notes = (*ready.notes, f"read from the journals in {folder}")
    return ProbeReport(asked.model, ready.engine, _startups(records, ready, asked), records, notes)


def _run_all(
    request: Request, ready: _Prepared, folder: Path, watch: Callable[[Path, int], AbstractContextManager[object]]
) -> tuple[tuple[ProbeRecord, ...], bool]:
    records: list[ProbeRecord] = []
    for run in range(request.repeat):
        place = folder / f"run-{run}"
        try:
            with watch(place, run):
                found = ready.start(EngineRun(place, request.python, request.timeout_s), run)
        except KeyboardInterrupt:
            found = records_of(place, ready.engine, run, BY_USER)
            return (*records, *(_known(interrupted(r), ready.here) for r in found)), True
        _check_refused(found)
        records += [_known(record, ready.here) for record in found]
    return tuple(records), False


def _startups(records: tuple[ProbeRecord, ...], ready: _Prepared, asked: Asked) -> tuple[StartUpLedger, ...]:
    found = []
    for run in sorted({record.run for record in records}):
        of_run = tuple(r for r in records if r.run == run)
        versions = [r.environment.version for r in of_run if r.environment.version not in ("", "unknown")]
        version = versions[0] if versions else ready.version
        settled, plan = ready.settled(of_run[0]), ready.planned(of_run[0])
        found.append(startup_of(of_run, Run(ready.engine, version, asked.flags, settled, asked.model, plan)))
    return tuple(found)


def _choose(request: Request) -> _Choice:
    if request.engine not in (None, "vllm", "torch"):
        raise UsageFault(f"--engine {request.engine}: choose vllm or torch")
    if request.device is not None and not _DEVICE.fullmatch(request.device):
        raise UsageFault(f"--device {request.device}: write cuda, cuda:1 or a simulated card such as {DEFAULT_CARD}")
    simulates = request.device is not None and request.device.startswith("sim:")
    if request.engine == "vllm":
        if simulates:
            raise UsageFault(f"--device {request.device}: only the torch engine runs on a simulated card")
        return _Choice("vllm", request.device or "cuda", ())
    if simulates or (request.device or "cuda") != "cuda":
        return _Choice("torch", str(request.device), ())
    if request.device is None and not _has_card():
        note = f"no CUDA device here: {request.card.removeprefix('sim:')} was simulated; --device names another card"
        return _Choice("torch", request.card, (note,))
    wants_vllm = request.engine is None and _has_vllm(request.python)
    return _Choice("vllm" if wants_vllm else "torch", "cuda", ())


def _has_card() -> bool:
    try:
        return cuda_device_count() > 0
    except DriverRefusesError as error:
        raise UsageFault(f"{error}; --device {DEFAULT_CARD} simulates a card") from None


def _has_vllm(python: str) -> bool:
    if python == sys.executable:
        return find_spec("vllm") is not None
    return _here(python, 0).has_vllm


def _here(python: str, cards: int) -> EngineHere:
    try:
        return engine_here(python, cards)
    except NoEngineError as error:
        raise UsageFault(f"{error}; --python names another interpreter") from None


def _asked(request: Request, choice: _Choice) -> Asked:
    """Gather what a start rests on, here and now. Raises UsageFault where the engine is not here or the card is taken."""
    asked = Asked(
        request.model, request.flags, choice.engine, choice.device, choice.notes, request.engine_version,
        request.load_format, request.share,
    )  # fmt: skip
    if choice.engine == "torch":
        if request.python == sys.executable and find_spec("torch") is None:
            raise UsageFault("the torch engine needs torch: pip install 'kvforensics[probe]'")
        return asked._replace(config=config_of(request.model))
    here = _here(request.python, request.flags.world)
    if choice.device not in ("cuda", "cuda:0"):
        raise UsageFault(f"--device {choice.device}: vLLM takes the first cards it sees; set CUDA_VISIBLE_DEVICES")
    _check_sharing(here.cards, share=request.share)
    if not here.has_vllm:
        raise UsageFault(
            f"{request.python} has no vLLM: --python names the interpreter that has it, or use --engine torch"
        )
    return asked._replace(here=here)


def _prepared(asked: Asked, model: str) -> _Prepared:
    """Settle everything that needs no engine, so that what is refused is refused at once. model: as vLLM is to find it."""
    if asked.here is not None:
        return _prepare_vllm(asked, asked.here, model)
    return _prepare_torch(asked, asked.config or {})


def _prepare_torch(asked: Asked, config: JsonObject) -> _Prepared:
    version = asked.engine_version or ".".join(str(part) for part in NEWEST)
    options = torch_options(asked.flags)
    try:
        shape = decoder_shape(config, options.tensor_parallel_size)
        card = parse_card(asked.device).card if asked.device.startswith("sim:") else None
        plans = cache_plans(config, version, options)
        resolve(options, version, shape, plans, "", card.total if card else 0)
    except (UnsupportedModelError, UnsupportedVersionError) as refusal:
        raise Unsupported(str(refusal)) from None
    except (LaunchError, UnknownCardError, BadSetting, WouldNotStart) as fault:
        raise UsageFault(str(fault)) from None
    engines = asked.flags.data_parallel_size or 1
    if shape.experts is not None and engines > 1:
        raise Unsupported("data-parallel engines share the experts among them: use --engine vllm")

    def launched(record: ProbeRecord) -> LaunchSettings:
        total = next((m.value for m in record.measurements if m.name == "total_memory"), card.total if card else 0)
        return resolve(options, version, shape, plans, record.environment.device, total)

    def settled(record: ProbeRecord) -> Mapping[str, Value]:
        found = launched(record)
        return {name: getattr(found, name) for name in SETTLED}

    def planned(record: ProbeRecord) -> KvPlan | None:
        figures = {m.name: m.value for m in record.measurements}
        if "num_blocks" not in figures:
            return None
        tokens = launched(record).max_num_batched_tokens
        return kv_plan(config, version, options, tokens, figures["kv_pool_memory"])

    start = TorchStart(config, asked.device, version, options, plans, asked.share, LIMIT)
    alike = f"one of {engines} data-parallel engines was gone through: each has cards and a pool of its own"
    notes = (*asked.notes, *((alike,) if engines > 1 else ()))
    return _Prepared(lambda e, n: probe_torch(start, e, n), "torch", version, settled, planned, None, notes)


def _prepare_vllm(asked: Asked, here: EngineHere, model: str) -> _Prepared:
    arguments = llm_arguments(asked.flags, model, asked.load_format)
    notes = list(asked.notes)
    if asked.load_format == "dummy":
        notes.append("weights were made up, not loaded (load_format dummy): they take the same memory")
    if asked.engine_version and asked.engine_version != here.vllm:
        notes.append(f"asked for {asked.engine_version}, but {here.vllm} is installed and was started")
    settled: dict[str, Value] = {}
    try:
        settled["gpu_memory_utilization"] = era_of(here.vllm).gpu_memory_utilization
        if here.cards:
            settled |= _server_defaults(asked.flags, here.vllm, here.cards[0], arguments)
    except UnsupportedVersionError:
        if here.vllm != "unknown":
            raise Unsupported(f"vLLM {here.vllm} starts another way: the probe knows 0.8.0 and later") from None
    return _Prepared(
        lambda e, n: probe_engine(arguments, e, n), "vllm", here.vllm, lambda _record: settled, lambda _record: None,
        here, tuple(notes),
    )  # fmt: skip


def _server_defaults(flags: Flags, version: str, card: CardHere, arguments: dict[str, Value]) -> dict[str, Value]:
    """Give the batch that `vllm serve` would take: the LLM class, which starts here, has larger defaults of its own."""
    from live_probe.launch import batch_defaults

    tokens, seqs = batch_defaults(version, card.name, card.total)
    tokens = flags.max_num_batched_tokens or tokens
    found: dict[str, Value] = {
        "max_num_batched_tokens": tokens,
        "max_num_seqs": flags.max_num_seqs or min(seqs, tokens),
    }
    arguments |= found
    return found


def _check_sharing(cards: tuple[CardHere, ...], *, share: bool) -> None:
    for card in cards:
        if card.others > LIMIT and not share:
            raise UsageFault(
                f"other processes hold {card.others} B of {card.name}, more than {LIMIT} B: "
                "free the card, or pass --share to probe it beside them"
            )


def _check_refused(records: tuple[ProbeRecord, ...]) -> None:
    """Turn what the child refused before its first step into an error; the kinds are those of its REFUSALS."""
    for record in records:
        failure = record.failure
        if failure is not None and failure.step == START and failure.kind not in (ENGINE_DIED, INTERRUPTED):
            if failure.kind.startswith("Unsupported"):
                raise Unsupported(failure.message)
            raise UsageFault(failure.message)


def _known(record: ProbeRecord, here: EngineHere | None) -> ProbeRecord:
    """Add what was read of the card before the engine started; its workers do not read it themselves."""
    place = int(record.rank.rpartition(" ")[2]) if record.rank.rpartition(" ")[2].isdigit() else 0
    if here is None or place >= len(here.cards):
        return record
    card = here.cards[place]
    told = record.environment._replace(driver=card.driver, mig=card.mig, uma=card.uma)
    return record._replace(environment=told, processes=card.processes)


def _folder(keep: Path | None) -> Path:
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="kvforensics-probe-"))
    try:
        keep.mkdir(parents=True, exist_ok=True)
        if any(keep.iterdir()):
            raise UsageFault(f"--keep {keep}: the folder is not empty; name a new one")
    except OSError as error:
        raise UsageFault(f"--keep {keep}: {error.strerror or error}") from None
    if not os.access(keep, os.W_OK):
        raise UsageFault(f"--keep {keep}: the folder cannot be written")
    return keep


def _kept(records: tuple[ProbeRecord, ...], folder: Path, keep: Path | None) -> tuple[str, ...]:
    """Keep the engine's own log where a start died, and say where it is."""
    if keep is None and not any(record.failure is not None for record in records):
        _discard(folder, None)
        return ()
    return (f"journals and the engine's own log: {folder}",)


def _discard(folder: Path, keep: Path | None) -> None:
    if keep is None:
        shutil.rmtree(folder, ignore_errors=True)
