"""What each release does differently, as data: an era is one set of behaviours, and a release has exactly one.

Each behaviour changes at its own release; the table below is read off the released sources (vllm/worker/worker.py for V0,
vllm/v1/worker/gpu_worker.py and vllm/v1/core/kv_cache_utils.py for V1). A log whose release is open keeps every era that its
lines allow.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.releases import RELEASES, index

if TYPE_CHECKING:
    from reconstruct.releases import Span


class Era(NamedTuple):
    """The behaviours that decide how printed figures hang together."""

    engine: str
    """`V0` or `V1`."""
    budget: str
    """How R follows from T and u: `float` (floor of the product), `ceil`, or `none`: M is taken from T*u directly."""
    charge: str
    """What M subtracts from R: `terms` (W + N + P), `consumed` (C_total + H), `device` (all that is used on the card),
    `opaque` (a peak that no line splits up)."""
    estimate: str
    """The graph estimate: `none`, `off` (made, charged only if switched on) or `on` (charged unless switched off)."""
    peak_has_estimate: bool
    """Whether the usage line's peak activation contains the charged estimate."""
    tokens: str
    """The printed token count: `none`, `blocks` (x block size), `groups` (blocks // groups x block size) or `requests`
    (int of concurrency x max_model_len)."""
    tokens_per_worker: bool
    """Whether tokens and concurrency are each worker's own; before 0.8.2 all workers plan with the smallest memory."""
    concurrency: str
    """`length` (tokens / max_model_len) or `requests` (blocks / blocks of one request)."""
    checks_groups: bool
    """Whether the one-request check counts cache groups; before, it counts layers, each as it is before any merging."""
    null_block: bool
    """Whether the one-request check holds back one block."""
    reservation: bool
    """Whether a multimodal reservation may be taken from M before planning."""
    override_ignored: bool
    """Whether num_gpu_blocks_override is printed but not used (0.9.1 alone)."""
    checks_override: bool
    """Whether the checks for memory count the blocks of num_gpu_blocks_override, instead of the pool's (V0, 0.20.1+)."""
    storable_per_stage: bool
    """Whether the length check counts the blocks of one pipeline stage only (V0 0.8.0+)."""
    default_utilization: float
    usage_level: str
    """The level of the usage line: `none`, `DEBUG` or `INFO`."""
    total_level: str
    """The level at which some line prints T in a healthy start: `none`, `DEBUG` or `INFO`."""


# behaviour -> (first release, value), oldest first; a value holds until the next one's release.
_V1: dict[str, tuple[tuple[str, object], ...]] = {
    "budget": (("0.2.0", "none"), ("0.9.1", "float"), ("0.14.0", "ceil")),
    "charge": (("0.2.0", "device"), ("0.9.1", "terms"), ("0.27.0", "consumed")),
    "estimate": (("0.2.0", "none"), ("0.18.0", "off"), ("0.20.0", "on")),
    "peak_has_estimate": (("0.2.0", False), ("0.18.0", True), ("0.19.0", False), ("0.27.0", True)),
    "tokens": (("0.2.0", "none"), ("0.8.0", "blocks"), ("0.9.1", "groups"), ("0.20.1", "requests")),
    "tokens_per_worker": (("0.2.0", False), ("0.8.2", True), ("0.11.1", False)),
    "concurrency": (("0.2.0", "length"), ("0.9.1", "requests")),
    "checks_groups": (("0.2.0", False), ("0.14.0", True)),
    "null_block": (("0.2.0", False), ("0.29.0", True)),
    "reservation": (("0.2.0", False), ("0.25.0", True)),
    "override_ignored": (("0.2.0", False), ("0.9.1", True), ("0.9.2", False)),
    "checks_override": (("0.2.0", False), ("0.20.1", True)),
    "storable_per_stage": (("0.2.0", False),),
    "default_utilization": (("0.2.0", 0.9), ("0.20.0", 0.92)),
    "usage_level": (("0.2.0", "none"), ("0.10.2", "INFO"), ("0.11.0", "DEBUG"), ("0.26.0", "INFO")),
    "total_level": (("0.2.0", "none"), ("0.10.2", "INFO"), ("0.11.0", "DEBUG"), ("0.26.0", "INFO")),
}
_V0: dict[str, tuple[tuple[str, object], ...]] = {
    "budget": (("0.2.0", "float"),),
    "charge": (("0.2.0", "opaque"), ("0.6.5", "terms")),
    "estimate": (("0.2.0", "none"),),
    "peak_has_estimate": (("0.2.0", False),),
    "tokens": (("0.2.0", "none"),),
    "tokens_per_worker": (("0.2.0", False),),
    "concurrency": (("0.2.0", "length"),),
    "checks_groups": (("0.2.0", False),),
    "null_block": (("0.2.0", False),),
    "reservation": (("0.2.0", False),),
    "override_ignored": (("0.2.0", False),),
    "checks_override": (("0.2.0", True),),
    "storable_per_stage": (("0.2.0", False), ("0.8.0", True)),
    "default_utilization": (("0.2.0", 0.9),),
    "usage_level": (("0.2.0", "none"),),
    "total_level": (("0.2.0", "none"), ("0.6.4", "INFO")),
}

BUDGET_WORDS = {"none": "T x u, never formed", "float": "floor(T x u)", "ceil": "ceil(T x u)"}
TOKEN_WORDS = {
    "none": "no token count is printed",
    "blocks": "blocks x block size",
    "groups": "blocks // groups x block size",
    "requests": "int(concurrency x max_model_len)",
}
"""What reports call the values of `budget` and `tokens`."""

FIRST_V1, LAST_V0 = index("0.6.3"), index("0.10.2")
"""The first release that could run V1 (VLLM_USE_V1=1) and the last that could run V0."""


def _value(changes: tuple[tuple[str, object], ...], place: int) -> object:
    return [value for first, value in changes if index(first) <= place][-1]


@functools.cache
def era(place: int, engine: str) -> Era:
    """Give the era of the release at `place` in RELEASES for engine `V0` or `V1`."""
    table = _V0 if engine == "V0" else _V1
    return Era(engine, **{name: _value(changes, place) for name, changes in table.items()})  # type: ignore[arg-type]


def possible(span: Span, engines: tuple[str, ...] = ("V0", "V1")) -> list[tuple[Era, Span]]:
    """Give the distinct eras of the releases in `span`, oldest first, each with the releases that share it."""
    found: dict[Era, list[int]] = {}
    for place in range(span.low, span.high + 1):
        for engine in engines:
            if (engine == "V0" and place > LAST_V0) or (engine == "V1" and place < FIRST_V1):
                continue
            found.setdefault(era(place, engine), []).append(place)
    from reconstruct.releases import Span as Releases

    return [(e, Releases(places[0], places[-1])) for e, places in found.items()]


def describe(span: Span) -> str:
    """Give a span in words: `0.14.0 to 0.17.1`."""
    low, high = RELEASES[span.low], RELEASES[span.high]
    return low if low == high else f"{low} to {high}"
