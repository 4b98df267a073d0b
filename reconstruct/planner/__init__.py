"""Plans the KV cache as a stated vLLM release does: layer specs, groups, blocks, tokens, concurrency.

Importing this package loads nothing: looking a model up in the catalogue must not load the planner.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reconstruct.planner.errors import BadSetting, Unsupported, WouldNotStart
    from reconstruct.planner.launch import Launch
    from reconstruct.planner.plan import plan_from_layers
    from reconstruct.planner.result import KvPlan
    from reconstruct.planner.spec import LayerSpec

__all__ = ["BadSetting", "KvPlan", "Launch", "LayerSpec", "Unsupported", "WouldNotStart", "plan_from_layers"]

_HOMES = {
    "BadSetting": "errors",
    "KvPlan": "result",
    "Launch": "launch",
    "LayerSpec": "spec",
    "Unsupported": "errors",
    "WouldNotStart": "errors",
    "plan_from_layers": "plan",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
