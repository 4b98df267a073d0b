"""From parsed figures and model geometry to the memory ledger; plans the KV cache as vLLM does.

Importing this package loads nothing: its public names are looked up on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reconstruct.planner import KvPlan, Launch, LayerSpec, Unsupported, WouldNotStart, plan_from_layers

__all__ = ["KvPlan", "Launch", "LayerSpec", "Unsupported", "WouldNotStart", "plan_from_layers", "plan_kv_cache"]

_HOMES = dict.fromkeys(__all__, "reconstruct.planner") | {"plan_kv_cache": "reconstruct.planner.config"}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
