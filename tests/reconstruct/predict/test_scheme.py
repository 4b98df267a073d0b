"""Quantisation schemes: read off a config, and the bytes they leave."""

import pytest

from reconstruct.planner.errors import Unsupported
from reconstruct.predict.scheme import UNQUANTISED, Scheme, scheme_of
from reconstruct.predict.storage import matrix
from tests.reconstruct.predict.starts import decoder


def compressed(**weights):
    return {"quant_method": "compressed-tensors", "ignore": ["lm_head"],
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}  # fmt: skip


@pytest.mark.parametrize(
    ("stated", "kind", "group"),
    [
        (compressed(num_bits=8, type="float", strategy="channel"), "fp8_channel", 128),
        (compressed(num_bits=8, type="int", strategy="channel"), "int8", 0),
        (compressed(num_bits=4, type="int", strategy="group", group_size=64, symmetric=True), "int4", 64),
        (compressed(num_bits=4, type="float", strategy="tensor_group", group_size=16), "nvfp4", 16),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8_block", 128),
        ({"quant_method": "fp8"}, "fp8", 0),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "int4", 128),
        ({"quant_method": "gptq", "bits": 4, "group_size": 32}, "int4", 32),
        ({"quant_method": "mxfp4"}, "mxfp4", 32),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4", 16),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bnb4", 64),
    ],
)
def test_scheme_of_a_checkpoint(stated, kind, group):
    """Each method of the index names its storage."""
    scheme = scheme_of(decoder(quantization_config=stated), None)
    assert (scheme.kind, scheme.group) == (kind, group)


@pytest.mark.parametrize(
    "stated",
    [
        {"quant_method": "gptq", "bits": 8},
        {"quant_method": "hqq"},
        {"quant_method": "compressed-tensors", "config_groups": {}},
        compressed(num_bits=2, type="int", strategy="group"),
        {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"},
    ],
)
def test_unknown_storage_is_refused(stated):
    """No silent constant for a method whose bytes are not known."""
    with pytest.raises(Unsupported):
        scheme_of(decoder(quantization_config=stated), None)


def test_quantising_while_loading():
    """--quantization counts where the checkpoint is not quantised, and the checkpoint's own word elsewhere."""
    assert scheme_of(decoder(), "fp8").kind == "fp8"
    assert scheme_of(decoder(), None) == UNQUANTISED
    assert scheme_of(decoder(quantization_config={"quant_method": "awq"}), "awq_marlin").kind == "int4"
    with pytest.raises(Unsupported):
        scheme_of(decoder(), "gguf")


@pytest.mark.parametrize(
    ("entry", "name", "layer", "skipped"),
    [
        ("lm_head", "lm_head", None, True),
        ("re:.*mlp.gate$", "mlp.gate", 3, True),
        ("re:.*mlp.gate$", "mlp.gate_proj", 3, False),
        ("model.layers.*.self_attn", "self_attn.q_proj", 7, True),
        ("model.layers.1", "mlp.up_proj", 1, True),
        ("model.layers.1", "mlp.up_proj", 11, False),
        ("re:[", "mlp.up_proj", 1, False),
    ],
)
def test_ignore_list(entry, name, layer, skipped):
    """Names, prefixes, globs and patterns, as checkpoints write them; a broken pattern matches nothing."""
    assert Scheme("fp8", ignore=(entry,)).skips((name,), layer) is skipped


@pytest.mark.parametrize(
    ("scheme", "sizes"),
    [
        (UNQUANTISED, (256 * 512 * 2,)),
        (Scheme("fp8"), (256 * 512, 8)),
        (Scheme("int8"), (256 * 512, 4 * 256)),
        (Scheme("fp8_block", 128), (256 * 512, 4 * 2 * 4)),
        (Scheme("int4", 128), (256 * 512 // 2, 2 * 256 * 4)),
        (Scheme("int4", 128, zeros=True), (256 * 512 // 2, 2 * 256 * 4, 256 * 4 // 2)),
        (Scheme("nvfp4", 16), (256 * 512 // 2, 256 * 32)),
    ],
)
def test_bytes_of_a_matrix(scheme, sizes):
    """Weight, scales and zero points of 256 rows by 512 columns, two matrices fused."""
    assert matrix(256, 512, scheme, 2, fused=2) == sizes
