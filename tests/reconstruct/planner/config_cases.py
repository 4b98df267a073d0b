"""Short ways to plan a config."""

from __future__ import annotations

from collections import Counter

from reconstruct.planner.config import layer_specs
from reconstruct.planner.launch import Launch

MEMORY = 37_123_456_789
"""Bytes for the cache: no multiple of any block."""


def launch(version="0.32.0", **settings):
    settings.setdefault("max_model_len", 8192)
    return Launch.from_mapping({"engine_version": version, **settings})


def specs(config, version="0.32.0", **settings):
    """All specs of all stages, in order."""
    return [spec for stage in layer_specs(config, launch(version, **settings)).stages for spec in stage]


def counted(config, version="0.32.0", **settings):
    """How many layers have which kind, block, key heads and head size."""
    found = Counter()
    for spec in specs(config, version, **settings):
        found[spec.kind, spec.block_size, spec.num_kv_heads, spec.head_size] += 1
    return dict(found)
