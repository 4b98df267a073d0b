"""What differs between a start-up in a log and a measured one, and which terms each difference moves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvforensics.report.sizes import gib, ratio
from parsers.tuples import NamedTuple
from reconstruct.predict.sizes import model_id
from reconstruct.quantities import ENGINE, RANK

if TYPE_CHECKING:
    from kvforensics.checking import Reading
    from reconstruct.interval import Interval
    from reconstruct.ledger import StartUpLedger

CARD_SPREAD = 1 << 28
"""Bytes by which one card's total may differ from driver to driver (up to 0.2 GiB in public logs; reconstruct.cards)."""

ALL = frozenset(kind.name for kind in (*RANK, *ENGINE))
_CONSTANTS = frozenset(("total_memory", "initial_free_memory", "requested_memory", "gpu_memory_utilization"))
"""What a start has before it loads the model."""
_POOL = frozenset(
    ("kv_pool_memory", "num_blocks", "kv_cache_bytes", "unused_kv_memory", "kv_cache_tokens", "max_concurrency")
)
_GRAPHS = frozenset(("cudagraph_memory_estimate", "cudagraph_memory_applied", "cudagraph_memory_actual"))
_BELOW = frozenset(("available_kv_cache_memory", *_POOL))
_PEAK = frozenset(("torch_peak_increase", "transient_peak_headroom", "non_kv_cache_memory"))
_LENGTH = frozenset(("max_model_len", "max_concurrency", "kv_cache_tokens"))
_REST = frozenset(("non_torch_increase", "total_consumed"))

MOVES: dict[str, frozenset[str]] = {
    "card": ALL - {"model_memory", "bytes_per_block", "block_size", "max_model_len", "gpu_memory_utilization"},
    "version": ALL - {"total_memory", "max_model_len", "gpu_memory_utilization"},
    "model": ALL - _CONSTANTS,
    "adapters": ALL - _CONSTANTS - {"max_model_len"},
    "draft": ALL - _CONSTANTS,
    "pooling": ALL - _CONSTANTS - {"max_model_len"},
    "offloading": ALL - _CONSTANTS - {"max_model_len"},
    "external weights": _REST
    | _BELOW
    | {"requested_memory", "initial_free_memory", "model_memory", "non_kv_cache_memory"},
    "dtype": ALL - _CONSTANTS - {"max_model_len"},
    "quantization": ALL - _CONSTANTS - {"max_model_len"},
    "tensor_parallel_size": ALL - _CONSTANTS - {"max_model_len"} | {"initial_free_memory"},
    "pipeline_parallel_size": ALL - _CONSTANTS - {"max_model_len"} | {"initial_free_memory"},
    "data_parallel_size": _REST | _BELOW | {"initial_free_memory", "non_kv_cache_memory"},
    "decode_context_parallel_size": _REST | _PEAK | _GRAPHS | _BELOW,
    "kv_cache_dtype": _GRAPHS | _BELOW | _PEAK | {"bytes_per_block", "block_size"},
    "block_size": _GRAPHS | _BELOW | {"bytes_per_block", "block_size"},
    "max_model_len": _LENGTH | _PEAK | _GRAPHS | _REST | _BELOW,
    "max_num_seqs": _PEAK | _GRAPHS | _REST | _BELOW,
    "max_num_batched_tokens": _PEAK | _GRAPHS | _REST | _BELOW,
    "enforce_eager": _PEAK | _GRAPHS | _REST | _BELOW,
    "gpu_memory_utilization": _BELOW | {"requested_memory", "gpu_memory_utilization"},
    "kv_cache_memory_bytes": _BELOW,
    "num_gpu_blocks_override": _POOL,
}
"""The terms that a difference in each condition moves."""

_DEFAULTS = {
    "tensor_parallel_size": 1, "pipeline_parallel_size": 1, "data_parallel_size": 1, "decode_context_parallel_size": 1,
    "enforce_eager": False, "kv_cache_dtype": "auto", "quantization": "none", "kv_cache_memory_bytes": 0,
    "num_gpu_blocks_override": 0,
}  # fmt: skip
"""Defaults of every release; other flags' defaults depend on release and card."""
_OPEN = ("dtype", "block_size", "max_model_len", "max_num_seqs", "max_num_batched_tokens")
"""Flags whose absence says nothing."""


class Difference(NamedTuple):
    """A condition under which both starts were not alike, in words, and the terms it moves."""

    condition: str
    text: str
    moves: frozenset[str]


def differences(startup: StartUpLedger, reading: Reading) -> tuple[Difference, ...]:
    """Give every condition that is known on both sides and not the same."""
    found = {"card": _other_card(startup, reading), "version": _other_version(startup, reading)}
    found["model"] = _other_model(startup, reading)
    found |= _not_repeated(startup)
    found["external weights"] = _held_outside(startup)
    found["gpu_memory_utilization"] = _other_share(startup, reading)
    for name in (*_DEFAULTS, *_OPEN):
        logged, probed = _setting(startup, name), _setting(reading.startups[0], name)
        if logged is not None and probed is not None and logged != probed:
            found[name] = f"{name} is {logged} in the log, {probed} in the probe"
    return tuple(Difference(name, text, MOVES[name]) for name, text in found.items() if text)


def unstated(startup: StartUpLedger, reading: Reading) -> tuple[str, ...]:
    """Give the conditions that one side does not state; they are taken to be alike."""
    probed = reading.startups[0]
    found = [name for name in _OPEN if (_setting(startup, name) is None) is not (_setting(probed, name) is None)]
    if _total(startup) is None:
        found.insert(0, "card")
    if not _same_name(_model(startup), _model(probed)):
        found.insert(0, "model")
    return tuple(found)


