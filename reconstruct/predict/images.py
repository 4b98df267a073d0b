"""What a multimodal model's profile run holds besides: encoded images and their pixels."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.interval import Interval
from reconstruct.planner.models.view import architecture_of, as_mapping
from reconstruct.predict.constants import constant
from reconstruct.rounding import MIB

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconstruct.predict.peak import Subject

_FIXED = frozenset(
    "Gemma3ForConditionalGeneration LlavaNextForConditionalGeneration LlavaForConditionalGeneration "
    "Llama4ForConditionalGeneration Mistral3ForConditionalGeneration PixtralForConditionalGeneration "
    "KimiVLForConditionalGeneration".split()
)
"""Models whose encoder works on images of a bounded size, so that it is never the peak (V1)."""


class Images(NamedTuple):
    """What images add.

    held: bytes beside the language model's run. encoder: an upper bound of the encoder's own pass, 0 where it cannot be
    the peak. reasons: why the band is wide.
    """

    held: Interval
    encoder: int
    reasons: tuple[str, ...]


def images_of(subject: Subject) -> Images:
    """Count the encoded tokens of one encoder budget and the pixels behind them, alive while the language model runs.

    Source: 0.19.1 v1/worker/gpu_model_runner.py profile_run (the encoder cache and the dummy batch live to its end);
    the V2 runner's profile run has the encoder from 0.31 on at the latest.
    """
    shape, settled = subject.shape, subject.settled
    if not shape.multimodal or not subject.first:
        return Images(Interval(0, 0), 0, ())
    architecture = architecture_of(subject.scenario.config) or ""
    tokens = settled.batched_tokens
    encoded = tokens * shape.hidden * settled.width
    config = shape.view.whole.get("vision_config")
    vision = as_mapping(config, "vision_config") if config is not None else {}
    pixels = tokens * 3 * (_patch(vision) * _merge(shape.view.whole, vision)) ** 2 * settled.width
    slack = constant("peak.images")
    low, high = encoded + pixels + int(slack.low * MIB), encoded + pixels + int(slack.high * MIB)
    if subject.settled.runner == "V2":
        low = 0
    if architecture in _FIXED and settled.engine == "V1":
        return Images(Interval(max(low, 0), high), 0, ())
    bound = constant("peak.encoder")
    return Images(
        Interval(0, high),
        int(bound.high * MIB),
        ("the encoder's own pass over the largest image or audio may be the peak; it is not modelled",),
    )


def _patch(vision: Mapping[str, object]) -> int:
    value = vision.get("patch_size")
    return value if isinstance(value, int) else 14


def _merge(whole: Mapping[str, object], vision: Mapping[str, object]) -> int:
    """Patches along one side of what becomes one token."""
    tokens, side = whole.get("mm_tokens_per_image"), vision.get("image_size")
    if isinstance(tokens, int) and isinstance(side, int):
        return max(1, round(side // _patch(vision) / math.sqrt(tokens)))
    for place in (vision, whole):
        value = place.get("spatial_merge_size")
        if isinstance(value, int):
            return value
    kind = str(vision.get("model_type", ""))
    return 2 if "llama4" in kind or "moon" in kind else 1
