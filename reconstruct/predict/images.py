"""What a multimodal model's profile run holds besides: encoded images and their pixels."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.interval import Interval
from reconstruct.planner.models.view import architecture_of, as_mapping
from reconstruct.predict.constants import constant
from reconstruct.predict.cost import Cost
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


_DYNAMIC = "Qwen2VL", "Qwen2_5_VL", "Qwen3VL", "Qwen3_5"
"""Beginnings of classes whose largest image is cut by pixels, not by the model."""
LARGEST_IMAGE = 16384
"""Tokens of such an image: the budget that 0.13 to 0.22 print for them at batches of 2048 and of 8192."""


class Images(NamedTuple):
    """What images add.

    held: bytes beside the language model's run; likely_held: their likely number. encoder: the encoder's own pass, 0
    where it cannot be the peak. reasons: why the band is wide.
    """

    held: Interval
    likely_held: int
    encoder: Cost
    reasons: tuple[str, ...]


NO_IMAGES = Images(Interval(0, 0), 0, Cost(0, 0, 0), ())


def largest_image(config: Mapping[str, object]) -> int | None:
    """Tokens of the largest image, for classes of which it is known."""
    return LARGEST_IMAGE if (architecture_of(config) or "").startswith(_DYNAMIC) else None


def images_of(subject: Subject) -> Images:
    """Count the encoded tokens of one encoder budget and the pixels behind them, alive while the language model runs.

    The budget is the batch or the largest image, whichever is more; V0 fills its batch with what it takes of images.
    Source: 0.19.1 v1/worker/gpu_model_runner.py profile_run (the encoder cache and the dummy batch live to its end),
    multimodal/encoder_budget.py; the V2 runner's profile run has the encoder from 0.31 on at the latest.
    """
    shape, settled = subject.shape, subject.settled
    if not shape.multimodal or not subject.first:
        return NO_IMAGES
    config, largest = shape.view.whole.get("vision_config"), largest_image(subject.scenario.config)
    vision = as_mapping(config, "vision_config") if config is not None else {}
    tokens = settled.batched_tokens if settled.engine == "V0" else max(settled.batched_tokens, largest or 0)
    stacked = vision.get("deepstack_visual_indexes")
    copies = 1 + len(stacked) if isinstance(stacked, list) else 1
    encoded = tokens * copies * shape.hidden * settled.width
    patches = tokens * _merge(shape.view.whole, vision) ** 2
    pixels = patches * 3 * _patch(vision) ** 2 * settled.width
    slack = constant("peak.images")
    low, high = encoded + pixels + int(slack.low * MIB), encoded + pixels + int(slack.high * MIB)
    if settled.runner == "V2":
        low = 0
    if (architecture_of(subject.scenario.config) or "") in _FIXED and settled.engine == "V1":
        return Images(Interval(max(low, 0), high), max(low, 0), Cost(0, 0, 0), ())
    likely = low if largest and settled.engine == "V1" else 0
    encoder = (
        _encoder_pass(subject, vision, patches) if largest else Cost(0, int(constant("peak.encoder").high * MIB), 0)
    )
    why = "taken from three start-ups" if largest else "not modelled"
    return Images(
        Interval(0, high), likely, encoder,
        (f"the encoder's own pass over the largest image or audio may be the peak; it is {why}",),
    )  # fmt: skip


def _encoder_pass(subject: Subject, vision: Mapping[str, object], patches: int) -> Cost:
    """Give the encoder's widest layer over all patches, and their pixels once in float32 and once in the model's dtype.

    The feed-forward layer, or attention with queries, keys and values twice. Not read off code that torch generates: it
    meets what three starts of Qwen3.5-4B, 9B and Qwen3-VL-30B peaked at to 0.1 GiB, and is stated with a wide band.
    """
    width, middle = vision.get("embed_dim", vision.get("hidden_size")), vision.get("intermediate_size")
    error = constant("peak.encoder.dynamic")
    if not isinstance(width, int):
        return Cost(0, int(constant("peak.encoder").high * MIB), 0)
    if not isinstance(middle, int):
        ratio = vision.get("mlp_ratio")
        middle = width * ratio if isinstance(ratio, int) else 4 * width
    inner = max(2 * middle, 8 * width) // subject.ranks + 2 * width
    frames = vision.get("temporal_patch_size")
    pixel = 3 * (frames if isinstance(frames, int) else 1) * _patch(vision) ** 2
    size = patches * (inner * subject.settled.width + pixel * (4 + subject.settled.width))
    return Cost(0, int(size * (1 + error.high)), int(size * (1 + error.value)))


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
