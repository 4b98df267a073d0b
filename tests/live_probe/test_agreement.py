"""Two models of one thing: what the torch engine allocates, and what `plan` computes from a config.

reconstruct/predict may not import live_probe, which imports nothing but itself, so the allocator, the making of the rope
cache and attention's scalars are written in both. Here weights are held equal, byte for byte, the activation peak within
the band that `plan` states for it.
"""

from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kvforensics.probe_cache import cache_plans
from live_probe.allocator import CachingAllocator, CardMemory
from live_probe.cards import EARLIER_WORKSPACE, Card, parse_card
from live_probe.decoder import Decoder
from live_probe.eras import ERAS, default_runner, era_of, release_of
from live_probe.families import FAMILIES
from live_probe.launch import LaunchOptions
from live_probe.run import probe
from live_probe.shape import decoder_shape
from live_probe.simulated import SimulatedDevice
from reconstruct.planner.config import layer_specs
from reconstruct.planner.launch import Launch
from reconstruct.predict.allocation import SPLIT_LIMIT, Tensor, charged_in_all
from reconstruct.predict.defaults import settled
from reconstruct.predict.hardware import hardware_of
from reconstruct.predict.ledger import predict
from reconstruct.predict.parts import Split
from reconstruct.predict.peak import Subject
from reconstruct.predict.runner import runner_of
from reconstruct.predict.scenario import Scenario
from reconstruct.predict.scheme import scheme_of
from reconstruct.predict.shape import shape_of
from reconstruct.predict.sizes import full_config
from reconstruct.predict.weights import Placement, stage_weights
from reconstruct.predict.workspaces import CHUNKS, expert_workspace
from tests.live_probe.tiny import EXPERTS, tiny

MODELS = (
    "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen3-8B", "Qwen/Qwen2.5-1.5B-Instruct",
    "mistralai/Mistral-7B-Instruct-v0.3", "ibm-granite/granite-3.1-8b-instruct", "microsoft/phi-4", "google/gemma-7b-it",
    "google/gemma-2-9b-it", "google/gemma-2-27b-it", "google/gemma-3-1b-it", "google/gemma-3-27b-it",
    "microsoft/Phi-3-mini-128k-instruct", "microsoft/Phi-4-mini-instruct",
)  # fmt: skip
WITH_EXPERTS = ("mistralai/Mixtral-8x7B-v0.1", "Qwen/Qwen3-30B-A3B", "Qwen/Qwen1.5-MoE-A2.7B")
CARD = Card("large", 1 << 42, exact=True, context=0, libraries=0, blas_workspace=EARLIER_WORKSPACE)
MIB = 1 << 20


def config_of(model):
    """The config of a model; of one that sees images too, its decoder's."""
    config = full_config(model)
    if "text_config" not in config:
        return config
    return {**config["text_config"], "architectures": ["Gemma3ForCausalLM"], "torch_dtype": config["torch_dtype"]}


def allocated(config, ranks, version, dtype):
    """Bytes of a rank's weights as the modelled allocator charges them, after the cache was emptied."""
    device = SimulatedDevice(CARD)
    shape, era = decoder_shape(config, ranks), era_of(version)
    device.allocator.max_split_size = SPLIT_LIMIT if "load_model" in era.split_limited else None
    with device.running(), torch.no_grad():
        made = Decoder(shape, device.torch_device, dtype, compiled=True, era=era)
        device.empty_cache()
        assert made.layers
        return device.stats().allocated


def planned(config, ranks, version, width):
    placed = Placement(Split(ranks, 1), 1, width, release_of(version))
    (found,) = stage_weights(config, shape_of(config), scheme_of(config, None), placed)
    return found.nominal


@pytest.mark.parametrize("version", ["0.19.0", "0.33.0"])
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("model", [*MODELS, *WITH_EXPERTS])
def test_weights_are_those_that_plan_computes(model, ranks, version):
    """Real configs, whose rope caches are large."""
    config = config_of(model)
    assert planned(config, ranks, version, 2) == allocated(config, ranks, version, "bfloat16")


