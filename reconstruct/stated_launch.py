"""The launch that a log states, in the planner's words; or why too little of it is known to plan."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from parsers.template import whole_number
from parsers.tuples import NamedTuple
from reconstruct.planner.config_sources import UnreadableConfig, find_config
from reconstruct.planner.errors import Unsupported
from reconstruct.planner.launch import Launch, Speculation

if TYPE_CHECKING:
    from parsers.launch_settings import Settings
    from parsers.startups import StartUpLog

UNPLANNED = (
    "hf_overrides", "kv_cache_dtype_skip_layers", "mamba_block_size", "mamba_cache_dtype", "mamba_ssm_cache_dtype",
    "model_impl", "prefill_context_parallel_size",
)  # fmt: skip
"""Arguments that change the cache and that a Launch has no word for."""
NEUTRAL = frozenset(("", "None", "{}", "auto", "1"))
"""Their values that change nothing."""
CARDS = ("H100", "A100", "B200", "RTX PRO 6000")
"""One card of each compute capability that the planner tells apart; all are asked where the log names none."""
MOST_RANKS = 1 << 14
"""More ranks than any launch has; what states more is a damaged line."""
FEWEST_BATCHED, MOST_BATCHED = 1, 1 << 24
"""Ends between which max_num_batched_tokens lies where the log does not state it."""

_ARGUMENT = r"(?<![\w.]){name}['\"]?(?:=|: ?)(?P<value>\{{[^}}]*\}}|'[^']*'|\"[^\"]*\"|[^\s,)}}\]]+)"
_FIELD = r"(?<!\w){name}=(?:'([^']*)'|\"([^\"]*)\"|([^\s,)]+))"


class StatedLaunch(NamedTuple):
    """What of a launch the log states; the release is the caller's, and so is the choice between what is left open."""

    launch: Launch
    """Without its release: `engine_version` is empty."""
    cards: tuple[str, ...]
    """The card, or one of each kind that it may be."""
    batched_tokens: tuple[int, ...]
    """max_num_batched_tokens, or the ends between which it lies."""
    length: int | None
    """The length that capacity lines speak of, after any auto-fit; None where there is none."""


def stated_launch(log: StartUpLog, settings: Settings, card: str | None, *, fetch: bool) -> StatedLaunch:
    """Read a launch off a log.

    `card` is the user's word, if any. Raises Unsupported, naming what the log leaves open or what has no rule.
    """
    if not settings.values.keys() & {"tensor_parallel_size"} and not settings.lists_changes:
        raise Unsupported("the log states neither tensor_parallel_size nor the arguments that were changed")
    if not (settings.lists_changes or settings.lists_all):
        raise Unsupported("the log lists no arguments: nothing tells whether a block size was asked for")
    _refuse_unplanned(log)
    batched = settings.number("max_num_batched_tokens")
    launch = Launch(
        engine_version="",
        tensor_parallel_size=_size(settings, "tensor_parallel_size"),
        pipeline_parallel_size=_size(settings, "pipeline_parallel_size"),
        decode_context_parallel_size=_size(settings, "decode_context_parallel_size"),
        dtype=settings.text("dtype") or "auto",
        kv_cache_dtype=_cache_dtype(log, settings),
        block_size=settings.number("block_size"),
        max_model_len=_length(settings),
        disable_hybrid_kv_cache_manager=_without_manager(log, settings),
        enable_prefix_caching=_flag(settings, "enable_prefix_caching"),
        mamba_cache_mode=_argument(log, "mamba_cache_mode"),
        speculative_config=_speculation(log, settings, fetch=fetch),
    )
    cards = _cards(log, settings, card)
    ends = (batched,) if batched else (FEWEST_BATCHED, MOST_BATCHED)
    return StatedLaunch(launch, cards, ends, _capacity_length(log))


def _size(settings: Settings, name: str) -> int:
    """Give a parallel size. Raises Unsupported for one that no engine runs with."""
    size = settings.number(name) or 1
    if not 0 < size <= MOST_RANKS:
        raise Unsupported(f"{name} is {size}, which no engine runs with")
    return size


