"""The decoder and the samplers: sizes in closed form, and that they really compute."""

import pytest
import torch

from kvforensics.probe_cache import cache_plans
from live_probe.buffers import RunnerBuffers, SamplerBuffers
from live_probe.decoder import Decoder
from live_probe.eras import era_of
from live_probe.families import FAMILIES
from live_probe.graphs import CaptureGroup, GraphCapturer, capture_groups
from live_probe.launch import LaunchOptions, resolve
from live_probe.samplers import TritonBuffers, dummy_sampler
from live_probe.shape import decoder_shape
from tests.live_probe.tiny import tiny

MIB = 1 << 20
GIB = 1 << 30
TOKENS = 4096


def forward_peak(device, shape, *, compiled):
    """Bytes above the weights that one forward needs."""
    with device.running(), torch.no_grad():
        decoder = Decoder(shape, device.torch_device, "bfloat16", compiled=compiled)
        ids = torch.zeros(TOKENS, dtype=torch.int32, device=device.torch_device)
        decoder.forward(ids.narrow(0, 0, 1))
        device.reset_peak()
        before = device.stats().allocated
        decoder.forward(ids)
        return device.stats().allocated_peak - before


@pytest.mark.parametrize(("compiled", "hiddens"), [(True, 4), (False, 3)])
def test_a_forward_needs_three_or_four_hidden_states_and_three_mlp_widths(make_device, config, compiled, hiddens):
    """T*b*(q + 3h + 3I) compiled, T*b*(3h + 3I) eager; here q = h."""
    shape = decoder_shape({**config, "hidden_size": 512, "intermediate_size": 2048})
    peak = forward_peak(make_device(4096), shape, compiled=compiled)
    assert peak == TOKENS * 2 * (hiddens * 512 + 3 * 2048)


@pytest.mark.parametrize(
    ("version", "tokens", "hiddens"), [("0.11.0", 4096, 4), ("0.11.1", 4096, 3), ("0.33.0", 1024, 4)]
)
def test_the_input_of_an_mlp_waits_where_its_weights_are_the_wider_point(make_device, config, version, tokens, hiddens):
    """From torch 2.9 on memory waits for a later tensor only where no peak rises: here up to 2h = 1024 tokens."""
    shape = decoder_shape({**config, "hidden_size": 512, "intermediate_size": 2048})
    device = make_device(4096)
    with device.running(), torch.no_grad():
        decoder = Decoder(shape, device.torch_device, "bfloat16", compiled=True, era=era_of(version), tokens=tokens)
        ids = torch.zeros(TOKENS, dtype=torch.int32, device=device.torch_device)
        decoder.forward(ids.narrow(0, 0, 1))
        device.reset_peak()
        before = device.stats().allocated
        decoder.forward(ids)
        assert device.stats().allocated_peak - before == TOKENS * 2 * (hiddens * 512 + 3 * 2048)


@pytest.mark.parametrize("intermediate", [64, 512])
def test_where_queries_are_rotated_is_the_widest_point_of_a_narrow_mlp(make_device, config, intermediate):
    """Queries and keys as projected and as rotated, values, room for the output, and the last layer's output and residuals."""
    shape = decoder_shape({**config, "hidden_size": 512, "intermediate_size": intermediate})
    widest = max(4 * 512 + 2 * 512 + 3 * shape.kv_size, 4 * 512 + 3 * intermediate)
    assert forward_peak(make_device(4096), shape, compiled=True) == TOKENS * 2 * widest


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("family", ["gemma", "gemma2", "gemma3_text"])
def test_norms_behind_attention_and_mlp_keep_nothing_more(make_device, config, family, compiled):
    """T*b*(q + 3h + 3I) compiled; eager, norms that write new tensors leave the layer's input and residual: 4h + 3I."""
    shape = decoder_shape({**config, "hidden_size": 512, "intermediate_size": 2048, "model_type": family})
    assert forward_peak(make_device(4096), shape, compiled=compiled) == TOKENS * 2 * (4 * 512 + 3 * 2048)


@pytest.mark.parametrize("intermediate", [512, 2048])
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("compiled", [True, False])
def test_a_rank_needs_its_share_of_the_mlp_or_the_sum_over_all(make_device, config, compiled, ranks, intermediate):
    """The activation as for one rank, then the last projection, compiled the rotated queries; eager, its sum goes beside all
    that the frames hold."""
    h, q, i = 512, 512 // ranks, intermediate // ranks
    shape = decoder_shape(
        {**config, "hidden_size": h, "intermediate_size": intermediate, "num_key_value_heads": 4}, ranks
    )
    rotated = 4 * q + 2 * h + 3 * shape.kv_size
    widths = (q + 3 * h + 3 * i, q + 4 * h + i, rotated) if compiled else (3 * h + 3 * i, 5 * h + i)
    assert forward_peak(make_device(4096), shape, compiled=compiled) == TOKENS * 2 * max(widths)


