"""Releases: which sequence, which runner, which defaults. Boundaries read from the sources on both sides."""

from contextlib import nullcontext

import pytest

from kvforensics.probe_cache import cache_plans
from live_probe.eras import (
    ERAS,
    NEWEST,
    UnsupportedVersionError,
    capture_sizes,
    default_runner,
    era_of,
    release_of,
)
from live_probe.launch import LaunchError, LaunchOptions, batch_defaults, resolve
from live_probe.shape import decoder_shape
from reconstruct.planner.config import layer_specs
from reconstruct.planner.launch import Launch
from reconstruct.predict.defaults import settled
from reconstruct.predict.hardware import hardware_of
from reconstruct.predict.scenario import Scenario
from reconstruct.releases import EXAMINED

GIB = 1 << 30


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("0.20.2", (0, 20, 2)),
        ("v0.9.0.1", (0, 9, 0, 1)),
        ("0.23.1rc1.dev1201+gd08eebad1", (0, 23, 1)),
        ("0.11.0+cpu", (0, 11, 0)),
        ("0.33", (0, 33)),
    ],
)
def test_releases_are_read_without_their_suffixes(text, release):
    """Local parts and candidates count as the release they lead to."""
    assert release_of(text) == release


@pytest.mark.parametrize("text", ["", "newest", "0", "main-3f2a"])
def test_what_is_no_version_is_refused(text):
    """With the spelling that is wanted."""
    with pytest.raises(UnsupportedVersionError, match=r"0\.20\.2"):
        release_of(text)


def test_eras_follow_each_other_and_cover_all_later_releases():
    """Strictly ascending; the last one holds for what is still to come."""
    assert [era.since for era in ERAS] == sorted({era.since for era in ERAS})
    assert era_of("1.2.3") is ERAS[-1]
    with pytest.raises(UnsupportedVersionError, match=r"0\.8\.0"):
        era_of("0.7.3")


def test_the_newest_sequence_is_that_of_the_newest_release_examined():
    """A release added to the parsers alone would be probed as its predecessor without a word."""
    assert release_of(EXAMINED[-1]) == NEWEST


@pytest.mark.parametrize(
    ("before", "first", "field"),
    [
        ("0.9.0.1", "0.9.1", "budget"),
        ("0.9.0.1", "0.9.1", "terms"),
        ("0.9.2", "0.10.0", "capture_ladder"),
        ("0.10.2", "0.11.0", "graph_modes"),
        ("0.11.0", "0.11.1", "capture_ladder"),
        ("0.13.0", "0.14.0", "budget"),
        ("0.16.0", "0.17.0", "sampler"),
        ("0.17.1", "0.18.0", "graph_profile"),
        ("0.19.1", "0.20.0", "graphs_charged"),
        ("0.19.1", "0.20.0", "gpu_memory_utilization"),
        ("0.20.2", "0.21.0", "split_limited"),
        ("0.26.0", "0.27.0", "terms"),
        ("0.26.0", "0.27.0", "graph_profile"),
        ("0.30.0", "0.31.0", "split_limited"),
        ("0.32.0", "0.33.0", "blas_warm_up"),
    ],
)
def test_each_change_comes_with_its_release(before, first, field):
    """Not one release earlier."""
    assert getattr(era_of(before), field) != getattr(era_of(first), field)


@pytest.mark.parametrize(
    ("version", "architecture", "runner"),
    [
        ("0.21.0", "Qwen3ForCausalLM", "v1"),
        ("0.22.0", "Qwen3ForCausalLM", "v2"),
        ("0.22.1", "LlamaForCausalLM", "v1"),
        ("0.23.0", "LlamaForCausalLM", "v2"),
        ("0.24.0", "Qwen2ForCausalLM", "v1"),
        ("0.25.0", "Qwen2ForCausalLM", "v2"),
    ],
)
def test_the_runner_is_the_releases_own_choice(version, architecture, runner):
    """VllmConfig.use_v2_model_runner."""
    assert default_runner(version, (architecture,)) == runner


@pytest.mark.parametrize(
    ("version", "seqs", "tokens", "count", "largest"),
    [
        ("0.9.2", 4, 8192, 67, 512),
        ("0.10.2", 1024, 8192, 67, 512),
        ("0.10.2", 16, 8192, 7, 32),
        ("0.19.0", 1024, 8192, 51, 512),
        ("0.33.0", 128, 8192, 35, 256),
        ("0.33.0", 1, 8192, 2, 2),
        ("0.33.0", 1024, 64, 11, 64),
    ],
)
def test_default_graph_sizes(version, seqs, tokens, count, largest):
    """51 mixed graphs is what vLLM 0.19.0 logs on an H100."""
    sizes = capture_sizes(era_of(version), seqs, tokens)
    assert (len(sizes), sizes[0]) == (count, largest)
    assert list(sizes) == sorted(set(sizes), reverse=True)


