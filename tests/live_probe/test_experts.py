"""Layers with experts: which have them, what their scratch takes, and what of it stays."""

import pytest
import torch

from live_probe.decoder import Decoder
from live_probe.eras import era_of
from live_probe.parameters import Experts
from live_probe.shape import UnsupportedModelError, decoder_shape
from tests.live_probe.tiny import tiny

MIB = 1 << 20
TOKENS = 4096
SIZES = {
    "hidden_size": 512, "num_attention_heads": 8, "num_key_value_heads": 2, "moe_intermediate_size": 1024,
    "num_experts": 4, "num_experts_per_tok": 4,
}  # fmt: skip
HIDDEN, WIDTH, CHOSEN = 512, 1024, 4


def peak_and_rest(device, shape, version, *, compiled=True):
    """Bytes above the weights that one forward needs, and those that it leaves."""
    with device.running(), torch.no_grad():
        decoder = Decoder(shape, device.torch_device, "bfloat16", compiled=compiled, era=era_of(version))
        decoder.forward(torch.zeros(1, dtype=torch.int32, device=device.torch_device))
        ids = torch.zeros(TOKENS, dtype=torch.int32, device=device.torch_device)
        before = device.stats().allocated
        device.reset_peak()
        decoder.forward(ids)
        return device.stats().allocated_peak - before, device.stats().allocated - before


@pytest.mark.parametrize(
    ("version", "hiddens", "kept"),
    [("0.11.0", 4, False), ("0.13.0", 5, False), ("0.14.0", 5, True), ("0.33.0", 5, True)],
)
def test_scratch_goes_with_the_layer_until_0_14_and_is_kept_for_all_since(make_device, version, hiddens, kept):
    """q + 3h, the result beside the input from torch 2.9 on, gate and up and the activations of every pair; kept ones stand
    beside attention as well, which has 4q + 2h + 3kv."""
    shape = decoder_shape({**tiny("qwen3_moe"), **SIZES, "mlp_only_layers": []})
    peak, rest = peak_and_rest(make_device(4096), shape, version)
    scratch = TOKENS * CHOSEN * 2 * 3 * WIDTH
    one = CHOSEN * 2 * 3 * WIDTH  # what the run over a single token had made
    routing = TOKENS * (4 * 2 + CHOSEN * 12)
    attention = TOKENS * 2 * (4 * shape.query_size + 2 * HIDDEN + 3 * shape.kv_size) + kept * scratch
    assert peak == pytest.approx(max(TOKENS * 2 * hiddens * HIDDEN + scratch + routing, attention), abs=2 * MIB)
    assert rest == pytest.approx(scratch - one if kept else 0, abs=MIB)


@pytest.mark.parametrize(
    ("version", "tokens_a_pass", "whole"), [("0.15.0", 1024, 1), ("0.15.0", 8192, 0), ("0.33.0", 0, 0)]
)
def test_tokens_that_pass_in_turns_need_buffers_for_one_pass(make_device, version, tokens_a_pass, whole):
    """And a kept workspace then holds the result of all of them as well."""
    shape = decoder_shape({**tiny("mixtral"), "hidden_size": 256, "intermediate_size": 256})
    device, era = make_device(8192), era_of(version)._replace(expert_pass=tokens_a_pass)
    with device.running(), torch.no_grad():
        decoder = Decoder(shape, device.torch_device, "bfloat16", compiled=True, era=era)
        before = device.stats().allocated
        decoder.forward(torch.zeros(TOKENS, dtype=torch.int32, device=device.torch_device))
        kept = device.stats().allocated - before - device.card.blas_workspace
    rows = min(TOKENS, tokens_a_pass or TOKENS)
    assert kept == pytest.approx(rows * 2 * 2 * (2 * 256 + 256) + whole * TOKENS * 256 * 2, abs=MIB)


def test_the_rule_of_each_family_tells_the_layers_with_experts():
    """All; or every so many, but for those listed as dense."""
    assert decoder_shape({**tiny("mixtral"), "num_hidden_layers": 3}).sparse == (True,) * 3
    stepped = {**tiny("qwen2_moe"), "num_hidden_layers": 4, "decoder_sparse_step": 2}
    assert decoder_shape(stepped).sparse == (False, True, False, True)
    assert decoder_shape({**stepped, "mlp_only_layers": [3]}).sparse == (False, True, False, False)
    made = Decoder(decoder_shape(stepped), torch.device("meta"), "bfloat16", compiled=True)
    assert [isinstance(layer.feed, Experts) for layer in made.layers] == [False, True, False, True]


def test_a_rank_has_its_share_of_every_expert():
    """Tensor parallel: all experts, each cut, with the one that every token takes."""
    shape = decoder_shape(tiny("qwen2_moe"), 2)
    assert shape.experts == (4, 2, 32, 64)
    assert decoder_shape(tiny("mixtral")).experts == (4, 2, 384, 0)
    assert decoder_shape(tiny("mixtral")).intermediate == 0
    experts = Decoder(shape, torch.device("meta"), "bfloat16", compiled=True).layers[0].feed
    assert (experts.gate_up.shape, experts.down.shape) == ((4, 64, 128), (4, 128, 32))
    assert (experts.router.shape, experts.shared_gate.shape) == ((4, 128), (1, 128))
    assert experts.shared.down.weight.shape == (128, 64)


@pytest.mark.parametrize(
    ("family", "change", "reason"),
    [
        ("mixtral", {"num_local_experts": None}, "num_local_experts"),
        ("qwen3_moe", {"moe_intermediate_size": None}, "moe_intermediate_size"),
        ("qwen3_moe", {"mlp_only_layers": 3}, "mlp_only_layers"),
        ("qwen2_moe", {"shared_expert_intermediate_size": "wide"}, "shared_expert_intermediate_size"),
        ("qwen3_moe", {"quantization_config": {"quant_method": "fp8"}}, "quantised"),
    ],
)
def test_what_lacks_a_size_is_refused(family, change, reason):
    """With the field's name."""
    with pytest.raises(UnsupportedModelError, match=reason):
        decoder_shape({**tiny(family), **change})