def test_scores_of_all_ranks_are_gathered(make_device, config):
    """Rank by rank, then row by row; only a rank's rows of the output layer are there."""
    shape = decoder_shape(config, 2)
    device = make_device(backing="cpu")
    with device.running(), torch.no_grad():
        decoder = Decoder(shape, device.torch_device, "float32", compiled=True)
        hidden = torch.eye(3, 128)
        local = torch.nn.functional.linear(hidden, decoder.parameters.head)
        scores = decoder.logits(hidden)
    assert local.shape == (3, 512)
    assert scores.shape == (3, 1000)
    assert torch.equal(scores[:, :512], local)
    assert torch.equal(scores[:, 512:], local[:, :488])


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_real_forward_gives_finite_scores(compiled, family):
    """One row of scores for each token, over the unpadded vocabulary."""
    tied = {"tie_word_embeddings": True} if family == "qwen3" else {}
    shape = decoder_shape({**tiny(family), "mlp_bias": True, **tied})
    with torch.no_grad():
        decoder = Decoder(shape, torch.device("cpu"), "float32", compiled=compiled)
        hidden = decoder.forward(torch.arange(10, dtype=torch.int32))
        logits = decoder.logits(hidden)
    assert hidden.shape == (10, 128)
    assert logits.shape == (10, 1000)
    assert torch.isfinite(logits).all()
    tied = decoder.parameters.head is decoder.parameters.embedding
    assert tied == (family in ("qwen3", "gemma", "gemma2", "gemma3_text"))


def test_every_weight_is_counted_once(config):
    """Biases and head norms with them; a tied head is the embedding, a rope cache one for all layers of a kind."""
    changes = (
        {}, {"attention_bias": True, "mlp_bias": True}, {"model_type": "qwen3", "tie_word_embeddings": True},
        {"model_type": "gemma2"}, {"model_type": "gemma3_text", "sliding_window_pattern": 2},
    )  # fmt: skip
    made = [
        Decoder(decoder_shape({**config, **change}), torch.device("meta"), "bfloat16", compiled=True)
        for change in changes
    ]
    assert [len(decoder.parameters.weights()) for decoder in made] == [
        2 * 6 + 4, 2 * 10 + 4, 2 * 8 + 3, 2 * 8 + 4, 2 * 10 + 5,
    ]  # fmt: skip


def test_the_rope_cache_is_made_in_float32_and_what_that_took_serves_later_weights(make_device, config):
    """Positions, angles, their cosines and sines, both together: over 2.5 times the float32 cache; then the served one."""
    rows = 1 << 20
    shape = decoder_shape({**config, "max_position_embeddings": rows, "num_hidden_layers": 1})
    device = make_device(4096)
    with device.running(), torch.no_grad():
        decoder = Decoder(shape, device.torch_device, "bfloat16", compiled=True)
        kept = device.stats()
    full = rows * shape.ropes.caches[0].width * 4
    assert decoder.layers[0].rope.nbytes == full // 2
    assert kept.allocated_peak - kept.allocated == pytest.approx(rows * 4 + 2 * full, abs=2 * MIB)
    assert kept.reserved >= 2.5 * full


def test_layers_with_a_window_make_a_rope_cache_of_their_own(config):
    """Gemma 3: every sixth layer sees everything and scales its positions, the first of each kind makes the cache."""
    scaled = {"rope_scaling": {"rope_type": "linear", "factor": 8.0}, "num_hidden_layers": 8}
    shape = decoder_shape({**config, **scaled, "model_type": "gemma3_text"})
    decoder = Decoder(shape, torch.device("meta"), "bfloat16", compiled=True)
    caches = [layer.rope for layer in decoder.layers]
    assert [cache.shape[0] for cache in caches] == [512] * 5 + [4096] + [512] * 2
    assert len({id(cache) for cache in caches}) == 2


def test_longrope_keeps_a_table_for_short_requests_before_the_long_one(config):
    """Phi3LongRoPEScaledRotaryEmbedding."""
    long = {"model_type": "phi3", "rope_scaling": {"type": "su"}, "original_max_position_embeddings": 128}
    decoder = Decoder(decoder_shape({**config, **long}), torch.device("meta"), "bfloat16", compiled=True)
    assert decoder.layers[0].rope.shape == (512 + 128, 32)