SIZES = st.fixed_dictionaries(
    {
        "hidden_size": st.sampled_from([512, 1536, 4096]),
        "intermediate_size": st.sampled_from([1024, 8960, 14336]),
        "num_hidden_layers": st.integers(1, 8),
        "num_attention_heads": st.sampled_from([8, 16]),
        "num_key_value_heads": st.sampled_from([1, 2, 8]),
        "head_dim": st.sampled_from([64, 128]),
        "vocab_size": st.sampled_from([1000, 49155, 151936]),
        "max_position_embeddings": st.sampled_from([2048, 32768, 131072, 1 << 20]),
        "partial_rotary_factor": st.sampled_from([0.5, 1.0]),
    },
    optional={
        "attention_bias": st.booleans(), "mlp_bias": st.booleans(), "tie_word_embeddings": st.booleans(),
        "sliding_window_pattern": st.integers(1, 4),
        "layer_types": st.lists(st.sampled_from(["sliding_attention", "full_attention"]), min_size=8, max_size=8),
    },
)  # fmt: skip
EXPERT_SIZES = st.fixed_dictionaries(
    {
        "num_experts": st.sampled_from([4, 60]),
        "moe_intermediate_size": st.sampled_from([768, 1408]),
        "shared_expert_intermediate_size": st.sampled_from([0, 1408, 5632]),
        "decoder_sparse_step": st.sampled_from([1, 2]),
        "mlp_only_layers": st.sampled_from([[], [0], [1, 2]]),
    }
)
ROPES = st.one_of(
    st.just({}),
    st.builds(
        lambda kind, factor: {"rope_scaling": {"rope_type": kind, "factor": factor}},
        st.sampled_from(["llama3", "linear", "dynamic", "yarn"]),
        st.sampled_from([2.0, 4.0]),
    ),
    st.builds(
        lambda short: {"rope_scaling": {"rope_type": "longrope"}, "original_max_position_embeddings": short},
        st.sampled_from([1024, 4096]),
    ),
    st.builds(
        lambda factor: {
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": factor},
                "sliding_attention": {"rope_type": "default"},
            }
        },
        st.sampled_from([2.0, 8.0]),
    ),
)


@given(
    st.sampled_from(sorted(FAMILIES)),
    SIZES,
    ROPES,
    EXPERT_SIZES,
    st.sampled_from([1, 2, 4]),
    st.sampled_from([".".join(map(str, era.since)) for era in ERAS]),
    st.sampled_from([("bfloat16", 2), ("float32", 4)]),
)
def test_weights_of_any_small_config_agree(family, sizes, rope, experts, ranks, version, dtype):
    """Every family, bias, rope type, kind of experts and release."""
    config = {**tiny(family), **sizes, **rope, **(experts if family in EXPERTS else {})}
    name, width = dtype
    assert planned(config, ranks, version, width) == allocated(config, ranks, version, name)


H100 = parse_card("sim:H100-80GB")


def both(model, version, rows, tokens, ranks=1, *, eager=False):
    """What the torch engine measures of two layers, which need what all of them need, and what plan says of them."""
    config = {**config_of(model), "num_hidden_layers": 2}
    options = LaunchOptions(
        tensor_parallel_size=ranks, max_model_len=4096, max_num_batched_tokens=tokens, max_num_seqs=rows,
        cudagraph_capture_sizes=(1,), enforce_eager=eager,
    )  # fmt: skip
    plans = cache_plans(config, version, options)
    measured = probe(config, SimulatedDevice.from_card(H100), version, options, plans)
    launch = Launch(
        version, tensor_parallel_size=ranks, max_model_len=4096, max_num_batched_tokens=tokens, max_num_seqs=rows
    )
    card = hardware_of("H100-80GB")
    found = predict(Scenario(config, launch, card, batched_tokens_given=True, enforce_eager=eager))
    return measured, found.engine.ranks[0].account


@pytest.mark.parametrize("version", ["0.10.2", "0.13.0", "0.19.0", "0.33.0"])
@pytest.mark.parametrize(
    ("model", "rows", "tokens"),
    [*product((*MODELS, *WITH_EXPERTS), (512,), (4096,)), *product((*MODELS, *WITH_EXPERTS), (4,), (8192,))],
)
def test_the_activation_peak_lies_in_the_band_that_plan_states(model, rows, tokens, version):
    """Where sampling decides it, and where the forward pass does."""
    measured, account = both(model, version, rows, tokens)
    assert account.interval("transient_peak_headroom").contains(measured.value("transient_peak_headroom"))
    assert account.interval("model_memory").contains(measured.value("model_memory"))


@pytest.mark.parametrize("version", ["0.10.2", "0.33.0"])
@pytest.mark.parametrize("ranks", [4, 8])
@pytest.mark.parametrize(
    "model", ["Qwen/Qwen3-8B", "microsoft/Phi-3-mini-128k-instruct", "mistralai/Mixtral-8x7B-v0.1"]
)
def test_the_peak_of_narrow_shards_lies_in_the_band_that_plan_states(model, ranks, version):
    """Where an eighth of the intermediate size is less than a hidden state, other points of a layer are the widest."""
    measured, account = both(model, version, 4, 32768, ranks)
    assert account.interval("transient_peak_headroom").contains(measured.value("transient_peak_headroom"))


@pytest.mark.parametrize("version", ["0.10.2", "0.33.0"])
@pytest.mark.parametrize(("ranks", "tokens"), [(1, 8192), (2, 32768)])
@pytest.mark.parametrize("model", [m for m in (*MODELS, *WITH_EXPERTS) if m != "microsoft/phi-4"])
def test_the_eager_peak_lies_in_the_band_that_plan_states(model, ranks, tokens, version):
    """Without compiled pieces the model's frames keep other tensors."""
    measured, account = both(model, version, 4, tokens, ranks, eager=True)
    assert account.interval("transient_peak_headroom").contains(measured.value("transient_peak_headroom"))


