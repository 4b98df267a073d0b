"""Changes of the planner, and how each is seen: in its release and not in the one before.

The figures were measured by running the releases' own planners on these layers, as far as they take them: a kind that
a release lacks is this planner's own refusal.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from reconstruct.planner import Launch, LayerSpec, Unsupported, WouldNotStart, plan_from_layers
from tests.reconstruct.planner.layer_models import GIB

STATE = {"shapes": ((16, 1024),), "dtypes": ("bfloat16",), "block": 16}
"""A small state of 32 KiB."""


class Change(NamedTuple):
    """A change: the releases around it, layers that show it, and a figure of the plan before and after."""

    what: str
    before: str
    first: str
    layers: list[LayerSpec]
    figure: str
    old: Any
    new: Any
    settings: dict[str, Any] = {}  # noqa: RUF012 - never changed
    stages: int = 1
    memory: int = GIB


def lengths(plan):
    return [len(group.layers) for group in plan.groups]


def kinds(plan):
    return [group.kind for group in plan.groups]


FIGURES = {"lengths": lengths, "kinds": kinds}


def figure_of(change, version):
    """The figure, or the kind of refusal."""
    settings = {"max_model_len": 1024, **change.settings}
    size = len(change.layers) // change.stages
    stages = [change.layers[i : i + size] for i in range(0, len(change.layers), size)]
    try:
        plan = plan_from_layers(
            stages, Launch(version, pipeline_parallel_size=change.stages, **settings), change.memory
        )
    except Unsupported:
        return Unsupported
    except WouldNotStart:
        return WouldNotStart
    return FIGURES[change.figure](plan) if change.figure in FIGURES else getattr(plan, change.figure)


def each(changes):
    """Run a test for each change, under its name."""
    return pytest.mark.parametrize("change", changes, ids=[change.what for change in changes])
