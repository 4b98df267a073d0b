"""A config.json as the engine sees it: under common names, with the configuration class's own defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.planner.errors import Unsupported
from reconstruct.planner.models.facts import type_facts

if TYPE_CHECKING:
    from collections.abc import Mapping

TEXT_KEYS = ("text_config", "llm_config", "language_config", "language_model", "decoder", "thinker_config")
"""Where multimodal configs keep their language model (transformers get_text_config and vLLM's wrappers)."""


DEEPEST = 1 << 12
"""Far beyond any number of layers, each of which is laid out."""


class View(NamedTuple):
    """The language model's part of a config (`text`), the file it stands in (`whole`), and its model type.

    Fields are read with the typed readers below. A key that is absent falls back to the configuration class's default;
    a key that is null reads as absent, as the engine's own getattr(..., None) does. `nested` tells that the text part
    is a part of a larger config.
    """

    text: Mapping[str, object]
    whole: Mapping[str, object]
    model_type: str
    nested: bool = False

    def get(self, name: str) -> object:
        """Field under its common name, or None where it is absent or null."""
        if (value := self.text.get(name)) is not None:
            return value
        known = type_facts(self.model_type)
        stored = known.get("aliases", {}).get(name)
        if stored is not None and stored in self.text:
            return self.text[stored]
        if name in self.text:
            return None
        return known.get("defaults", {}).get(stored or name, known.get("defaults", {}).get(name))

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self.get(name) is not None

    def whole_number(self, name: str) -> int:
        """Read a number that the model cannot do without. Raises Unsupported where it is missing or not a number."""
        value = self.maybe_number(name)
        if value is None:
            raise Unsupported(f"the config of model type {self.model_type!r} states no {name}; the layers need it")
        return value

    def positive(self, name: str) -> int:
        """Read a number that the layers divide or count by. Raises Unsupported where it is missing or 0."""
        value = self.whole_number(name)
        if value == 0:
            raise Unsupported(f"config field {name} is 0; the layers need a positive number")
        return value

    def maybe_number(self, name: str) -> int | None:
        """Whole number, or None where the field is absent or null. Raises Unsupported for another type."""
        value = self.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0 or value % 1:
            raise Unsupported(f"config field {name} is {value!r}; a whole number was expected")
        if "layer" in name and value > DEEPEST:
            raise Unsupported(f"config field {name} is {value}; no model has more than {DEEPEST} layers")
        return int(value)

    def flag(self, name: str, *, absent: bool = False) -> bool:
        """Truth value; `absent` where the field is missing or null."""
        value = self.get(name)
        return absent if value is None else bool(value)

    def words(self, name: str) -> tuple[str, ...] | None:
        """List of words (one per layer), or None where absent. Raises Unsupported for another type."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, list | tuple) or not all(isinstance(word, str) for word in value):
            raise Unsupported(f"config field {name} is not a list of words")
        return tuple(value)

    def numbers(self, name: str) -> tuple[int, ...] | None:
        """List of whole numbers, or None where absent. Raises Unsupported for another type."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, list | tuple) or not all(isinstance(number, int) for number in value):
            raise Unsupported(f"config field {name} is not a list of whole numbers")
        return tuple(int(number) for number in value)

    def part(self, name: str) -> Mapping[str, object]:
        """Nested mapping; empty where absent. Raises Unsupported for another type."""
        value = self.get(name)
        if value is None:
            return {}
        return as_mapping(value, name)


def as_mapping(value: object, name: str) -> Mapping[str, object]:
    """`value` as a mapping. Raises Unsupported where it is none."""
    if not isinstance(value, dict):
        raise Unsupported(f"config field {name} is {type(value).__name__}; a mapping was expected")
    return value


def view_of(config: Mapping[str, object]) -> View:
    """Find the language model's part of a config.

    Source: transformers PretrainedConfig.get_text_config; vLLM 0.32.0 transformers_utils/config.py
    get_hf_text_config.
    """
    return _inner(config, config, nested=False)


def _inner(part: Mapping[str, object], whole: Mapping[str, object], *, nested: bool) -> View:
    for key in TEXT_KEYS:
        inner = part.get(key)
        if isinstance(inner, dict):
            return _inner(inner, whole, nested=True)
    return View(part, whole, _model_type(part, whole, nested=nested), nested)


def _model_type(part: Mapping[str, object], whole: Mapping[str, object], *, nested: bool) -> str:
    """Type of the text part; where text fields lie flat in a multimodal config, the type of its text class."""
    stated = part.get("model_type")
    if not isinstance(stated, str):
        stated = type_facts(str(whole.get("model_type"))).get("text") if nested else None
        return stated if isinstance(stated, str) else ""
    return type_facts(stated).get("text", stated)


def architecture_of(config: Mapping[str, object]) -> str | None:
    """First architecture that a config names, or None."""
    named = config.get("architectures")
    if isinstance(named, list | tuple) and named and isinstance(named[0], str):
        return named[0]
    return None
