"""A start-up whose pool is known to the byte in every release."""

from __future__ import annotations

from typing import Any

from tests.render.numbers_as_printed import GIB, MIB
from tests.render.parts import Rank
from tests.render.truth import Truth

POOL = 37_123_456_789
"""The pool of the planner runs below; the same layers were given to every release's own planner."""


def rank(pool: int = POOL, block: int = 2 * MIB, **terms: Any) -> Rank:
    """A rank whose M is exactly `pool` at u = 0.5 in every release: W, P and N are 1 GiB each."""
    total = 2 * (pool + 3 * GIB)
    numbers: dict[str, Any] = {
        "total_memory": total,
        "initial_free_memory": total,
        "model_memory": GIB,
        "torch_peak_increase": GIB,
        "non_torch_increase": GIB,
        "bytes_per_block": block,
        "total_consumed": 2 * GIB,
        "transient_peak_headroom": GIB,
    }
    return Rank(**(numbers | terms))


def planned(version: str, block: int = 32 * 65536, **options: Any) -> Truth:
    """A start-up on that pool; graphs stay out of it."""
    one = rank(block=block)
    return Truth(version, (one,), 0.5, enforce_eager=True, engine=options.pop("engine", "V1"), **options)
