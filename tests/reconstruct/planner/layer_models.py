"""Layer specs of well-known shapes, small enough to reckon by hand."""

from __future__ import annotations

from reconstruct.planner.spec import LayerSpec

GIB = 1 << 30


def full(heads=8, size=128, block=16, **fields):
    fields.setdefault("head_size_v", size)
    return LayerSpec("FullAttentionSpec", block, heads, size, **fields)


def sliding(heads=8, size=128, window=1024, block=16, **fields):
    fields.setdefault("head_size_v", size)
    return LayerSpec("SlidingWindowSpec", block, heads, size, sliding_window=window, **fields)


def chunked(heads=8, size=128, chunk=8192, block=16):
    return LayerSpec("ChunkedLocalAttentionSpec", block, heads, size, size, attention_chunk_size=chunk)


def mla(size=576, block=64, **fields):
    return LayerSpec("MLAAttentionSpec", block, 1, size, **fields)


def mamba(page, block=2096, **fields):
    """A Mamba2 state of 2,134,016 bytes, padded to an attention page."""
    fields.setdefault("shapes", ((3, 6144), (64, 64, 128)))
    fields.setdefault("dtypes", ("bfloat16", "float32"))
    return LayerSpec("MambaSpec", block, dcp_sharded=False, page_size_padded=page, mamba_cache_mode="align", **fields)


LLAMA_8B = [full()] * 32
GPT_OSS_20B = [sliding(size=64, window=128), full(size=64)] * 12
GEMMA_27B = [full(heads=16) if i % 6 == 5 else sliding(heads=16) for i in range(62)]
NEMOTRON_NANO = [
    full(heads=2, block=2096) if i in {5, 10, 15, 19, 23, 28} else mamba(2146304, num_prefill_checkpoint_blocks=1)
    for i in range(29)
]


def deepseek_v4(layers, packed_state=584):
    """Layers of DeepSeek-V4's pattern: two without compression, then ratios 4 and 128 in turn."""
    latent = {
        "dtype": "uint8",
        "cache_dtype_str": "fp8_ds_mla",
        "model_version": "deepseek_v4",
        "alignment": 576,
        "state_content_bytes": packed_state,
    }
    specs = []
    for i in range(layers):
        ratio = 1 if i < 2 else (4 if i % 2 == 0 else 128)
        specs.append(LayerSpec("SlidingWindowMLASpec", 64, 1, 512, sliding_window=128, **latent))
        if ratio > 1:
            specs.append(mla(512, 256, tokens_per_state=ratio, **latent))
            specs.append(_compressor(4, 2048, 8) if ratio == 4 else _compressor(8, 1024, 128))
        if ratio == 4:
            specs.append(mla(132, 256, dtype="uint8", alignment=576, tokens_per_state=4))
            specs.append(_compressor(4, 512, 8))
    return specs


def _compressor(block, size, window):
    return LayerSpec("SlidingWindowMLASpec", block, 1, size, dtype="float32", sliding_window=window, alignment=576)
