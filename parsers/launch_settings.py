"""What a launch was asked for: the engine's configuration line and the arguments line, key by key. Nothing is evaluated."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

from parsers.template import whole_number
from parsers.tuples import NamedTuple

if TYPE_CHECKING:
    from parsers.rule import Statement
    from parsers.startups import StartUpLog

Value = str | int | float | bool


class Setting(NamedTuple):
    """One setting as the log states it."""

    value: Value | None
    """None where the log says `None`."""
    lines: tuple[int, ...]


class Settings(NamedTuple):
    """The settings of a start-up that its lines state."""

    values: dict[str, Setting]
    lists_changes: bool
    """Whether a line lists the arguments that differ from their defaults: then those it omits are defaults."""
    lists_all: bool
    """Whether a line lists every argument."""
    fits_length: bool = False
    """Whether the arguments leave the model's length to what fits (-1, from 0.14 also `auto`): the pool may shorten it."""

    def get(self, name: str) -> Value | None:
        """Give a setting's value, None where it is unset or not stated."""
        found = self.values.get(name)
        return found.value if found else None

    def text(self, name: str) -> str | None:
        """Give a setting as text."""
        value = self.get(name)
        return None if value is None else str(value)

    def number(self, name: str) -> int | None:
        """Give a whole-number setting; None where it is none."""
        value = self.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None


ENGINE_KEYS = (
    "model", "dtype", "max_seq_len", "load_format", "tensor_parallel_size", "pipeline_parallel_size",
    "data_parallel_size", "decode_context_parallel_size", "quantization", "enforce_eager", "kv_cache_dtype",
    "device_config", "speculative_config", "enable_prefix_caching",
)  # fmt: skip
"""Keys of the configuration line (str(VllmConfig) upstream) that decide memory."""

CALLED_HERE = {"max_seq_len": "max_model_len", "device_config": "device"}
"""Keys that go by another name here: the argument's."""

ARGUMENT_KEYS = (
    "model", "dtype", "max_model_len", "load_format", "tensor_parallel_size", "pipeline_parallel_size",
    "data_parallel_size", "decode_context_parallel_size", "quantization", "enforce_eager", "kv_cache_dtype",
    "gpu_memory_utilization", "block_size", "max_num_seqs", "max_num_batched_tokens", "kv_cache_memory_bytes",
    "num_gpu_blocks_override", "mm_ipc_gpu_memory_gb", "swap_space", "enable_expert_parallel", "cpu_offload_gb",
    "enable_sleep_mode", "disable_hybrid_kv_cache_manager", "speculative_model", "enable_lora",
)  # fmt: skip
"""Arguments that decide memory."""

BEYOND = 1e20
"""No memory setting comes near; what does is text."""

_VALUE = r"(?P<value>'[^']*'|\"[^\"]*\"|[A-Za-z]+\([^)]*\)|[^\s,(){}\[\]]+)"


@functools.cache
def _finder(keys: tuple[str, ...], style: str) -> re.Pattern[str]:
    names = "|".join(keys)
    key = f"'(?P<key>{names})': ?" if style == "dict" else rf"(?<![\w.'\"])(?P<key>{names})="
    return re.compile(key + _VALUE)


def _value(text: str) -> Value | None:
    if text[:1] in "'\"":
        return text[1:-1]
    if text in {"None", "True", "False"}:
        return {"None": None, "True": True, "False": False}[text]
    number = whole_number(text)
    if number is not None:
        return number
    try:
        real = float(text)
    except ValueError:
        return text.removeprefix("torch.").rstrip(">")
    return real if -BEYOND < real < BEYOND else text  # nan and inf are no settings either


def _settings(statement: Statement, hole: str, style: str, keys: tuple[str, ...]) -> dict[str, Setting]:
    """Give what a line says of `keys`; of a name that stands in it twice the first."""
    found: dict[str, Setting] = {}
    for match in _finder(keys, style).finditer(statement.text(hole) or ""):
        name = CALLED_HERE.get(match["key"], match["key"])
        found.setdefault(name, Setting(_value(match["value"]), statement.lines))
    return found


def read(startup: StartUpLog) -> Settings:
    """Collect the settings of one start-up; the engine's own configuration line outranks the arguments."""
    values: dict[str, Setting] = {}
    for statement in startup.of("arguments", "changed_arguments"):
        style = "dict" if statement.kind == "changed_arguments" else "pairs"
        values |= _settings(statement, "arguments", style, ARGUMENT_KEYS)
    fits_length = "max_model_len" in values and values["max_model_len"].value in {-1, "auto"}
    for statement in startup.of("engine_config", "engine_config_v0", "engine_config_v1"):
        values |= _settings(statement, "config", "pairs", ENGINE_KEYS)
    for kind in ("max_model_len", "max_num_batched_tokens", "max_num_seqs_default"):
        for statement in startup.of(kind)[:1]:  # a second one is a drafter's
            for printed in statement.fields:
                if printed.name == "max_model_len" and printed.name in values:
                    continue
                number = whole_number(printed.text)
                if number is not None:
                    values[printed.name] = Setting(number, statement.lines)
    changes = bool(startup.of("changed_arguments"))
    return Settings(values, changes, bool(startup.of("arguments")), fits_length)
