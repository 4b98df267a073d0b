"""Geometry of well-known models by exact id, shipped as facts: the config fields that decide a cache, nothing else.

An id is matched letter by letter (organisation, slash, name): a fine-tune or a renamed copy is another model, whose
config the user gives. The figures are those of each model's published config.json.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def find(model_id: str) -> Mapping[str, object] | None:
    """Look up a model by its exact id; None for any that the catalogue does not name.

    Most ids are not in it: those cost a search of the text, no parsing.
    """
    return _by_id().get(model_id) if f'"{model_id}"' in _text() else None


def known_ids() -> tuple[str, ...]:
    """Every id that the catalogue names, in alphabetical order."""
    return tuple(sorted(_by_id()))


@cache
def _text() -> str:
    return Path(__file__).with_name("catalogue.json").read_text(encoding="utf-8")


@cache
def _by_id() -> dict[str, dict[str, object]]:
    import json  # explain on a log without a known model does without

    rows = json.loads(_text())
    return {model_id: row["config"] for row in rows for model_id in row["ids"]}
