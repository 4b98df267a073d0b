"""Models, cards and scenarios for the tests of the prediction."""

from __future__ import annotations

from reconstruct.interval import Interval
from reconstruct.planner.launch import Launch
from reconstruct.predict.hardware import hardware_of
from reconstruct.predict.scenario import Scenario
from reconstruct.predict.sizes import full_config

GIB = 1 << 30
LLAMA_8B = "meta-llama/Llama-3.1-8B-Instruct"


def scenario(model=LLAMA_8B, *, gpu="H100-80GB", version="0.19.0", utilization=0.95, config=None, **options):
    """Build a scenario; options go to the scenario where it has the field, else to the launch."""
    own = {name: options.pop(name) for name in list(options) if name in Scenario._fields}
    options.setdefault("max_model_len", 8192)
    hardware = hardware_of(gpu)
    launch = Launch(version, device=hardware.device, **options)
    found = config if config is not None else full_config(model)
    return Scenario(found, launch, hardware, utilization, **own)


def decoder(**fields):
    """Build the config of a small llama-shaped decoder."""
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 1024, "intermediate_size": 2816,
        "num_hidden_layers": 8, "num_attention_heads": 16, "num_key_value_heads": 8, "vocab_size": 32000,
        "max_position_embeddings": 8192, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    }  # fmt: skip
    return config | fields


def around(gib, half=0.005):
    """Give the bytes that print as `gib` with two decimals."""
    return Interval(int((gib - half) * GIB), int((gib + half) * GIB))
