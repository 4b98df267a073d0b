"""The cache of a probe is the one that `blocks` plans: windows, groups, every release."""

import json

import pytest

from kvforensics import probing
from kvforensics.blocks import blocks
from kvforensics.probe_cache import cache_plans, kv_plan
from kvforensics.probe_flags import Flags
from kvforensics.probing import Request, probe
from live_probe.eras import ERAS
from live_probe.launch import LaunchOptions, batches
from reconstruct.interval import Interval
from reconstruct.planner.errors import WouldNotStart
from reconstruct.planner.launch import Launch
from tests.kvforensics.measured import MIB, TINY, probe_here

VERSIONS = [".".join(map(str, era.since)) for era in ERAS]
EVERY_SECOND = ["sliding_attention", "full_attention"] * 2
WINDOWED = {
    "no window": {},
    "one window": {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 64},
    "every second layer": {"num_hidden_layers": 4, "sliding_window": 64, "layer_types": EVERY_SECOND},
    "unused": {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "sliding_window": 64, "use_sliding_window": False},
    "the last of six": {
        "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "num_hidden_layers": 6, "sliding_window": 64,
        "use_sliding_window": True, "max_window_layers": 2, "layer_types": ["full_attention"] * 2 + ["sliding_attention"] * 4,
    },
}  # fmt: skip


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    monkeypatch.setattr(probing, "probe_torch", probe_here)


@pytest.mark.parametrize("version", ["0.8.0", "0.10.2", "0.19.0", "0.33.0"])
@pytest.mark.parametrize("model", WINDOWED)
def test_a_probe_has_the_blocks_and_tokens_of_the_same_memory(tmp_path, model, version):
    """What the child divided, to the byte, and what its pool holds."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**TINY, **WINDOWED[model]}))
    flags = Flags(max_num_batched_tokens=128, max_num_seqs=16, enforce_eager=True)
    report = probe(Request(str(path), flags, device="sim:512MiB", engine_version=version))
    assert not report.died
    measured = report.startups[0].engines[0].capacity
    pool = measured.interval("kv_pool_memory")
    planned = blocks(str(path), Launch(version, max_num_batched_tokens=128), pool)
    assert planned.outcome == "starts"
    for name in (
        "num_blocks", "bytes_per_block", "block_size", "max_model_len", "kv_cache_bytes", "unused_kv_memory",
        "kv_cache_tokens", "max_concurrency",
    ):  # fmt: skip
        assert measured.interval(name) == planned.account.interval(name), name


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("model", WINDOWED)
def test_the_tensors_of_the_pool_are_its_divisor(model, version):
    """A page for each layer of the widest group; below the least memory the engine refuses, at it it starts."""
    config = {**TINY, **WINDOWED[model]}
    options = LaunchOptions(max_num_batched_tokens=128, max_model_len=300)
    (plan,) = cache_plans(config, version, options)
    whole = kv_plan(config, version, options, 128, plan.least_memory)
    assert plan.bytes_per_block == whole.bytes_per_block
    assert len(plan.pages) <= config["num_hidden_layers"]
    with pytest.raises(WouldNotStart):
        kv_plan(config, version, options, 128, plan.least_memory - 1)


def test_a_window_holds_the_tokens_in_flight():
    """So that the larger batch needs more for one request: one plan for each batch that a card may have."""
    config = {**TINY, **WINDOWED["one window"], "max_position_embeddings": 65536}
    plans = cache_plans(config, "0.33.0", LaunchOptions())
    assert [plan.max_num_batched_tokens for plan in plans] == list(batches(LaunchOptions(), "0.33.0"))
    least = [plan.least_memory for plan in plans]
    assert least == sorted(set(least))


def test_a_length_beyond_the_models_is_refused_before_anything_runs(tmp_path, monkeypatch):
    """As the engine refuses it, with its words."""
    monkeypatch.setattr(probing, "probe_torch", lambda *_: pytest.fail("it ran"))
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    with pytest.raises(probing.UsageFault, match="max_model_len"):
        probe(Request(str(tmp_path), Flags(max_model_len=1 << 20), device="sim:512MiB"))


def test_a_rank_keeps_its_own_heads(tmp_path):
    """Tensor-parallel ranks share the key heads, and so a block."""
    whole, half = (
        cache_plans(TINY, "0.33.0", LaunchOptions(max_num_batched_tokens=128, tensor_parallel_size=ranks))[0]
        for ranks in (1, 2)
    )
    assert whole.bytes_per_block == 2 * half.bytes_per_block
    planned = blocks(str(_written(tmp_path)), Launch("0.33.0", tensor_parallel_size=2), Interval.exactly(64 * MIB))
    assert planned.account.interval("bytes_per_block").low == half.bytes_per_block


def _written(folder):
    (folder / "config.json").write_text(json.dumps(TINY))
    return folder
