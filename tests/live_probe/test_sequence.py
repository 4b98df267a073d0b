"""The whole start-up on simulated cards: every era, every way to die, and the ledger's own laws."""

import gc

import pytest
import torch

from kvforensics.probe_cache import cache_plans
from live_probe.cards import parse_card
from live_probe.eras import ERAS
from live_probe.families import FAMILIES
from live_probe.launch import LaunchOptions
from live_probe.run import probe
from live_probe.shape import decoder_shape
from live_probe.simulated import SimulatedDevice
from tests.live_probe.tiny import tiny

MIB = 1 << 20
GIB = 1 << 30
VERSIONS = [".".join(map(str, era.since)) for era in ERAS]
KINDS = sorted({family: name for name, family in FAMILIES.items()}.values())
"""One family of each kind."""
STEPS_0_33 = [
    "init_device",
    "init_runner",
    "load_model",
    "init_sampler",
    "memory_profiling",
    "profile_run",
    "profile_cudagraph_memory",
    "initialize_kv_cache",
    "capture_model",
    "replay_profile_run",
]


def values(result):
    return {measurement.name: measurement.value for measurement in result.measurements}


@pytest.mark.parametrize("version", [*VERSIONS, "0.25.0", "0.29.0"])
def test_the_ledger_of_every_release_closes(start, make_device, version):
    """M = R - (C + H) - G, and the pool is what M holds of whole blocks: KV <= M < KV + one block."""
    result = start(make_device(), version)
    assert result.failure is None
    read = values(result)
    assert read["non_kv_cache_memory"] == read["total_consumed"] + read["transient_peak_headroom"]
    available = read["requested_memory"] - read["non_kv_cache_memory"] - read["cudagraph_memory_applied"]
    assert read["available_kv_cache_memory"] == available == read["kv_pool_memory"]
    assert read["kv_cache_bytes"] <= available < read["kv_cache_bytes"] + read["bytes_per_block"]
    assert read["unused_kv_memory"] == available - read["kv_cache_bytes"]
    assert read["total_consumed"] >= read["model_memory"] > 0


@pytest.mark.parametrize("version", ["0.8.0", "0.18.0", "0.33.0"])
@pytest.mark.parametrize("family", KINDS)
def test_cpu_and_meta_tensors_agree_to_the_byte(start, make_device, family, version):
    """Every figure and every snapshot, its time apart."""
    one, other = (start(make_device(backing=backing), version, tiny(family)) for backing in ("cpu", "meta"))
    assert one.failure is None
    assert values(one) == values(other)
    assert [s._replace(seconds=0) for s in one.snapshots] == [s._replace(seconds=0) for s in other.snapshots]


def test_snapshots_frame_every_step_and_come_as_they_are_taken(start, make_device):
    """The callback has heard all of them, before and after, in order."""
    heard = []
    result = start(make_device(), on_snapshot=heard.append)
    assert tuple(heard) == result.snapshots
    assert [s.step for s in heard if s.when == "before"] == STEPS_0_33
    assert sorted(s.step for s in heard if s.when == "after") == sorted(s.step for s in heard if s.when == "before")
    assert [s.seconds for s in heard] == sorted(s.seconds for s in heard)
    assert {s.total for s in heard} == {512 * MIB}


