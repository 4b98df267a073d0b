"""Which layers share a group, and as what kind: changes by release."""

from __future__ import annotations

from reconstruct.planner import LayerSpec, Unsupported, WouldNotStart
from tests.reconstruct.planner.changes import STATE, Change, each, figure_of
from tests.reconstruct.planner.layer_models import chunked, full, mamba, mla, sliding

FP8 = {"dtype": "uint8", "kv_quant_mode": "FP8_PER_TENSOR"}

CHANGES = [
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
        "reference windows",
        "0.24.0",
        "0.25.0",
        [LayerSpec("RSWASpec", 16, 8, 128, 128, rswa_window=window) for window in (64, 128)],
        "kinds",
        Unsupported,
        ["UniformTypeKVCacheSpecs"],
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
        "states of one type have one page",
        "0.28.0",
        "0.29.0",
        [mamba(65536, **STATE), mamba(32768, **STATE)],
        "kinds",
        ["UniformTypeKVCacheSpecs"],
        ["MambaSpec"],
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


@each(CHANGES)
def test_a_change_shows_in_its_release(change):
    """The release has the new figure, the one before the old one."""
    assert (figure_of(change, change.before), figure_of(change, change.first)) == (change.old, change.new)