def _refuse_unplanned(log: StartUpLog) -> None:
    for name in UNPLANNED:
        value = _argument(log, name)
        if value is not None and value not in NEUTRAL:
            raise Unsupported(f"{name} is set to {value[:60]}, and what it does to the cache is not known here")


def _argument(log: StartUpLog, name: str) -> str | None:
    """Give an argument's text where a line lists it as set."""
    for statement in log.of("arguments", "changed_arguments"):
        text = statement.text("arguments") or ""
        match = re.search(_ARGUMENT.format(name=name), text) if name in text else None
        if match:
            value = match["value"].strip("'\"")
            return None if value == "None" else value
    return None


def _length(settings: Settings) -> int | None:
    """Give the length asked for; None asks for the model's own."""
    return _possible(settings.number("max_model_len"))


def _possible(length: int | None) -> int | None:
    """Give a length that a request can have; 0 and -1 stand for one that is left to the engine, or for a damaged line."""
    return length if length is not None and length > 0 else None


def _capacity_length(log: StartUpLog) -> int | None:
    said = [s.text("max_model_len") for s in log.of("tokens", "concurrency", "auto_fit")]
    lengths = {whole_number(text) for text in said if text}
    return _possible(lengths.pop()) if len(lengths) == 1 else None


def _cache_dtype(log: StartUpLog, settings: Settings) -> str:
    """Give the cache's dtype: as asked, or where that is `auto`, as the engine says it stores."""
    asked = settings.text("kv_cache_dtype") or "auto"
    told = [text for s in log.of("kv_cache_dtype_used") if (text := s.text("kv_cache_dtype_used"))]
    return told[0] if asked == "auto" and told else asked


def _without_manager(log: StartUpLog, settings: Settings) -> bool:
    return bool(log.of("hybrid_manager_disabled")) or settings.get("disable_hybrid_kv_cache_manager") is True


def _flag(settings: Settings, name: str) -> bool | None:
    value = settings.get(name)
    return value if isinstance(value, bool) else None


def _cards(log: StartUpLog, settings: Settings, card: str | None) -> tuple[str, ...]:
    """Name the card, by the user's word or by the file name of a kernel's settings; else one of each kind."""
    device = (settings.text("device") or "cuda").partition(":")[0]
    if device == "cpu":
        return ("CPU",)
    if device != "cuda":
        raise Unsupported(f"the cache of device {device!r} is not known here")
    named = [s.text("path") or "" for s in log.of("device_name")]
    names = [p.partition("device_name=")[2].split(",")[0].removesuffix(".json").replace("_", " ") for p in named]
    name = card or next((n for n in names if n), "")
    if name.upper().startswith(("AMD", "MI", "INTEL")):
        raise Unsupported(f"the cache of {name} is not known here")
    from reconstruct.planner.config_backends import capability

    try:
        capability(name)
    except Unsupported:
        return CARDS
    return (name,)


def _speculation(log: StartUpLog, settings: Settings, *, fetch: bool) -> Speculation | None:
    """Read the draft off the configuration line. Raises Unsupported for one that is only half stated."""
    stated = settings.values.get("speculative_config")
    if stated is None:
        if _argument(log, "speculative_config") or _argument(log, "speculative_model"):
            raise Unsupported("a draft was asked for, and no configuration line says what came of it")
        return None
    if stated.value is None:
        return None
    text = str(stated.value)
    method, model = _field(text, "method"), _field(text, "model") or _field(text, "draft_model")
    tokens = _field(text, "num_spec_tokens")
    if method is None and model == "[ngram]":
        method = "ngram"
    if method is None or tokens is None or not tokens.isdigit():
        raise Unsupported(f"the draft is not stated whole: {text[:80]}")
    config = None
    if method in {"eagle", "eagle3"} and model:
        try:
            found = find_config(model, fetch=fetch)
        except UnreadableConfig as error:
            raise Unsupported(f"the draft's config: {error}") from None
        config = found.config if found else None
    return Speculation(method, int(tokens), config, model)


def _field(text: str, name: str) -> str | None:
    match = re.search(_FIELD.format(name=name), text)
    return next((group for group in match.groups() if group is not None), None) if match else None
