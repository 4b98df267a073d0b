"""What a request takes, and the tokens that the blocks hold: changes by release."""

from __future__ import annotations

from reconstruct.planner import LayerSpec, Unsupported
from tests.reconstruct.planner.changes import STATE, Change, each, figure_of
from tests.reconstruct.planner.layer_models import deepseek_v4, full, mamba, sliding

HIDDEN = LayerSpec("HiddenStateCacheSpec", 16, 1, 2400)

CHANGES = [
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
    Change("states by cache mode", "0.14.1", "0.15.0", [mamba(None, **STATE)], "blocks_per_request", (64,), (2,)),
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
]


@each(CHANGES)
def test_a_change_shows_in_its_release(change):
    """The release has the new figure, the one before the old one."""
    assert (figure_of(change, change.before), figure_of(change, change.first)) == (change.old, change.new)