def launch_of(config, version, rows=64, **options):
    shape = decoder_shape(config)
    chosen = LaunchOptions(max_num_seqs=rows, max_num_batched_tokens=256, **options)
    return shape, resolve(chosen, version, shape, cache_plans(config, version, chosen), "card", 80 * GIB)


def sampling_peak(device, version, rows, config):
    """Bytes that sampling takes beyond the logits."""
    _, launch = launch_of(config, version, rows)
    sample = dummy_sampler(launch, era_of(version).sampler, TritonBuffers(device.multiprocessors))
    with device.running(), torch.no_grad():
        logits = torch.zeros(rows, 32000, dtype=torch.bfloat16, device=device.torch_device)
        device.reset_peak()
        before = device.stats().allocated
        sampled = sample(logits)
        assert sampled.shape == (rows,)
        return device.stats().allocated_peak - before


@pytest.mark.parametrize(
    ("version", "rows", "per_score"),
    [
        ("0.10.2", 256, 36),
        ("0.16.0", 256, 36),
        ("0.17.0", 256, 12),
        ("0.21.0", 256, 12),
        ("0.30.0", 256, 0),
        ("0.33.0", 256, 12),
    ],
)
@pytest.mark.parametrize("backing", ["cpu", "meta"])
def test_sampling_takes_its_bytes_for_each_score(make_device, config, version, rows, per_score, backing):
    """36 B with a sort, 12 B without; the V2 runner samples 16-bit logits alone until 0.33."""
    taken = sampling_peak(make_device(4096, backing=backing), version, rows, config)
    assert taken == pytest.approx(per_score * rows * 32000, abs=3 * MIB)


def test_few_rows_are_still_sorted_until_0_31(make_device, config):
    """apply_top_k_top_p wants eight rows for Triton; the V1 runner is Qwen2's until 0.25."""
    few, many = (sampling_peak(make_device(4096), "0.20.0", rows, config) / rows for rows in (4, 8))
    assert few > 2 * many


def test_triton_scratch_is_kept_and_grows(make_device):
    """One row of scores for each program, by powers of two, at most one a multiprocessor."""
    device = make_device(multiprocessors=6)
    buffers = TritonBuffers(6)
    with device.running():
        for rows, kept in ((2, 2), (3, 4), (10, 6), (4, 6)):
            scores = torch.zeros(rows, 1024, device=device.torch_device)
            assert buffers.filter(scores) is scores
            del scores
            assert device.stats().allocated == kept * 4096


def test_runner_buffers_differ_by_runner(make_device, config):
    """V1 keeps embeddings and block tables from the start, V2 penalty counters."""
    sizes = {}
    for version in ("0.21.0", "0.25.0"):
        shape, launch = launch_of(config, version)
        device = make_device()
        with device.running():
            kept = RunnerBuffers(launch, shape, device.torch_device)
            sizes[launch.runner] = device.stats().allocated
            assert kept.input_ids.shape == (256,)
            if launch.runner == "v2":
                sampler = SamplerBuffers(launch, shape, device.torch_device)
                assert device.stats().allocated - sizes["v2"] >= 64 * 1000 * 4
                del sampler
    assert sizes["v1"] - sizes["v2"] >= 256 * 128 * 2 + 64 * 32 * 4 + 256 * 8


def test_capture_groups_follow_the_release(config):
    """Full graphs hold one token a sequence."""
    _, launch = launch_of(config, "0.10.2", 16, cudagraph_capture_sizes=(1, 32, 8))
    assert capture_groups(launch, era_of("0.10.2")) == (CaptureGroup("PIECEWISE", (32, 8, 1)),)
    assert capture_groups(launch, era_of("0.11.0"))[1] == CaptureGroup("FULL", (8, 1))


def test_estimate_and_capture_of_the_same_graphs(make_device, config):
    """A throw-away estimate leaves nothing; one mode of two sizes is estimated as what it takes."""
    _, launch = launch_of(config, "0.20.0", 16, cudagraph_capture_sizes=(64, 8))
    device = make_device(1024)
    with device.running():
        capturer = GraphCapturer(
            device, lambda size: torch.zeros(size, MIB, dtype=torch.int8, device=device.torch_device)
        )
        groups = (CaptureGroup("FULL", (64, 8)),)
        free = device.memory().free
        estimate = capturer.estimate(groups, launch)
        assert device.memory().free == free
        pool, actual = capturer.capture(groups)
    assert 64 * MIB <= actual <= estimate <= actual + 4 * MIB
    pool.release()
    device.empty_cache()
    assert device.memory().free == free
