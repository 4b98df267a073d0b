"""Two models of one thing: the weights that the torch engine allocates, and those that `plan` computes from a config."""

import pytest
import torch

from live_probe.cards import EARLIER_WORKSPACE, Card
from live_probe.decoder import Decoder
from live_probe.eras import era_of, release_of
from live_probe.shape import decoder_shape
from live_probe.simulated import SimulatedDevice
from reconstruct.predict.parts import Split
from reconstruct.predict.scheme import scheme_of
from reconstruct.predict.shape import shape_of
from reconstruct.predict.sizes import full_config
from reconstruct.predict.weights import Placement, stage_weights

MODELS = (
    "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen3-8B", "Qwen/Qwen2.5-1.5B-Instruct",
    "mistralai/Mistral-7B-Instruct-v0.3", "ibm-granite/granite-3.1-8b-instruct", "microsoft/phi-4", "google/gemma-7b-it",
)  # fmt: skip
CARD = Card("large", 1 << 42, exact=True, context=0, libraries=0, blas_workspace=EARLIER_WORKSPACE)


def allocated(config, ranks, version):
    """Bytes of a rank's weights as the modelled allocator charges them, after the cache was emptied."""
    device = SimulatedDevice(CARD)
    shape, era = decoder_shape(config, ranks), era_of(version)
    device.allocator.max_split_size = 20 << 20 if "load_model" in era.split_limited else None
    with device.running(), torch.no_grad():
        made = Decoder(shape, device.torch_device, shape.dtype, compiled=True, scalars=era.attention_scalars)
        device.empty_cache()
        assert made.layers
        return device.stats().allocated


@pytest.mark.parametrize("version", ["0.10.2", "0.19.0"])
@pytest.mark.parametrize("model", MODELS)
def test_weights_are_those_that_plan_computes(model, version):
    """Of one rank, within what plan says of its own error."""
    config = full_config(model)
    placed = Placement(Split(1, 1), 1, 2, release_of(version))
    (planned,) = stage_weights(config, shape_of(config), scheme_of(config, None), placed)
    low, high = planned.interval
    assert low <= allocated(config, 1, version) <= high
