"""Each change of the planner shows in its release and not in the one before.

The figures were measured by running the releases' own planners on these layers, as far as they take them: a kind that
a release lacks is this planner's own refusal.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from reconstruct.planner import Launch, LayerSpec, Unsupported, WouldNotStart, plan_from_layers
from tests.reconstruct.planner.layer_models import GIB, chunked, deepseek_v4, full, mamba, mla, sliding

FP8 = {"dtype": "uint8", "kv_quant_mode": "FP8_PER_TENSOR"}
STATE = {"shapes": ((16, 1024),), "dtypes": ("bfloat16",), "block": 16}
HIDDEN = LayerSpec("HiddenStateCacheSpec", 16, 1, 2400)


class Change(NamedTuple):
    """A change: the releases around it, layers that show it, and a figure of the plan before and after."""

    what: str
    before: str
    first: str
    layers: list[LayerSpec]
    figure: str
    old: Any
    new: Any
    settings: dict[str, Any] = {}  # noqa: RUF012 - never changed
    stages: int = 1
    memory: int = GIB


def lengths(plan):
    return [len(group.layers) for group in plan.groups]


def kinds(plan):
    return [group.kind for group in plan.groups]


FIGURES = {"lengths": lengths, "kinds": kinds}

CHANGES = [
    Change(
        "specs of a group must be equal", "0.8.1", "0.8.2", [full(), full(4, 256)], "num_blocks", 8192, WouldNotStart
    ),
    Change("merged by type again", "0.8.5", "0.9.0", [full(), full(4, 256)], "num_blocks", WouldNotStart, 8192),
    Change(
        "promoted windows are remembered",
        "0.8.5",
        "0.9.0",
        [full(), sliding(), sliding(window=512)],
        "num_blocks",
        5461,
        WouldNotStart,
    ),
    Change(
        "hybrid tokens by the groups' blocks",
        "0.9.1",
        "0.9.2",
        [full(block=32), sliding(block=32)],
        "kv_cache_tokens",
        65536,
        131072,
        {"block_size": 16},
    ),
    Change(
        "full layers have chunks",
        "0.9.2",
        "0.10.0",
        [full(attention_chunk_size=64), full(attention_chunk_size=128)],
        "num_blocks",
        8192,
        WouldNotStart,
    ),
    Change(
        "promoted chunks are remembered",
        "0.9.2",
        "0.10.0",
        [full(), chunked(), chunked(chunk=64)],
        "num_blocks",
        5461,
        WouldNotStart,
        {"disable_hybrid_kv_cache_manager": True},
    ),
    Change(
        "states of another kind are another bucket",
        "0.10.0",
        "0.10.1",
        [mamba(65536, **STATE)] * 2 + [mamba(65536, mamba_type="GDN_ATTN", **STATE)] + [full()] * 2,
        "lengths",
        [2, 2, 1],
        [1, 1, 1, 1, 1],
    ),
    Change(
        "states count their speculative blocks",
        "0.10.1",
        "0.10.2",
        [mamba(65536, **STATE)] * 2 + [mamba(65536, num_speculative_blocks=1, **STATE)] + [full()] * 2,
        "lengths",
        [2, 2, 1],
        [1, 1, 1, 1, 1],
    ),
    Change(
        "uniform tokens by the group's block",
        "0.10.2",
        "0.11.0",
        [full(block=32)],
        "kv_cache_tokens",
        131072,
        262144,
        {"block_size": 16},
    ),
    Change(
        "hybrid tokens count context-parallel ranks",
        "0.10.2",
        "0.11.0",
        [full(), mamba(65536, **STATE)],
        "kv_cache_tokens",
        131072,
        262144,
        {"decode_context_parallel_size": 2},
    ),
    Change("state blocks by length", "0.11.0", "0.11.1", [mamba(None, **STATE)], "blocks_per_request", (1,), (64,)),
    Change(
        "prefill ranks share a request",
        "0.11.2",
        "0.12.0",
        [full()],
        "blocks_per_request",
        (64,),
        (32,),
        {"prefill_context_parallel_size": 2},
    ),
    Change(
        "tokens count prefill ranks",
        "0.11.2",
        "0.12.0",
        [full()],
        "kv_cache_tokens",
        262144,
        524288,
        {"prefill_context_parallel_size": 2},
    ),
    Change(
        "attention pages may be padded", "0.13.0", "0.14.0", [full(page_size_padded=131072)], "num_blocks", 16384, 8192
    ),
    Change("states by cache mode", "0.14.1", "0.15.0", [mamba(None, **STATE)], "blocks_per_request", (64,), (2,)),
    Change(
        "promoted pages keep their padding",
        "0.14.1",
        "0.15.0",
        [full(page_size_padded=131072), sliding(page_size_padded=131072)],
        "bytes_per_block",
        196608,
        262144,
        {"disable_hybrid_kv_cache_manager": True},
    ),
    Change(
        "the check looks at each worker's share",
        "0.16.0",
        "0.17.0",
        [full()] * 32,
        "num_blocks",
        WouldNotStart,
        1024,
        {"max_model_len": 16384},
        stages=2,
    ),
    Change(
        "promoted windows keep their value width",
        "0.20.2",
        "0.21.0",
        [sliding(head_size_v=64), full(head_size_v=64)],
        "bytes_per_block",
        131072,
        98304,
        {"disable_hybrid_kv_cache_manager": True},
    ),
    Change(
        "all states and the speculative ones",
        "0.21.0",
        "0.22.0",
        [mamba(None, num_speculative_blocks=3, **STATE)],
        "blocks_per_request",
        (64,),
        (67,),
        {"mamba_cache_mode": "all"},
    ),
    Change(
        "sliding DeepSeek-V4 layers may be unpacked",
        "0.22.1",
        "0.23.0",
        [LayerSpec("SlidingWindowMLASpec", 64, 1, 512, sliding_window=128, model_version="deepseek_v4")],
        "bytes_per_block",
        64 * 584,
        64 * 1024,
    ),
    Change(
        "reference windows",
        "0.24.0",
        "0.25.0",
        [LayerSpec("RSWASpec", 16, 8, 128, 128, rswa_window=window) for window in (64, 128)],
        "kinds",
        Unsupported,
        ["UniformTypeKVCacheSpecs"],
    ),
    Change(
        "prefill ranks keep a whole request",
        "0.25.1",
        "0.26.0",
        [full()],
        "blocks_per_request",
        (32,),
        (64,),
        {"prefill_context_parallel_size": 2},
    ),
    Change(
        "states are padded to the largest page",
        "0.25.1",
        "0.26.0",
        [full(), mamba(60000, **STATE)],
        "lengths",
        WouldNotStart,
        [1, 1],
    ),
    Change(
        "equal pages need no tuples",
        "0.25.1",
        "0.26.0",
        [mla(512), LayerSpec("SlidingWindowMLASpec", 64, 1, 512, sliding_window=128)],
        "kinds",
        ["UniformTypeKVCacheSpecs", "UniformTypeKVCacheSpecs"],
        ["MLAAttentionSpec", "SlidingWindowMLASpec"],
    ),
    Change(
        "groups under context parallelism",
        "0.25.1",
        "0.26.0",
        [full(), mamba(65536, **STATE)],
        "lengths",
        WouldNotStart,
        [1, 1],
        {"decode_context_parallel_size": 2},
    ),
    Change(
        "full layers with and without a window share a bucket",
        "0.26.0",
        "0.27.0",
        [full()] * 2 + [full(sliding_window=64)] * 2 + [mamba(65536, **STATE)] * 4,
        "lengths",
        [2, 2, 2, 2],
        [4, 4],
    ),
    Change(
        "promoted layers take the full layers' block",
        "0.26.0",
        "0.27.0",
        [full(block=32), sliding(page_size_padded=70000)],
        "bytes_per_block",
        WouldNotStart,
        262144,
        {"disable_hybrid_kv_cache_manager": True},
    ),
    Change(
        "windows retain tokens for drafts",
        "0.27.1",
        "0.28.0",
        [sliding(window=128, extra_retained_tokens=16)],
        "blocks_per_request",
        (41,),
        (42,),
        {"max_num_batched_tokens": 256},
    ),
    Change(
        "chunked layers have a value width",
        "0.27.1",
        "0.28.0",
        [chunked()._replace(head_size_v=64)],
        "bytes_per_block",
        65536,
        49152,
    ),
    Change(
        "value widths must agree to merge",
        "0.27.1",
        "0.28.0",
        [full(), full(head_size_v=64)],
        "bytes_per_block",
        131072,
        114688,
    ),
    Change(
        "windows pack four-bit values",
        "0.27.1",
        "0.28.0",
        [sliding(dtype="uint8", kv_quant_mode="INT4_PER_TOKEN_HEAD")],
        "bytes_per_block",
        16 * 8 * 264,
        16 * 8 * 136,
    ),
    Change(
        "promoted chunks keep their format",
        "0.27.1",
        "0.28.0",
        [full(**FP8), chunked()._replace(**FP8)],
        "kinds",
        ["UniformTypeKVCacheSpecs"],
        ["FullAttentionSpec"],
        {"disable_hybrid_kv_cache_manager": True},
    ),
    Change(
        "hidden-state blocks divide the others",
        "0.27.1",
        "0.28.0",
        [full(), sliding(), HIDDEN],
        "blocks_per_request",
        (64, 65, 79),
        (64, 65, 128),
    ),
    Change(
        "ring buffers",
        "0.28.0",
        "0.29.0",
        [LayerSpec("CircularBufferSpec", 8, 1, 128, 128)] * 2,
        "blocks_per_request",
        Unsupported,
        (1,),
    ),
    Change(
        "states of one type have one page",
        "0.28.0",
        "0.29.0",
        [mamba(65536, **STATE), mamba(32768, **STATE)],
        "kinds",
        ["UniformTypeKVCacheSpecs"],
        ["MambaSpec"],
    ),
    Change(
        "a request's need follows the block",
        "0.28.0",
        "0.29.0",
        deepseek_v4(11),
        "max_model_len",
        1124,
        1360,
        {"max_model_len": 131072, "autofit": True},
        memory=1 << 27,
    ),
    Change(
        "cache roles must agree to merge",
        "0.29.0",
        "0.30.0",
        [mla(), mla(cache_role="indexer")],
        "kinds",
        ["MLAAttentionSpec"],
        ["UniformTypeKVCacheSpecs"],
    ),
    Change(
        "packed windows are dealt like states",
        "0.29.0",
        "0.30.0",
        [full(2)] * 2 + [sliding()] * 6,
        "lengths",
        [2, 6],
        [2, 1, 1, 1, 1, 1, 1],
        {"kv_cache_layout": "BLHNC"},
    ),
    Change(
        "compressed layers beside states",
        "0.29.0",
        "0.30.0",
        [mla(tokens_per_state=4), mamba(18432, shapes=((4, 1024),), dtypes=("bfloat16",), block=64)],
        "lengths",
        [1, 1],
        Unsupported,
    ),
    Change(
        "compressed layers beside states, planned like others",
        "0.31.0",
        "0.32.0",
        [mla(tokens_per_state=4), mamba(18432, shapes=((4, 1024),), dtypes=("bfloat16",), block=64)],
        "lengths",
        Unsupported,
        [1, 1],
    ),
    Change(
        "blocks are aligned",
        "0.30.0",
        "0.31.0",
        [mla(block_stride_alignment=50000)] * 3,
        "bytes_per_block",
        3 * 73728,
        250000,
    ),
    Change(
        "layers are aligned",
        "0.31.0",
        "0.32.0",
        [mla(block_stride_alignment=50000)] * 3,
        "bytes_per_block",
        250000,
        300000,
    ),
    Change(
        "replicated layers are promoted apart",
        "0.30.0",
        "0.31.0",
        [full(), sliding(), full(dcp_sharded=False)],
        "kinds",
        ["FullAttentionSpec"],
        ["FullAttentionSpec", "FullAttentionSpec", "FullAttentionSpec"],
        {"disable_hybrid_kv_cache_manager": True},
    ),
]


def figure_of(change, version):
    """The figure, or the kind of refusal."""
    settings = {"max_model_len": 1024, **change.settings}
    size = len(change.layers) // change.stages
    stages = [change.layers[i : i + size] for i in range(0, len(change.layers), size)]
    try:
        plan = plan_from_layers(
            stages, Launch(version, pipeline_parallel_size=change.stages, **settings), change.memory
        )
    except Unsupported:
        return Unsupported
    except WouldNotStart:
        return WouldNotStart
    return FIGURES[change.figure](plan) if change.figure in FIGURES else getattr(plan, change.figure)


@pytest.mark.parametrize("change", CHANGES, ids=[change.what for change in CHANGES])
def test_a_change_shows_in_its_release(change):
    """The release has the new figure, the one before the old one."""
    assert (figure_of(change, change.before), figure_of(change, change.first)) == (change.old, change.new)
