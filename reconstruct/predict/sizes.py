"""Tensor sizes of well-known models by exact id: the config fields that decide weights, beside those of the catalogue.

The planner's catalogue keeps what decides a cache, under which an FP8 copy equals its original; weights need the
vocabulary, feed-forward and expert sizes, and the quantisation. An id is matched letter by letter.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def full_config(name: str) -> Mapping[str, object] | None:
    """Look up the fields of a model that its weights and its cache need; None for any that is not named here."""
    return _by_id().get(name)


def model_id(text: str) -> str:
    """Give the id of a model that is named by a path into the Hugging Face cache; any other name as it is."""
    cached = next((part for part in PurePath(text).parts if part.startswith("models--")), None)
    return text if cached is None else cached.removeprefix("models--").replace("--", "/", 1)


def sized_ids() -> tuple[str, ...]:
    """Every id that has sizes, in alphabetical order."""
    return tuple(sorted(_by_id()))


@cache
def _by_id() -> dict[str, dict[str, object]]:
    rows = json.loads(Path(__file__).with_name("sizes.json").read_text(encoding="utf-8"))
    return {name: row["config"] for row in rows for name in row["ids"]}
