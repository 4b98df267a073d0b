"""Quantisation schemes: which layers a checkpoint stores in fewer bits, and what that leaves in memory."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.planner.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping


class Scheme(NamedTuple):
    """How linear layers are stored.

    kind: "none", "fp8" (a scale per matrix), "fp8_channel", "fp8_block", "int8", "int4", "nvfp4", "mxfp4" (experts
    alone) or "bnb4". group: weights that share a scale. zeros: stored zero points. ignore: modules left alone, as
    names, prefixes, globs or "re:" patterns. exact: whether the release keeps just these tensors after loading.
    """

    kind: str = "none"
    group: int = 0
    zeros: bool = False
    ignore: tuple[str, ...] = ()
    exact: bool = True

    def skips(self, names: tuple[str, ...], layer: int | None) -> bool:
        """Whether the ignore list names any of a fused layer's modules."""
        if not self.ignore:
            return False
        roots = ("", "model.", "language_model.model.", "model.language_model.")
        stem = "" if layer is None else f"layers.{layer}."
        full = [f"{root}{stem}{name}" for root in roots for name in names]
        return any(_matches(entry, name) for entry in self.ignore for name in full)


UNQUANTISED = Scheme()


@lru_cache(maxsize=256)
def _pattern(text: str) -> re.Pattern[str] | None:
    try:
        return re.compile(text)
    except re.error:
        return None


def _matches(entry: str, name: str) -> bool:
    if entry.startswith("re:"):
        pattern = _pattern(entry[3:])
        return pattern is not None and pattern.match(name) is not None
    if "*" in entry:
        return fnmatchcase(name, entry) or fnmatchcase(name, f"{entry}.*")
    return name == entry or name.startswith(f"{entry}.")


def scheme_of(config: Mapping[str, object], asked: str | None) -> Scheme:
    """Give the scheme in force: the checkpoint's own, else what --quantization asks for while loading.

    Raises Unsupported for a method whose storage is not known.
    """
    stated = _stated(config)
    if stated is None:
        if asked in {None, "", "none", "None"}:
            return UNQUANTISED
        if asked == "fp8":
            return Scheme("fp8", ignore=("lm_head",))
        if asked == "bitsandbytes":
            return Scheme("bnb4", 64, ignore=("lm_head",), exact=False)
        raise Unsupported(f"--quantization {asked} on an unquantised checkpoint is not modelled")
    return _from_checkpoint(stated)


def _stated(config: Mapping[str, object]) -> Mapping[str, object] | None:
    text = config.get("text_config")
    inner = text.get("quantization_config") if isinstance(text, dict) else None
    found = config.get("quantization_config") or config.get("compression_config") or inner
    return found if isinstance(found, dict) else None


def _words(value: object) -> tuple[str, ...]:
    return tuple(str(word) for word in value) if isinstance(value, list | tuple) else ()


def _number(value: object, absent: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else absent


def _from_checkpoint(stated: Mapping[str, object]) -> Scheme:
    method = str(stated.get("quant_method", "")).lower()
    ignore = _words(stated.get("modules_to_not_convert") or stated.get("ignored_layers") or stated.get("ignore"))
    ignore = tuple(dict.fromkeys((*ignore, "lm_head")))
    if method == "compressed-tensors":
        return _compressed(stated, ignore)
    if method in {"fp8", "fbgemm_fp8"}:
        block = stated.get("weight_block_size")
        if isinstance(block, list | tuple):
            return Scheme("fp8_block", _number(block[0], 128), ignore=ignore)
        return Scheme("fp8_channel" if method == "fbgemm_fp8" else "fp8", ignore=ignore)
    if method.startswith("gptq"):
        if _number(stated.get("bits"), 4) != 4:
            raise Unsupported("GPTQ with other than 4 bits is not modelled")
        return Scheme("int4", _number(stated.get("group_size"), 128), zeros=True, ignore=ignore, exact=False)
    if method.startswith("awq"):
        group = _number(stated.get("group_size"), _number(stated.get("q_group_size"), 128))
        return Scheme("int4", group, zeros=True, ignore=ignore, exact=False)
    if method == "mxfp4":
        return Scheme("mxfp4", 32, ignore=ignore, exact=False)
    if method == "bitsandbytes" and stated.get("load_in_4bit"):
        skipped = _words(stated.get("llm_int8_skip_modules"))
        return Scheme("bnb4", 64, ignore=(*ignore, *skipped), exact=False)
    if method in {"modelopt", "modelopt_fp4", "modelopt_mixed", "nvfp4"}:
        return _modelopt(stated, ignore)
    raise Unsupported(f"quantisation method {method or '(none named)'} is not modelled")


def _compressed(stated: Mapping[str, object], ignore: tuple[str, ...]) -> Scheme:
    """One group of targets; weights of the first decide (compressed-tensors config_groups)."""
    groups = stated.get("config_groups")
    first = next(iter(groups.values()), None) if isinstance(groups, dict) else None
    weights = first.get("weights") if isinstance(first, dict) else None
    if not isinstance(weights, dict) or (isinstance(groups, dict) and len(groups) > 1):
        raise Unsupported("a compressed-tensors checkpoint with several weight groups, or none, is not modelled")
    bits, kind, strategy = weights.get("num_bits"), weights.get("type"), weights.get("strategy")
    if kind == "float" and bits == 8:
        name = {"tensor": "fp8", "channel": "fp8_channel", "block": "fp8_block"}.get(str(strategy))
        if name is None:
            raise Unsupported(f"fp8 weights with strategy {strategy!r} are not modelled")
        return Scheme(name, 128, ignore=ignore)
    if kind == "int" and bits == 8:
        return Scheme("int8", ignore=ignore)
    if kind == "int" and bits == 4:
        return Scheme("int4", _number(weights.get("group_size"), 0), zeros=not weights.get("symmetric", True),
                      ignore=ignore, exact=False)  # fmt: skip
    if kind == "float" and bits == 4:
        return Scheme("nvfp4", _number(weights.get("group_size"), 16), ignore=ignore, exact=False)
    raise Unsupported(f"{bits}-bit {kind} weights are not modelled")


def _modelopt(stated: Mapping[str, object], ignore: tuple[str, ...]) -> Scheme:
    inner = stated.get("quantization")
    part = inner if isinstance(inner, dict) else stated
    algorithm = str(part.get("quant_algo", "")).upper()
    ignore = tuple(dict.fromkeys((*ignore, *_words(part.get("exclude_modules")))))
    if algorithm == "FP8":
        return Scheme("fp8", ignore=ignore)
    if algorithm in {"NVFP4", "NVFP4_AWQ", "W4A16_NVFP4"}:
        return Scheme("nvfp4", _number(part.get("group_size"), 16), ignore=ignore, exact=False)
    raise Unsupported(f"modelopt algorithm {algorithm or '(none named)'} is not modelled")
