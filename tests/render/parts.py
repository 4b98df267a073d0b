"""The pieces of a Truth."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, NamedTuple


class Failure(StrEnum):
    """Where and why a start-up ends before it is ready."""

    NONE = "none"
    FREE_BELOW_DESIRED = "free-below-desired"
    EXTERNAL_ABOVE_DESIRED = "external-above-desired"
    OOM_LOADING = "oom-loading"
    OOM_PROFILING = "oom-profiling"
    NO_KV_MEMORY = "no-kv-memory"
    REQUEST_TOO_LONG = "request-too-long"
    OOM_KV_CACHE = "oom-kv-cache"
    OOM_CAPTURE = "oom-capture"
    OOM_SAMPLER = "oom-sampler"
    UNRELATED = "unrelated"
    CUT = "cut"


INJECTABLE = (
    Failure.NONE,
    Failure.OOM_LOADING,
    Failure.OOM_PROFILING,
    Failure.OOM_KV_CACHE,
    Failure.OOM_CAPTURE,
    Failure.OOM_SAMPLER,
    Failure.UNRELATED,
    Failure.CUT,
)
"""Ends that the arithmetic does not decide; the others follow from the numbers."""


class Stage(NamedTuple):
    """Which steps a start-up got through."""

    device: bool
    load: bool
    profile: bool
    plan: bool
    capture: bool


class Scope(NamedTuple):
    """Whose figure it is: a rank, or with `pp` and `tp` None the engine `dp` as a whole."""

    dp: int
    pp: int | None = None
    tp: int | None = None


class Group(NamedTuple):
    """A KV-cache group: layers that share one block table."""

    kind: Literal["full", "sliding", "mamba"]
    block_size: int
    window: int = 0


class Captures(NamedTuple):
    """Bytes that the first and second PIECEWISE and FULL captures took, 0 without graphs of that kind."""

    piecewise_first: int = 0
    piecewise_next: int = 0
    full_first: int = 0
    full_next: int = 0


NO_CAPTURES = Captures()


@dataclass(frozen=True, slots=True)
class Rank:
    """One worker's memory in bytes; `total_consumed` and `transient_peak_headroom` count from 0.27.0 on."""

    total_memory: int
    initial_free_memory: int
    model_memory: int
    torch_peak_increase: int
    non_torch_increase: int
    bytes_per_block: int
    total_consumed: int = 0
    transient_peak_headroom: int = 0
    reserved_slack: int = 0
    captures: Captures = NO_CAPTURES
    cudagraph_actual: int = 0
    external_weight_memory: int = 0


class Capacity(NamedTuple):
    """What the planner of one engine gave."""

    num_blocks: int
    binding: int
    pool: int
    bytes_per_block: int
    tokens: int
    concurrency: float