def _setting(startup: StartUpLedger, name: str) -> str | None:
    """Give a setting as text that compares, its default where every release has the same; None where unknown."""
    value = startup.settings.get(name)
    if name == "max_model_len" or (name == "block_size" and value is None):
        stated = [e.capacity.interval(name) for e in startup.engines if e.capacity.get(name)]
        points = {i.low for i in stated if i.is_point}
        return str(points.pop()) if len(points) == 1 else None
    if value is None or value == "auto":
        return str(_DEFAULTS[name]) if name in _DEFAULTS else None
    if name == "kv_cache_dtype" and str(value) == startup.settings.text("dtype"):
        return "auto"
    return str(value).removeprefix("torch.")


def _total(startup: StartUpLedger) -> Interval | None:
    """Give the first rank's T where it is bounded on both sides."""
    intervals = [r.account.interval("total_memory") for e in startup.engines for r in e.ranks if r.name != "drafter"]
    return next((i for i in intervals if i.low is not None and i.high is not None), None)


def card_named(startup: StartUpLedger) -> str:
    """Give the card that a log names in the file name of a kernel's settings; empty where none does."""
    paths = [s.text("path") or "" for s in startup.log.of("device_name")]
    names = [p.partition("device_name=")[2].split(",")[0].removesuffix(".json").replace("_", " ") for p in paths]
    return next((name for name in names if name), "")


def _other_card(startup: StartUpLedger, reading: Reading) -> str:
    logged, probed = _total(startup), _total(reading.startups[0])
    if logged is None or probed is None or logged.low is None or logged.high is None or probed.low is None:
        return ""
    name = card_named(startup)
    if name and _named_apart(name, reading.card):
        return f"another card: {name} in the log, {reading.card} in the probe"
    if logged.low - CARD_SPREAD <= probed.low <= logged.high + CARD_SPREAD:
        return ""
    return f"another card: of {gib(logged)} GiB in the log, of {gib(probed)} GiB in the probe"


def _named_apart(logged: str, probed: str) -> bool:
    """Whether both names are in the table of cards and are not the same card there."""
    from reconstruct.cards import UnknownCard, find

    try:
        return find(logged) != find(probed.removesuffix(" (simulated)"))
    except UnknownCard:
        return False


def _other_version(startup: StartUpLedger, reading: Reading) -> str:
    if startup.eras and all(era.engine == "V0" for era in startup.eras):
        return "another engine: V0 in the log, V1 in the probe"
    probed = reading.startups[0].version
    if startup.version.stated is not None and startup.version.stated == probed.stated:
        return ""
    if startup.version.span.meet(probed.span) is not None:
        return ""
    logged = startup.version
    span = logged.low if logged.low == logged.high else f"{logged.low} to {logged.high}"
    return f"another release: {span} in the log, {probed.stated or probed.low} in the probe"


def _other_model(startup: StartUpLedger, reading: Reading) -> str:
    logged, probed = _model(startup), _model(reading.startups[0])
    if not logged or not probed or logged == probed or not (_is_id(logged) and _is_id(probed)):
        return ""
    return f"another model: {logged} in the log, {probed} in the probe"


def _model(startup: StartUpLedger) -> str:
    """Give the model's name, by its id where it was loaded from the hub's cache; empty where none is told."""
    return model_id(startup.settings.text("model") or "")


def _is_id(model: str) -> bool:
    """Whether a name is a hub's id: owner and name, no path."""
    return model.count("/") == 1 and not model.startswith((".", "/", "~")) and not model.endswith(".json")


def _same_name(logged: str, probed: str) -> bool:
    """Whether two names surely speak of one model, or of two: a path says so by its last part alone."""
    if not logged or not probed:
        return False
    if _is_id(logged) and _is_id(probed):
        return True  # compared by _other_model
    leaves = [model.rstrip("/").rpartition("/")[2].casefold() for model in (logged, probed)]
    return leaves[0] == leaves[1]


def _other_share(startup: StartUpLedger, reading: Reading) -> str:
    shares = [
        next((e.capacity.interval("gpu_memory_utilization") for e in s.engines), None)
        for s in (startup, reading.startups[0])
    ]
    logged, probed = shares
    if logged is None or probed is None or logged.meet(probed) is not None:
        return ""
    return f"gpu_memory_utilization is {ratio(logged)} in the log, {ratio(probed)} in the probe"


def _not_repeated(startup: StartUpLedger) -> dict[str, str]:
    """Give what a log's start had that no probe repeats: each holds tensors of its own, or lacks some."""
    from reconstruct.predict.observed import adapts, pools

    settings = startup.settings
    drafts = settings.get("speculative_config") not in (None, "None") or settings.get("speculative_model") is not None
    had = {
        "adapters": ("serves LoRA adapters", adapts(startup)),
        "draft": ("drafts tokens", drafts),
        "pooling": ("pools, without output layer and sampling", pools(startup)),
        "offloading": ("keeps weights in host memory", settings.get("cpu_offload_gb") not in (None, 0, 0.0)),
    }
    return {name: f"the log's engine {does}, the probe's does not" for name, (does, there) in had.items() if there}


def _held_outside(startup: StartUpLedger) -> str:
    """Say that a log's weights, or some of them, are held by another process (0.32.0 on)."""
    external = [r.account.interval("external_weight_memory").low for e in startup.engines for r in e.ranks]
    return (
        "the log's weights are held by another process" if any(low is not None and low > 0 for low in external) else ""
    )
