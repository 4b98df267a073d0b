"""V0's cache; block bytes measured by running the releases' own get_cache_block_size."""

from __future__ import annotations

import pytest

from reconstruct.planner import Launch, Unsupported, WouldNotStart, plan_from_layers
from reconstruct.planner.v0 import cache_block_bytes, num_cpu_blocks, v0_rules
from tests.reconstruct.planner.layer_models import GIB, LLAMA_8B, full, mamba, mla


@pytest.mark.parametrize(
    ("version", "dense", "latent"),
    [
        ("0.2.7", 2097152, 2248704),
        ("0.6.6", 2097152, 2248704),
        ("0.7.1", 2097152, 1124352),
        ("0.7.2", 2097152, 1249280),
        ("0.7.3", 2097152, 1249280),
        ("0.8.5", 2097152, 1124352),
        ("0.10.2", 2097152, 1124352),
    ],
)
def test_block_bytes_by_release(version, dense, latent):
    """32 layers of 8 heads of 128, and 61 MLA layers of 576: two vectors, one, one aligned to 256 bytes, one."""
    rules = v0_rules(version)
    assert cache_block_bytes(32, full(), rules) == dense
    assert cache_block_bytes(61, mla(block=16), rules) == latent


def test_v0_plans_by_default_before_0_7_3():
    """Blocks, tokens and concurrency of a uniform cache."""
    plan = plan_from_layers([LLAMA_8B], Launch("0.6.6", max_model_len=8192), 37123456789)
    assert (plan.num_blocks, plan.kv_cache_tokens, plan.longest_request) == (17701, 283216, 283216)
    assert plan.max_concurrency == 17701 * 16 / 8192
    assert plan.groups[0].blocks_per_request == 512


def test_v0_is_planned_when_v1_is_switched_off():
    """MLA in 0.7.3: V0 stores one aligned vector, V1 keys and values."""
    launch = Launch("0.7.3", max_model_len=1024, use_v1=False)
    assert plan_from_layers([[mla(block=16)] * 61], launch, GIB).bytes_per_block == 1249280
    assert plan_from_layers([[mla(block=16)] * 61], launch._replace(use_v1=True), GIB).bytes_per_block == 2248704


def test_the_fewest_blocks_of_any_rank_win():
    """Uneven stages: the rank with more layers decides, the other's memory stays unused."""
    launch = Launch("0.6.6", max_model_len=1024, pipeline_parallel_size=2, tensor_parallel_size=2)
    plan = plan_from_layers([LLAMA_8B[:10], LLAMA_8B[:22]], launch, 20 * GIB)
    assert (plan.num_blocks, plan.binding_rank, plan.bytes_per_block) == (14894, 2, 22 * 65536)
    assert [rank.blocks for rank in plan.ranks] == [32768, 32768, 14894, 14894]


def test_states_take_no_blocks():
    """Jamba in V0: only attention layers count."""
    plan = plan_from_layers([[full(), mamba(None)] * 4], Launch("0.6.6", max_model_len=16), GIB)
    assert plan.bytes_per_block == 4 * 65536


def test_stages_share_the_blocks_in_the_length_check_from_0_8_0():
    """8 blocks hold 128 tokens, or 64 when two stages share them."""
    stages, memory = [LLAMA_8B[:16], LLAMA_8B[:16]], 8 * 16 * 65536
    launch = Launch("0.7.3", max_model_len=100, pipeline_parallel_size=2, use_v1=False)
    assert plan_from_layers(stages, launch, memory).num_blocks == 8
    with pytest.raises(WouldNotStart, match="64 tokens"):
        plan_from_layers(stages, launch._replace(engine_version="0.8.0"), memory)


def test_v0_refuses_what_does_not_fit():
    """No blocks, or fewer tokens than one request."""
    launch = Launch("0.6.6", max_model_len=8192)
    with pytest.raises(WouldNotStart, match="gpu_memory_utilization"):
        plan_from_layers([LLAMA_8B], launch, 1 << 20)
    with pytest.raises(WouldNotStart, match="8192 tokens"):
        plan_from_layers([LLAMA_8B], launch, GIB // 2)


def test_v0_plans_one_geometry_only():
    """Layers of several geometries, and releases without V0, are not guessed."""
    with pytest.raises(Unsupported, match="one geometry"):
        plan_from_layers([[full(), full(heads=2)]], Launch("0.6.6", max_model_len=16), GIB)
    with pytest.raises(Unsupported, match="no V0 engine"):
        plan_from_layers([LLAMA_8B], Launch("0.11.0", max_model_len=16, use_v1=False), GIB)


def test_swap_space_holds_cpu_blocks():
    """4 GiB of swap space in blocks of 2 MiB."""
    assert num_cpu_blocks(4 * GIB, 2097152) == 2048
