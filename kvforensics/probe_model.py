"""The model that a probe is asked for: its config.json, and the folder that vLLM is given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from kvforensics.errors import UsageFault
from reconstruct.planner.config_sources import UnreadableConfig, find_config
from reconstruct.predict.sizes import full_config

if TYPE_CHECKING:
    from live_probe.shape import JsonObject

_NO_TOKENIZER = {
    "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "?"},
    "tokenizer.json": {
        "version": "1.0", "added_tokens": [], "truncation": None, "padding": None, "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None,
        "model": {"type": "WordLevel", "vocab": {"?": 0}, "unk_token": "?"},
    },
}  # fmt: skip
"""A tokenizer of one token: up to 0.9 the engine makes one even where it is told to skip it (vllm/v1/engine/llm_engine.py)."""


def config_of(model: str) -> JsonObject:
    """Read the config of a model named by a file, a folder or an id. Raises UsageFault where there is none."""
    try:
        given = _given_config(model)
        if given is not None:
            found = find_config(model, given)
        else:
            found = find_config(model)
            sizes = full_config(model)
            if sizes is not None and (found is None or found.source == "catalogue"):
                return sizes  # type: ignore[return-value]  # a config.json, as the reader of shapes takes it
    except UnreadableConfig as fault:
        raise UsageFault(str(fault)) from None
    if found is None:
        raise UsageFault(f"no config of {model} is known; pass its config.json or the folder that holds it")
    return found.config  # type: ignore[return-value]  # the same


def model_for_vllm(model: str, folder: Path) -> str:
    """Give vLLM a folder where a config is known here, so that it need not ask the hub; else the id.

    A folder that holds more than a config is the model itself. Raises UsageFault.
    """
    given = _given_config(model)
    if given is not None and given.is_dir() and any(path.name != "config.json" for path in given.iterdir()):
        return str(given)
    try:
        config = config_of(model)
    except UsageFault:
        if given is not None:
            raise
        return model
    if "vocab_size" not in config and "text_config" not in config:
        return model  # the catalogue keeps what decides a cache, too little for weights
    place = folder / "model"
    place.mkdir(parents=True)
    for name, content in {"config.json": dict(config), **_NO_TOKENIZER}.items():
        (place / name).write_text(json.dumps(content), encoding="utf-8")
    return str(place)


def _given_config(model: str) -> Path | None:
    """Give the path that a model names, if it is one."""
    path = Path(model)
    if path.is_dir() or path.is_file() or model.startswith((".", "/", "~")) or model.endswith(".json"):
        return path.expanduser()
    return None
