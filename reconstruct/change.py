"""What a change of settings would do to a start-up that has a ledger: the one place that predicts effects.

`effect` takes a rebuilt start-up and a change and gives today beside then, term by term. The equations are the ledger's
own; what a change moves is either exact arithmetic (dM = T x du), a model's band, untouched, or not known and left open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.interval import ANYTHING, Interval

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconstruct.ledger import EngineLedger, StartUpLedger

EXACT, MODELLED, UNCHANGED, UNKNOWN = "exact", "modelled", "unchanged", "unknown"
KINDS = (UNCHANGED, EXACT, MODELLED, UNKNOWN)
"""How sure a term's change is, surest first; a sum is as sure as its least sure part."""


class Change(NamedTuple):
    """Settings to change, under vLLM's option names; None leaves a setting as the start-up had it."""

    gpu_memory_utilization: float | None = None
    kv_cache_dtype: str | None = None
    quantization: str | None = None
    """Weights quantised as they are loaded, such as fp8."""
    max_model_len: int | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    tensor_parallel_size: int | None = None
    pipeline_parallel_size: int | None = None
    enforce_eager: bool | None = None
    estimate_cudagraphs: bool | None = None
    """VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS: whether the graph estimate is charged."""
    engine_version: str | None = None
    block_size: int | None = None
    kv_cache_memory: int | None = None
    """--kv-cache-memory-bytes: the pool itself, so that nothing is profiled for it."""

    @property
    def named(self) -> dict[str, object]:
        """What is changed, by name."""
        return {name: value for name, value in zip(self._fields, self, strict=True) if value is not None}

    @property
    def flags(self) -> tuple[str, ...]:
        """What to paste: environment variables as NAME=VALUE, the release as a requirement, options as options."""
        found = []
        for name, value in self.named.items():
            if name == "estimate_cudagraphs":
                found.append(f"VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS={int(bool(value))}")
            elif name == "engine_version":
                found.append(f"vllm=={value}")
            elif name == "enforce_eager":
                found.append("--enforce-eager" if value else "--no-enforce-eager")
            elif name == "kv_cache_memory":
                found.append(f"--kv-cache-memory-bytes {value}")
            elif isinstance(value, float):
                found.append(f"--gpu-memory-utilization {value:g}")
            else:
                found.append(f"--{name.replace('_', '-')} {value}")
        return tuple(found)


class TermChange(NamedTuple):
    """One quantity today and then. `change` may be known where neither end is: T x du needs no budget."""

    name: str
    before: Interval
    after: Interval
    change: Interval
    kind: str
    why: str = ""


class Check(NamedTuple):
    """One check on the way to "ready": its name, `passes`, `may fail`, `fails` or `unknown`, and one sentence."""

    name: str
    verdict: str
    detail: str


class Effect(NamedTuple):
    """What a change does to one engine of a start-up.

    rank: whose terms are shown. outcome: "starts", "may not start", "does not start", or "unknown" where a check
    lacks a figure. notes: what comes with the change unasked. left_out: terms that stay unknown, and why.
    """

    change: Change
    dp: int
    rank: str
    version_before: str
    version_after: str
    terms: tuple[TermChange, ...]
    checks: tuple[Check, ...]
    outcome: str
    notes: tuple[str, ...]
    left_out: tuple[str, ...]

    def term(self, name: str) -> TermChange | None:
        """Give one quantity's row."""
        return next((t for t in self.terms if t.name == name), None)

    def after(self, name: str) -> Interval:
        """Give what a quantity would be; unbounded where that is not known."""
        found = self.term(name)
        return found.after if found else ANYTHING


class UnknownRelease(ValueError):
    """A release that is no version number; the message shows one."""


class NothingToChange(ValueError):
    """The start-up has no engine whose ledger could change; the message says why."""


def budget_change(total: Interval, before: Interval, after: Interval) -> Interval:
    """Give dR = T x du, a byte either side for the rounding of both budgets.

    Nothing else in M's equation depends on u, in any release that takes its budget as T x u. Source: V0
    worker/worker.py determine_num_available_blocks; v1/worker/gpu_worker.py, from 0.14.0 v1/worker/utils.py
    request_memory.
    """
    if before == after and before.is_point:
        return Interval(-1, 1)
    step = after.minus(before)
    low = _product(total, step.low, least=True)
    high = _product(total, step.high, least=False)
    return Interval(None if low is None else low - 1, None if high is None else high + 1)


def _product(total: Interval, step: float | None, *, least: bool) -> int | None:
    import math

    if step is None:
        return None
    if step == 0:
        return 0
    end = (total.low if step > 0 else total.high) if least else (total.high if step > 0 else total.low)
    if end is None:
        return None
    return math.floor(end * step) if least else math.ceil(end * step)


def tightest(engines: tuple[EngineLedger, ...]) -> EngineLedger:
    """Give the engine with the fewest blocks, else the smallest pool, else the first. Raises NothingToChange."""
    if not engines:
        raise NothingToChange("the start-up has no engine: it ended before any worker spoke")
    for name in ("num_blocks", "kv_pool_memory"):
        bounded = [(e.capacity.interval(name).high, i) for i, e in enumerate(engines)]
        known = [(high, i) for high, i in bounded if high is not None]
        if known:
            return engines[min(known)[1]]
    return engines[0]


def effect(
    startup: StartUpLedger, change: Change, config: Mapping[str, object] | None = None, card: str | None = None
) -> Effect:
    """Predict what `change` does to the start-up's tightest engine.

    The ranks of one pipeline stage are taken to change alike: most lines are one rank's (0.11.1 on), and what the others
    estimate or measure is not in the log.

    config: the model's config.json; without it the catalogue's, where it names the model. card: a card's name, where
    the log tells none; it decides the modelled terms alone.

    Raises NothingToChange, and UnknownRelease for a release that is no version number.
    """
    from reconstruct.whatif import predicted_effect

    return predicted_effect(startup, change, config, card)
