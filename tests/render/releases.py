"""Comparison of release numbers: what a version says and computes depends on when each behaviour began."""

from __future__ import annotations

from functools import lru_cache

from packaging.version import Version

parsed = lru_cache(maxsize=None)(Version)

KNOWN = (
    *("0.2.7", "0.3.3", "0.4.3", "0.5.0", "0.5.5", "0.6.0", "0.6.3", "0.6.4", "0.6.5", "0.6.6.post1", "0.7.3"),
    *("0.8.0", "0.8.4", "0.8.5", "0.9.0.1", "0.9.1", "0.9.2", "0.10.0", "0.10.1.1", "0.10.2", "0.11.0", "0.11.1"),
    *("0.11.2", "0.12.0", "0.13.0", "0.14.1", "0.15.1", "0.16.0", "0.17.1", "0.18.1", "0.19.1", "0.20.2", "0.21.0"),
    *("0.22.1", "0.23.0", "0.24.0", "0.25.1", "0.26.0", "0.27.1", "0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0"),
    "0.33.0",
)
"""Releases whose wording and arithmetic were read from their own sources."""

BETWEEN = (
    *("0.7.1", "0.7.2", "0.8.1", "0.8.2", "0.8.3", "0.9.0", "0.10.1", "0.14.0", "0.15.0", "0.17.0", "0.18.0", "0.19.0"),
    *("0.20.0", "0.20.1", "0.22.0", "0.25.0", "0.27.0"),
)
"""Releases between them: on which side of a change each lies was looked up, its other wording is a neighbour's."""

V0_LAST = "0.10.2"
V1_FIRST = "0.7.3"


def since(version: str, first: str) -> bool:
    """Whether `version` is `first` or later."""
    return parsed(version) >= parsed(first)


def between(version: str, first: str, before: str) -> bool:
    """Whether `version` lies in `[first, before)`."""
    return parsed(first) <= parsed(version) < parsed(before)
