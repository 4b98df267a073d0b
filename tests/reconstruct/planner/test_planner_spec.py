"""Reading layer specs and launch settings from plain values, and the page sizes that follow."""

from __future__ import annotations

import pytest

from reconstruct.planner import BadSetting, Launch, LayerSpec, Unsupported
from reconstruct.planner.errors import WouldNotStart
from reconstruct.planner.launch import Speculation
from reconstruct.planner.pages import as_reported, block_stride_alignment, page_size_bytes
from reconstruct.planner.rules import rules_for
from reconstruct.planner.spec import KernelBlocks
from tests.reconstruct.planner.layer_models import chunked, full, mamba, mla, sliding


def page(spec, version="0.32.0"):
    rules = rules_for(version)
    return page_size_bytes(as_reported(spec, rules), rules)


def test_a_spec_takes_its_value_width_from_its_key_width():
    """Attention stores values as wide as keys unless told otherwise; MLA stores none."""
    plain = {"block_size": 16, "num_kv_heads": 8, "head_size": 128, "dtype": "bfloat16"}
    assert LayerSpec.from_mapping({"kind": "FullAttentionSpec", **plain}) == full()
    assert LayerSpec.from_mapping({"kind": "MLAAttentionSpec", **plain, "mla": True}).head_size_v == 0


def test_a_spec_reads_fractions_and_alignments():
    """Text forms of vLLM's fractions and kernel-block multiples become values."""
    spec = LayerSpec.from_mapping(
        {
            "kind": "MLAAttentionSpec",
            "block_size": 256,
            "tokens_per_state": "4",
            "block_stride_alignment": "MultipleOf(64)",
        }
    )
    assert (spec.tokens_per_state, spec.states_per_token, spec.block_stride_alignment) == (4, 1, KernelBlocks(64))
    assert LayerSpec.from_mapping({"kind": "FullAttentionSpec", "block_size": 16, "tokens_per_state": "1/4"})[18] == 4
    assert (
        LayerSpec.from_mapping(
            {"kind": "FullAttentionSpec", "block_size": 16, "block_stride_alignment": "1152"}
        ).block_stride_alignment
        == 1152
    )


def test_mamba_is_replicated_over_context_parallel_ranks():
    """States have no tokens to split."""
    spec = LayerSpec.from_mapping({"kind": "MambaSpec", "block_size": 16, "shapes": [[2, 3]], "dtypes": ["float32"]})
    assert (spec.dcp_sharded, spec.shapes, spec.dtypes) == (False, ((2, 3),), ("float32",))


@pytest.mark.parametrize(
    ("mapping", "error", "message"),
    [
        ({"kind": "FullAttentionSpec", "block_size": 16, "heads": 8}, BadSetting, "unknown layer spec keys heads"),
        ({"kind": "HiSparseHotSpec", "block_size": 16}, Unsupported, "HiSparseHotSpec"),
        ({"kind": "FullAttentionSpec", "block_size": "16"}, BadSetting, "block_size must be a whole number"),
        ({"kind": "FullAttentionSpec", "block_size": 16, "dtype": 2}, BadSetting, "dtype must be a string"),
        ({"kind": "FullAttentionSpec", "block_size": 16, "mla": True}, BadSetting, "contradicts"),
        ({"kind": "FullAttentionSpec", "block_size": 16, "tokens_per_state": "0"}, BadSetting, "tokens_per_state"),
        ({"kind": "MambaSpec", "block_size": 16, "shapes": 3}, BadSetting, "shapes must be a list"),
        ({"kind": "FullAttentionSpec", "block_size": 16, "dcp_sharded": 1}, BadSetting, "must be true or false"),
    ],
)
def test_a_spec_that_makes_no_sense_is_refused(mapping, error, message):
    """Unknown keys, wrong types and unknown kinds are named."""
    with pytest.raises(error, match=message):
        LayerSpec.from_mapping(mapping)


def test_launch_reads_every_setting_under_vllms_name():
    """A speculative config becomes a value of its own."""
    launch = Launch.from_mapping(
        {
            "engine_version": "0.32.0",
            "max_model_len": -1,
            "speculative_config": {"method": "mtp", "num_speculative_tokens": 2},
            "async_scheduling": False,
        }
    )
    assert (launch.max_model_len, launch.async_scheduling, launch.block_size) == (-1, False, None)
    assert launch.speculative_config == Speculation("mtp", 2)


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"max_model_len": 8192}, "engine_version"),
        ({"engine_version": "0.32.0", "tp": 2}, "unknown launch settings tp"),
        ({"engine_version": "0.32.0", "tensor_parallel_size": 0}, "tensor_parallel_size must be a positive"),
        ({"engine_version": "0.32.0", "max_model_len": 0}, "max_model_len"),
        ({"engine_version": "0.32.0", "autofit": 1}, "autofit must be true or false"),
        ({"engine_version": "0.32.0", "dtype": None}, "dtype must be a string"),
        ({"engine_version": "0.32.0", "speculative_config": {"tokens": 1}}, "speculative_config needs method"),
    ],
)
def test_a_launch_that_makes_no_sense_is_refused(mapping, message):
    """Each refusal is a ValueError that names the setting."""
    with pytest.raises(ValueError, match=message):
        Launch.from_mapping(mapping)


