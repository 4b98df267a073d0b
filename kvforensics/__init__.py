"""Rebuilds the KV-cache memory ledger behind a vLLM start-up log."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvforensics.explanation import NothingToExplain, Report, explain

__all__ = ["NothingToExplain", "Report", "explain"]
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Load the public names on first use: the command line starts without what it does not need."""
    if name in __all__:
        from kvforensics import explanation as module

        return getattr(module, name)
    raise AttributeError(name)