@pytest.mark.parametrize(("version", "kept"), [("0.13.0", False), ("0.14.0", True), ("0.20.2", True), ("0.33.0", True)])
@pytest.mark.parametrize("model", WITH_EXPERTS)
def test_what_experts_keep_is_what_plan_computes(model, version, kept):
    """One workspace for all layers, from 0.14.0 on; beside it stay cuBLAS' own and the sampler's rows of scores."""
    config = {**config_of(model), "num_hidden_layers": 2}
    options = LaunchOptions(max_model_len=4096, max_num_batched_tokens=4096, max_num_seqs=8, enforce_eager=True)
    device = SimulatedDevice(CARD)
    measured = probe(config, device, version, options, cache_plans(config, version, options))
    before, after = (s.allocated for s in measured.snapshots if s.step == "profile_run")
    launch = Launch(version, max_model_len=4096, max_num_batched_tokens=4096, max_num_seqs=8)
    scenario = Scenario(config, launch, hardware_of("A100-80GB"), batched_tokens_given=True, enforce_eager=True)
    shape, scheme = shape_of(config), scheme_of(config, None)
    subject = Subject(
        scenario, settled(scenario, layer_specs(config, launch)), shape, scheme, first=True, last=True, layers=2
    )
    workspace = expert_workspace(subject)
    stays = workspace.bytes.low if kept else 0
    assert workspace.persistent == kept
    assert 0 <= after - before - stays <= EARLIER_WORKSPACE + 8 * config["vocab_size"] * 4


@pytest.mark.parametrize("version", ["0.8.5", "0.11.2", "0.12.0", "0.17.1", "0.18.0", "0.33.0"])
def test_passes_of_the_experts_begin_with_the_same_release(version):
    """The eras' row and the table of `plan`."""
    chunk = next(size for since, size in CHUNKS if release_of(version) >= since)
    assert (era_of(version).expert_pass or None) == chunk


@pytest.mark.parametrize("version", ["0.21.0", "0.22.1", "0.23.0", "0.24.0", "0.25.0", "0.28.0", "0.29.0", "0.33.0"])
@pytest.mark.parametrize("family", FAMILIES)
def test_both_take_the_same_model_runner(family, version):
    """VllmConfig.use_v2_model_runner."""
    config = tiny(family)
    shape = decoder_shape(config)
    runner = default_runner(version, shape.architectures, experts=shape.experts is not None)
    assert runner_of(Scenario(config, Launch(version), hardware_of("H100-80GB"))) == runner.upper()


@pytest.mark.parametrize(
    ("kind", "blocks"), [("default", 1), ("llama3", 1), ("linear", 2), ("dynamic", 2), ("yarn", 3)]
)
def test_what_each_rope_type_leaves_behind_serves_later_weights(kind, blocks):
    """Six layers of 24 MiB matrices; each block of 32 MiB that was left behind goes to one, 8 MiB too many."""
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16", "hidden_size": 4096,
        "intermediate_size": 1536, "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 8,
        "head_dim": 128, "vocab_size": 1024, "max_position_embeddings": 65536,
        "rope_scaling": {"rope_type": kind, "factor": 2.0, "original_max_position_embeddings": 65536},
    }  # fmt: skip
    wasted = planned(config, 1, "0.33.0", 2) - planned(config, 1, "0.20.0", 2)
    assert planned(config, 1, "0.33.0", 2) == allocated(config, 1, "0.33.0", "bfloat16")
    assert wasted == blocks * 8 * MIB


def held(allocator, tensor):
    parts = [held(allocator, part) for part in tensor.made_from]
    block = allocator.malloc(tensor.nbytes)
    for part in parts:
        allocator.free(part)
    return block


BYTES = st.one_of(
    st.integers(1, 3 * MIB), st.integers(MIB, 100 * MIB), st.sampled_from([10, 12, 20, 40]).map(MIB.__mul__)
)
TENSORS = st.recursive(
    st.builds(Tensor, BYTES, st.just(())),
    lambda parts: st.builds(lambda size, made: Tensor(size, tuple(made)), BYTES, st.lists(parts, max_size=4)),
    max_leaves=12,
)


@given(st.lists(TENSORS, max_size=12), st.sampled_from([None, SPLIT_LIMIT]))
def test_both_allocators_charge_the_same(tensors, limit):
    """Tensors made from others, which leave free blocks of every size."""
    allocator = CachingAllocator(CardMemory(1 << 42))
    allocator.max_split_size = limit
    for tensor in tensors:
        held(allocator, tensor)
    assert charged_in_all(tensors, limit) == allocator.stats().allocated