@pytest.mark.parametrize(
    ("spec", "version", "size"),
    [
        (full(), "0.7.3", 65536),
        (full(size=192, head_size_v=128), "0.13.0", 16 * 8 * 384 * 2),
        (full(size=192, head_size_v=128), "0.14.0", 16 * 8 * 320 * 2),
        (sliding(size=192, head_size_v=128), "0.19.1", 16 * 8 * 384 * 2),
        (sliding(size=192, head_size_v=128), "0.20.0", 16 * 8 * 320 * 2),
        (mla(), "0.7.3", 2 * 64 * 576 * 2),
        (mla(), "0.8.0", 64 * 576 * 2),
        (mla(cache_dtype_str="fp8_ds_mla", dtype="uint8"), "0.11.0", 64 * 656),
        (mla(132, dtype="uint8"), "0.32.0", 64 * 132),
        (full(dtype="uint8", kv_quant_mode="FP8_PER_TENSOR"), "0.20.0", 16 * 8 * 256),
        (full(dtype="uint8", kv_quant_mode="FP8_PER_TOKEN_HEAD"), "0.20.0", 16 * 8 * (256 + 8)),
        (full(dtype="uint8", kv_quant_mode="INT4_PER_TOKEN_HEAD"), "0.25.0", 16 * 8 * (128 + 8)),
        (full(dtype="uint8", kv_quant_mode="NVFP4"), "0.20.0", 16 * 8 * 2 * (64 + 8)),
        (sliding(dtype="uint8", kv_quant_mode="NVFP4"), "0.20.0", 16 * 8 * 256),
        (sliding(dtype="uint8", kv_quant_mode="NVFP4"), "0.21.0", 16 * 8 * 2 * (64 + 8)),
        (full(dtype="uint8", kv_quant_mode="TURBOQUANT_K8V4", state_content_bytes=196), "0.32.0", 16 * 8 * 196),
        (mamba(2146304), "0.32.0", 2146304),
        (mamba(None), "0.32.0", 3 * 6144 * 2 + 64 * 64 * 128 * 4),
        (mamba(None), "0.9.2", 3 * 6144 * 2 + 64 * 64 * 128 * 2),
    ],
)
def test_pages_by_release(spec, version, size):
    """Value widths, MLA, packed formats and states came in at different releases."""
    assert page(spec, version) == size


def test_an_aligned_page_is_rounded_up():
    """DeepSeek-V4: 64 states of 584 bytes on a multiple of 576."""
    packed = {"state_content_bytes": 584, "tokens_per_state": 4, "alignment": 576}
    assert page(mla(512, 256, **packed)) == 37440


def test_a_page_larger_than_its_padding_cannot_start():
    """The engine asserts that the padded page holds the real one."""
    with pytest.raises(WouldNotStart, match="does not fit its padded size"):
        page(mamba(1024))


def test_windows_are_full_before_their_kinds_exist():
    """A release without sliding or chunked specs reports such layers as full attention."""
    assert as_reported(sliding(), rules_for("0.8.2")).kind == "FullAttentionSpec"
    assert as_reported(chunked(), rules_for("0.9.2")).kind == "FullAttentionSpec"
    assert as_reported(chunked(), rules_for("0.10.0")).kind == "ChunkedLocalAttentionSpec"


@pytest.mark.parametrize(
    ("spec", "version"),
    [
        (mamba(None), "0.9.1"),
        (LayerSpec("RSWASpec", 16, rswa_window=64), "0.24.0"),
        (full(kv_quant_mode="INT8_PER_TOKEN_HEAD"), "0.19.1"),
        (full(kv_quant_mode="TURBOQUANT_K8V4"), "0.32.0"),
        (full(dtype="int3"), "0.32.0"),
    ],
)
def test_what_a_release_does_not_have_is_not_guessed(spec, version):
    """Kinds, packed formats and dtypes outside a release are refused."""
    with pytest.raises(Unsupported):
        page(spec, version)


def test_a_block_stride_holds_whole_kernel_blocks():
    """Blocks that are split into kernel blocks align to one kernel block's page."""
    rules = rules_for("0.32.0")
    aligned = mla(block=192, block_stride_alignment=KernelBlocks(128))
    assert block_stride_alignment(aligned, rules) == 64 * 1152
    assert block_stride_alignment(mla(block=64, block_stride_alignment=KernelBlocks(64)), rules) == 1
    assert block_stride_alignment(mla(block_stride_alignment=1152), rules) == 1152