def test_weights_are_the_sum_of_the_allocators_blocks(start, make_device, config):
    """Before the split limit every tensor of this small model is charged in 512 B steps, each attention's scalars too."""
    shape = decoder_shape(config)
    elements = [
        *[1024 * 128] * 2,
        512 * shape.head_dim,
        128,
        *[size for _ in range(2) for size in (256 * 128, 128 * 128, 768 * 128, 128 * 384, 128, 128, *[2] * 4)],
    ]
    assert values(start(make_device(), "0.19.0"))["model_memory"] == sum(-(-2 * n // 512) * 512 for n in elements)


def test_the_profile_peak_of_a_sorting_release_is_the_closed_form(start, make_device, config):
    """(b + 36) * R * V: 16-bit logits, a float32 copy, sorted values and indices, 20 B of scratch each."""
    rows, vocab = 256, 32000
    big = {**config, "vocab_size": vocab}
    options = LaunchOptions(max_num_batched_tokens=256, max_num_seqs=rows, enforce_eager=True)
    read = values(start(make_device(2048), "0.16.0", big, options))
    assert read["transient_peak_headroom"] == pytest.approx((2 + 36) * rows * vocab, rel=0.05)
    later = values(start(make_device(2048), "0.20.0", big, options))
    assert later["transient_peak_headroom"] == pytest.approx((2 + 12) * rows * vocab, rel=0.15)


def test_the_profile_batch_needs_its_headroom_again_once_the_pool_is_full(start, make_device):
    """What H is kept for; nothing else was taken away meanwhile."""
    read = values(start(make_device(), "0.33.0"))
    assert read["replay_peak_headroom"] == pytest.approx(read["transient_peak_headroom"], rel=0.02)


def test_free_memory_falls_by_the_pool(start, make_device):
    """One tensor a layer, each rounded up to at most one segment step."""
    result = start(make_device(), "0.33.0")
    before, after = (s for s in result.snapshots if s.step == "initialize_kv_cache")
    taken, pool = before.free - after.free, values(result)["kv_cache_bytes"]
    assert pool <= taken <= pool + 2 * 2 * MIB


@pytest.mark.parametrize(
    ("mib", "changes", "step", "message"),
    [
        (32, {"hidden_size": 4096}, "load_model", "out of memory"),
        (64, {"vocab_size": 64000}, "profile_run", "out of memory"),
        (192, {"num_key_value_heads": 4, "max_position_embeddings": 262144}, "plan_kv_cache", "one request"),
    ],
    ids=["weights", "profile", "one request"],
)
def test_a_card_too_small_names_the_step_it_died_in(start, make_device, config, mib, changes, step, message):
    """With what was free then, and every figure up to there."""
    device = make_device(mib)
    result = start(device, "0.20.2", {**config, **changes})
    assert result.failure is not None
    assert (result.failure.step, result.failure.total) == (step, mib * MIB)
    assert message in result.failure.message
    assert 0 <= result.failure.free < mib * MIB
    assert values(result)["requested_memory"] > 0
    began = [s.step for s in result.snapshots if s.when == "before"]
    assert sorted(began) == sorted(s.step for s in result.snapshots if s.when == "after")


@pytest.mark.parametrize(
    ("version", "spare", "starts"),
    [("0.28.0", 0, True), ("0.28.0", -1, False), ("0.29.0", 1, True), ("0.29.0", 0, False)],
)
def test_one_request_must_fit_beside_the_block_that_the_pool_keeps(
    start, make_device, config, options, version, spare, starts
):
    """To the block: get_kv_cache_configs leaves one out since 0.29."""
    per_block = config["num_hidden_layers"] * 2 * 16 * config["num_key_value_heads"] * 32 * 2
    pool = (config["max_position_embeddings"] // 16 + spare) * per_block
    result = start(make_device(), version, options=options._replace(kv_cache_memory_bytes=pool))
    assert (result.failure is None) is starts
    if not starts:
        assert (result.failure.step, result.failure.kind) == ("plan_kv_cache", "StartRefusedError")


def test_a_negative_rest_is_measured_and_refused(start, make_device, config):
    """M below zero is a figure like any other; the engine stops at the plan."""
    tight = LaunchOptions(0.04, None, 256, 16)
    result = start(make_device(512), "0.33.0", {**config, "vocab_size": 32000}, tight)
    assert values(result)["available_kv_cache_memory"] < 0
    assert result.failure is not None
    assert (result.failure.step, result.failure.kind) == ("plan_kv_cache", "StartRefusedError")
    assert "--gpu-memory-utilization" in result.failure.message


@pytest.mark.parametrize(("version", "refused"), [("0.9.0", False), ("0.9.1", True), ("0.33.0", True)])
def test_less_free_than_requested_is_refused_since_0_9_1(start, make_device, version, refused):
    """Before, the foreign memory is charged to the engine instead."""
    result = start(make_device(512, used=128), version)
    assert (result.failure is not None) == refused
    if refused:
        assert result.failure.step == "request_memory"
        assert [s.step for s in result.snapshots] == ["init_device", "init_device"]


def growing(device, step, when, mib):
    """Let others change their use of the card at one point of the start."""

    def hear(snapshot):
        if (snapshot.step, snapshot.when) == (step, when):
            device.others += mib * MIB

    return hear


def test_others_growing_meanwhile_are_charged_to_the_engine(start, make_device):
    """total_consumed is a difference of free memory, whoever took it."""
    quiet = values(start(make_device(), "0.33.0"))
    device = make_device()
    loud = values(start(device, "0.33.0", on_snapshot=growing(device, "load_model", "before", 40)))
    assert loud["total_consumed"] == quiet["total_consumed"] + 40 * MIB
    assert loud["model_memory"] == quiet["model_memory"]
    assert loud["num_blocks"] < quiet["num_blocks"]


@pytest.mark.parametrize("version", ["0.8.5", "0.20.2", "0.33.0"])
def test_others_shrinking_meanwhile_stop_the_start(start, make_device, version):
    """More free memory than before the model: no engine of any era goes on with that."""
    device = make_device(1024, used=60)
    hear = growing(device, "profile_run", "before", -60)
    result = start(device, version, options=LaunchOptions(0.6, None, 256, 16), on_snapshot=hear)
    assert result.failure is not None
    assert (result.failure.step, result.failure.kind) == ("memory_profiling", "StartRefusedError")
    assert "another process released memory" in result.failure.message


def test_others_growing_after_the_plan_break_the_allocation(start, make_device):
    """The pool was planned on memory that is gone."""
    device = make_device()
    result = start(device, on_snapshot=growing(device, "initialize_kv_cache", "before", 200))
    assert result.failure is not None
    assert result.failure.step == "initialize_kv_cache"
    assert values(result)["num_blocks"] > 0


def test_a_given_pool_skips_the_terms_with_reasons(start, make_device, options):
    """kv_cache_memory_bytes: one profile run, nothing measured from it."""
    result = start(make_device(), options=options._replace(kv_cache_memory_bytes=10 * MIB))
    read = values(result)
    assert read["kv_pool_memory"] == 10 * MIB
    assert "total_consumed" not in read
    assert {absent.name for absent in result.missing} >= {"total_consumed", "available_kv_cache_memory"}
    assert all(absent.reason for absent in result.missing)


def test_an_eager_start_captures_nothing(start, make_device, options):
    """No estimate worth anything, no actual, and the reason."""
    result = start(make_device(), options=options._replace(enforce_eager=True))
    assert result.failure is None
    assert values(result)["cudagraph_memory_applied"] == 0
    assert "cudagraph_memory_actual" not in values(result)
    assert "capture_model" not in {s.step for s in result.snapshots}


@pytest.mark.parametrize(
    ("version", "estimated", "charged"),
    [("0.17.0", False, False), ("0.18.0", True, False), ("0.20.0", True, True), ("0.25.0", True, False)],
)
def test_graphs_are_estimated_and_charged_by_release(start, make_device, version, estimated, charged):
    """The V2 runner of 0.22-0.28 estimates nothing: 0 is what the engine itself has there."""
    result = start(make_device(), version)
    read = values(result)
    assert ("cudagraph_memory_estimate" in read) == estimated
    assert (read["cudagraph_memory_applied"] > 0) == charged
    assert read["cudagraph_memory_actual"] > 0


def test_the_estimate_can_be_switched_off(start, make_device, options):
    """VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0: taken, not applied."""
    read = values(start(make_device(), "0.20.0", options=options._replace(estimate_cudagraphs=False)))
    assert read["cudagraph_memory_estimate"] > 0 == read["cudagraph_memory_applied"]


def test_a_card_that_answers_no_more_still_leaves_its_ledger(start, make_device):
    """After a fault of a kernel every call fails: the first message stands, with what was free before."""
    device = make_device()

    def fail(snapshot):
        if (snapshot.step, snapshot.when) == ("profile_run", "before"):
            device.synchronize = device.memory = device.empty_cache = refuse
            raise RuntimeError("CUDA error: an illegal memory access")

    def refuse():
        raise RuntimeError("CUDA error: again")

    total = device.memory().total
    result = start(device, on_snapshot=fail)
    assert result.failure.message == "CUDA error: an illegal memory access"
    assert (result.failure.step, result.failure.total) == ("profile_run", total)
    assert result.failure.free == result.snapshots[-1].free


def test_the_split_limit_frees_what_a_small_tenant_would_pin(start, make_device, config):
    """0.21 charges whole 2 MiB steps for large weights where 0.20 shares segments."""
    wide = {**config, "hidden_size": 1024, "intermediate_size": 5248, "num_attention_heads": 8}
    before = values(start(make_device(1024), "0.20.0", wide))["model_memory"]
    after = values(start(make_device(1024), "0.21.0", wide))["model_memory"]
    assert after > before


def test_since_0_31_the_profile_run_is_charged_whole_segments_too(start, make_device, config, options):
    """Scores of 30.5 MiB take 32 under the split limit."""
    rows = options._replace(max_num_seqs=256, cudagraph_capture_sizes=(1,))
    before, after = (
        values(start(make_device(1024), version, {**config, "vocab_size": 62464}, rows))
        for version in ("0.30.0", "0.31.0")
    )
    assert 0 < after["transient_peak_headroom"] - before["transient_peak_headroom"] <= 2 * MIB


def test_the_v1_runner_samples_once_more_after_the_capture(start, make_device):
    """GPUModelRunner: what that leaves in the cache stays there; the V2 runner does not."""
    steps = [s.step for s in start(make_device(), "0.20.0").snapshots if s.when == "before"]
    assert steps[-3:] == ["capture_model", "dummy_sampler_run", "replay_profile_run"]
    assert "dummy_sampler_run" not in STEPS_0_33


def test_the_blas_warm_up_moves_the_workspace_into_the_baseline(start, make_device):
    """0.33 takes it before the first snapshot, 0.32 pays for it in total_consumed."""
    late = values(start(make_device(1024, libraries=30 * MIB), "0.32.0"))
    early = values(start(make_device(1024, libraries=30 * MIB), "0.33.0"))
    assert late["initial_free_memory"] - early["initial_free_memory"] == 30 * MIB + 20 * MIB
    assert late["total_consumed"] - early["total_consumed"] >= 30 * MIB


@pytest.mark.parametrize("version", ["0.10.2", "0.33.0"])
@pytest.mark.parametrize("backing", ["cpu", "meta"])
def test_everything_is_given_back_however_a_start_ends(start, make_device, version, backing):
    """Only cuBLAS' own workspace stays, as on a real card."""

    def interrupt(snapshot):
        if (snapshot.step, snapshot.when) == ("initialize_kv_cache", "after"):
            raise KeyboardInterrupt

    for on_snapshot in (lambda _snapshot: None, interrupt):
        device = make_device(backing=backing)
        result = start(device, version, on_snapshot=on_snapshot)
        assert (result.failure is None) == (on_snapshot is not interrupt)
        gc.collect()
        device.empty_cache()
        assert device.stats().allocated == device.card.blas_workspace
        assert device.stats().reserved == 20 * MIB


@pytest.mark.parametrize("step", STEPS_0_33)
def test_an_interrupt_in_any_step_leaves_the_ledger_so_far(start, make_device, step):
    """Ctrl-C is a failure with a step, not a traceback."""

    def interrupt(snapshot):
        if (snapshot.step, snapshot.when) == (step, "before"):
            raise KeyboardInterrupt

    result = start(make_device(), "0.33.0", on_snapshot=interrupt)
    assert result.failure is not None
    assert (result.failure.kind, result.failure.step) == ("interrupted", step)


def test_a_broken_kernel_is_a_failure_of_its_step(start, make_device, monkeypatch):
    """torch raises RuntimeError for whatever a device refuses."""

    def refuse(*_args, **_kwargs):
        raise RuntimeError("CUBLAS_STATUS_ALLOC_FAILED\nand more")

    monkeypatch.setattr(torch, "mm", refuse)
    result = start(make_device(), "0.33.0")
    assert result.failure is not None
    assert (result.failure.step, result.failure.message) == ("init_device", "CUBLAS_STATUS_ALLOC_FAILED")


@pytest.mark.slow
def test_a_published_start_of_llama_8b_on_h100_is_met():
    """vLLM 0.19.0 prints 14.99 GiB of weights and 1.88 GiB of peak there; 4.76 GiB up to 0.16."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
        "torch_dtype": "bfloat16",
    }
    options = LaunchOptions(max_model_len=8192, enforce_eager=True)
    for version, peak in (("0.19.0", 1.88), ("0.16.0", 4.76)):
        plans = cache_plans(config, version, options)
        record = probe(config, SimulatedDevice.from_card(parse_card("sim:H100-80GB")), version, options, plans)
        assert record.value("model_memory") / GIB == pytest.approx(14.989, abs=0.001)
        assert record.value("transient_peak_headroom") / GIB == pytest.approx(peak, rel=0.02)
