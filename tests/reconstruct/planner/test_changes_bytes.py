"""Bytes of a block, and how many blocks the memory holds: changes by release."""

from __future__ import annotations

from reconstruct.planner import LayerSpec, WouldNotStart
from tests.reconstruct.planner.changes import Change, each, figure_of
from tests.reconstruct.planner.layer_models import chunked, full, mla, sliding

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
        "attention pages may be padded", "0.13.0", "0.14.0", [full(page_size_padded=131072)], "num_blocks", 16384, 8192
    ),
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
        "sliding DeepSeek-V4 layers may be unpacked",
        "0.22.1",
        "0.23.0",
        [LayerSpec("SlidingWindowMLASpec", 64, 1, 512, sliding_window=128, model_version="deepseek_v4")],
        "bytes_per_block",
        64 * 584,
        64 * 1024,
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
]


@each(CHANGES)
def test_a_change_shows_in_its_release(change):
    """The release has the new figure, the one before the old one."""
    assert (figure_of(change, change.before), figure_of(change, change.first)) == (change.old, change.new)