@pytest.mark.parametrize(
    ("version", "name", "gib", "defaults"),
    [
        ("0.33.0", "NVIDIA H100 80GB HBM3", 79, (8192, 1024)),
        ("0.33.0", "NVIDIA A100-SXM4-80GB", 79, (2048, 256)),
        ("0.8.5", "NVIDIA A100-SXM4-80GB", 79, (8192, 1024)),
        ("0.33.0", "NVIDIA GB10", 121, (2048, 256)),
        ("0.32.0", "NVIDIA GB10", 121, (8192, 1024)),
        ("0.27.1", "NVIDIA B200", 178, (8192, 1024)),
        ("0.28.0", "NVIDIA B200", 178, (16384, 1024)),
        ("0.33.0", "NVIDIA L4", 22, (2048, 256)),
    ],
)
def test_batch_defaults_of_the_server(version, name, gib, defaults):
    """EngineArgs.get_batch_defaults."""
    assert batch_defaults(version, name, gib * GIB) == defaults


def resolved(config, options, version):
    plans = cache_plans(config, version, options)
    return resolve(options, version, decoder_shape(config), plans, "NVIDIA L4", 22 * GIB)


def test_settings_left_out_get_the_releases_defaults(config):
    """And those given are kept."""
    launch = resolved(config, LaunchOptions(), "0.19.1")
    assert (launch.gpu_memory_utilization, launch.max_model_len) == (0.9, 512)
    assert (launch.max_num_batched_tokens, launch.max_num_seqs) == (2048, 256)
    assert (launch.runner, launch.dtype, launch.charge_graphs) == ("v1", "bfloat16", False)
    given = LaunchOptions(0.5, 100, 64, 8, dtype="float32", enforce_eager=True, estimate_cudagraphs=True)
    launch = resolved(config, given, "0.20.0")
    assert launch[2:6] == (0.5, 64, 8, "float32")
    assert (launch.max_model_len, launch.block_size) == (100, 16)
    assert (launch.capture_sizes, launch.charge_graphs) == ((), True)


@pytest.mark.parametrize(
    ("version", "asked", "tokens"),
    [
        ("0.11.0", LaunchOptions(max_num_seqs=2, max_model_len=100), 2048),
        ("0.11.1", LaunchOptions(max_num_seqs=2, max_model_len=100), 200),
        ("0.33.0", LaunchOptions(max_num_seqs=64, max_model_len=100), 2048),
        ("0.33.0", LaunchOptions(max_num_seqs=2, max_model_len=100, max_num_batched_tokens=300), 300),
    ],
)
def test_a_default_batch_holds_no_more_than_all_sequences(config, version, asked, tokens):
    """EngineArgs: min(max_num_seqs * max_model_len, the default), which plan knows as well."""
    assert resolved(config, asked, version).max_num_batched_tokens == tokens
    launch = Launch(version, max_num_seqs=asked.max_num_seqs, max_model_len=100,
                    max_num_batched_tokens=asked.max_num_batched_tokens or 8192)  # fmt: skip
    scenario = Scenario(
        config, launch, hardware_of("L4"), batched_tokens_given=asked.max_num_batched_tokens is not None
    )
    assert settled(scenario, layer_specs(config, launch)).batched_tokens == tokens


@pytest.mark.parametrize("fraction", [0, -1, 1.5, 90])
def test_an_impossible_fraction_is_refused(config, fraction):
    """--gpu-memory-utilization 90 is a common slip."""
    with pytest.raises(LaunchError, match="fraction"):
        resolved(config, LaunchOptions(fraction), "0.33.0")


def test_more_requests_than_tokens_of_a_batch_are_refused_once_the_card_is_known(config):
    """As vLLM's SchedulerConfig does; what a card that is not read yet gives by default nobody knows."""
    for options, total, refused in (
        (LaunchOptions(max_num_batched_tokens=64, max_num_seqs=65), 0, True),
        (LaunchOptions(max_num_seqs=4096), 24 * GIB, True),
        (LaunchOptions(max_num_seqs=4096), 0, False),
        (LaunchOptions(max_num_seqs=4096), 80 * GIB, False),
        (LaunchOptions(max_num_batched_tokens=64, max_num_seqs=64), 24 * GIB, False),
    ):
        with pytest.raises(LaunchError, match="max_num_seqs") if refused else nullcontext():
            resolve(options, "0.33.0", decoder_shape(config), cache_plans(config, "0.33.0", options), "card", total)


def test_the_cache_is_the_one_planned_for_the_batches_of_the_card(config):
    """The plans are made before the card is known: one for each batch that it may come to."""
    plans = cache_plans(config, "0.33.0", LaunchOptions())
    for name, gib in (("NVIDIA L4", 22), ("NVIDIA H100 80GB HBM3", 79), ("NVIDIA B200", 178)):
        launch = resolve(LaunchOptions(), "0.33.0", decoder_shape(config), plans, name, gib * GIB)
        assert launch.cache.max_num_batched_tokens == launch.max_num_batched_tokens
    with pytest.raises(LaunchError, match="no cache was planned"):
        resolve(LaunchOptions(max_num_batched_tokens=77), "0.33.0", decoder_shape(config), plans, "NVIDIA L4", 22 * GIB)
