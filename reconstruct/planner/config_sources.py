"""Where a model's config.json comes from: the user's file, the local Hugging Face cache, the catalogue, or the hub.

Only what the user names is looked up: a file or folder given, or the exact model id. Nothing is downloaded unless asked.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.planner import catalogue
from reconstruct.planner.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping


class UnreadableConfig(ValueError):
    """A config file that is missing, no JSON, or no mapping; the message names it."""


class FoundConfig(NamedTuple):
    """A model's config and its source: "given", "cache", "catalogue" or "hub"; `place` says where exactly."""

    config: Mapping[str, object]
    source: str
    place: str


def find_config(model_id: str, given: Path | None = None, *, fetch: bool = False) -> FoundConfig | None:
    """Look a model's config up, nearest source first; None where no source has it.

    given: a config.json, or a folder that holds one. model_id: a Hugging Face id or a local folder. fetch: allow a
    download through huggingface_hub. Raises UnreadableConfig for a file that cannot be read, Unsupported where fetching
    was asked for but the library is missing.
    """
    if given is not None:
        path = given / "config.json" if given.is_dir() else given
        return FoundConfig(_read(path), "given", str(path))
    if (cached := _in_local_cache(model_id)) is not None:
        return FoundConfig(_read(cached), "cache", str(cached))
    if (config := catalogue.find(model_id)) is not None:
        return FoundConfig(config, "catalogue", model_id)
    return _fetched(model_id) if fetch else None


def _read(path: Path) -> Mapping[str, object]:
    import json  # only where there is a file

    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UnreadableConfig(f"cannot read {path}: {error.strerror or error}") from None
    except (ValueError, RecursionError):  # brackets without end are nested deeper than any config
        raise UnreadableConfig(f"{path} is not JSON; give a model's config.json") from None
    if not isinstance(config, dict):
        raise UnreadableConfig(f"{path} holds no mapping; give a model's config.json")
    return config


def cache_folder() -> Path:
    """Folder of downloaded models: HF_HUB_CACHE, else hub under HF_HOME, else hub under the user's cache folder."""
    if stated := os.environ.get("HF_HUB_CACHE"):
        return Path(stated).expanduser()
    if home := os.environ.get("HF_HOME"):
        return Path(home).expanduser() / "hub"
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "huggingface" / "hub"


def _in_local_cache(model_id: str) -> Path | None:
    """Find the config.json of a downloaded model: the main branch's snapshot, else the newest one."""
    if model_id.count("/") > 1 or not model_id or model_id.startswith((".", "/", "~")):
        return None
    folder = cache_folder() / ("models--" + model_id.replace("/", "--"))
    try:
        commit = (folder / "refs" / "main").read_text(encoding="utf-8").strip()
        named = folder / "snapshots" / commit / "config.json"
        if commit and named.is_file():
            return named
        found = [path for path in folder.glob("snapshots/*/config.json") if path.is_file()]
    except OSError:
        found = [path for path in folder.glob("snapshots/*/config.json") if path.is_file()]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def _fetched(model_id: str) -> FoundConfig:
    try:
        from huggingface_hub import hf_hub_download
    except ImportError:
        raise Unsupported("fetching a config needs huggingface_hub; install kvforensics[hub]") from None
    try:
        path = Path(hf_hub_download(model_id, "config.json"))
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise Unsupported(f"the hub gave no config for {model_id!r}: {reason}") from None
    return FoundConfig(_read(path), "hub", f"https://huggingface.co/{model_id}/blob/main/config.json")
