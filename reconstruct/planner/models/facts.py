"""Facts about releases and configuration classes, read once from `facts.json`.

`architectures`: the first release (of those compared) whose registry lists an architecture, and the last one where it
was dropped again. `model_types`: what a configuration class fills in for a missing key, under which other name it
stores a field, and the type of its text part. Taken from vLLM's model_executor/models/registry.py of 31 releases and
from the configuration classes of transformers 5.19.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TypedDict


class TypeFacts(TypedDict, total=False):
    """One configuration class: values of missing keys, stored names by common name, the text part's type."""

    defaults: dict[str, object]
    aliases: dict[str, str]
    text: str


class Facts(TypedDict):
    """Both tables of the file."""

    architectures: dict[str, list[str]]
    model_types: dict[str, TypeFacts]


@cache
def facts() -> Facts:
    """Both tables; read on first use, since most configs state all they need."""
    loaded: Facts = json.loads(Path(__file__).with_name("facts.json").read_text(encoding="utf-8"))
    return loaded


def type_facts(model_type: str) -> TypeFacts:
    """Look up a configuration class; empty for a type outside the table."""
    return facts()["model_types"].get(model_type, TypeFacts())


def releases_with(architecture: str) -> tuple[str, str | None] | None:
    """First release that has an architecture, and the last one if it was dropped; None if no release has it."""
    known = facts()["architectures"].get(architecture)
    if known is None:
        return None
    return known[0], known[1] if len(known) > 1 else None
