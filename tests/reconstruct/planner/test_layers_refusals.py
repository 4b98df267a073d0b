"""What the engine refuses, in its order, and what is not known."""

from __future__ import annotations

import pytest

from reconstruct.planner import BadSetting, Launch, Unsupported, WouldNotStart, plan_from_layers
from reconstruct.planner.result import NotStated
from reconstruct.planner.spec import LayerSpec
from tests.reconstruct.planner.layer_models import GIB, LLAMA_8B, NEMOTRON_NANO, chunked, full, mamba, mla, sliding


def planned(layers, version, memory=GIB, **settings):
    settings.setdefault("max_model_len", 1024)
    return plan_from_layers([layers], Launch(version, **settings), memory)


def test_no_memory_is_told_apart_from_too_little():
    """The engine looks at the memory before it adds up a request."""
    with pytest.raises(WouldNotStart, match="no memory is left"):
        planned(LLAMA_8B, "0.32.0", -5)
    with pytest.raises(WouldNotStart, match="one request of 8192 tokens needs 1073741824 bytes"):
        planned(LLAMA_8B, "0.28.0", GIB - 1, max_model_len=8192)


def test_a_request_that_fits_exactly_needs_one_more_block_from_0_29_0():
    """The null block is taken off before the check."""
    assert planned(LLAMA_8B, "0.28.0", max_model_len=8192).num_blocks == 512
    with pytest.raises(WouldNotStart, match="the longest that fits has 8176 tokens"):
        planned(LLAMA_8B, "0.29.0", max_model_len=8192)
    assert planned(LLAMA_8B, "0.29.0", GIB + 32 * 65536, max_model_len=8192).num_blocks == 513


def test_old_releases_ask_for_memory_before_they_look_at_the_layers():
    """Two kinds of trouble at once: the memory is named until 0.13, the layers after."""
    layers = [full()] * 4 + [full(heads=3, block=32)] + [sliding(window=64)]
    with pytest.raises(WouldNotStart, match="one request"):
        planned(layers, "0.9.1", 1 << 20)
    with pytest.raises(WouldNotStart, match="one request"):
        planned(layers, "0.12.0", 1 << 20)
    with pytest.raises(WouldNotStart, match="does not divide"):
        planned(layers, "0.14.0", 1 << 20)


def test_hybrids_with_states_need_the_hybrid_manager():
    """States cannot be promoted to full attention; the wording changed in 0.27.0."""
    with pytest.raises(WouldNotStart, match="Hybrid KV cache manager is disabled"):
        planned(NEMOTRON_NANO, "0.26.0", 64 * GIB, disable_hybrid_kv_cache_manager=True)
    with pytest.raises(WouldNotStart, match="Failed to promote"):
        planned(NEMOTRON_NANO, "0.27.0", 64 * GIB, disable_hybrid_kv_cache_manager=True)


def test_windows_can_be_planned_as_full_attention():
    """With the hybrid manager off, sliding and chunked layers keep blocks for every token."""
    for local in (sliding(), chunked()):
        off = planned([full(), local] * 4, "0.32.0", disable_hybrid_kv_cache_manager=True)
        assert (off.bytes_per_block, [len(group.layers) for group in off.groups]) == (8 * 65536, [8])


def test_two_windows_cannot_share_one_group():
    """Promoted windows of different sizes do not merge."""
    with pytest.raises(WouldNotStart, match="same window size"):
        planned([full(), sliding(), sliding(window=512)], "0.32.0", disable_hybrid_kv_cache_manager=True)


def test_auto_fit_came_with_0_14_0():
    """Older releases do not know -1; the layers alone never say the model's own length."""
    assert planned(LLAMA_8B, "0.14.0", max_model_len=131072, autofit=True).max_model_len == 8192
    with pytest.raises(Unsupported, match=r"0\.14\.0"):
        planned(LLAMA_8B, "0.13.0", autofit=True)
    for length in (None, -1):
        with pytest.raises(Unsupported, match="max_model_len is needed"):
            planned(LLAMA_8B, "0.32.0", max_model_len=length)


def test_auto_fit_without_room_for_one_token():
    """One block for the pool and none for a request."""
    with pytest.raises(WouldNotStart, match="not even one token"):
        planned(LLAMA_8B, "0.32.0", 32 * 65536, autofit=True)


def test_context_parallelism_splits_a_request():
    """Each of two ranks keeps half of a request's tokens, so a block spans twice as many."""
    alone, shared = (planned(LLAMA_8B, "0.10.2", decode_context_parallel_size=size) for size in (1, 2))
    assert shared.kv_cache_tokens == 2 * alone.kv_cache_tokens
    assert (alone.blocks_per_request, shared.blocks_per_request) == ((64,), (32,))
    with pytest.raises(Unsupported, match=r"0\.10\.2"):
        planned(LLAMA_8B, "0.10.1", decode_context_parallel_size=2)


def test_context_parallelism_does_not_work_with_windows():
    """Refused in every release, unless the window's layer is replicated (0.31.0 on)."""
    with pytest.raises(WouldNotStart, match="sliding windows"):
        planned([sliding()] * 4, "0.30.0", decode_context_parallel_size=2)
    replicated = [sliding(dcp_sharded=False)] * 4
    assert planned(replicated, "0.31.0", decode_context_parallel_size=2).blocks_per_request == (65,)


def test_groups_and_context_parallelism_exclude_each_other_from_0_20_to_0_25():
    """Several groups cannot be split in those releases."""
    layers = [full(heads=1, block=2096), mamba(2146304)]
    with pytest.raises(WouldNotStart, match="single cache group"):
        planned(layers, "0.25.0", decode_context_parallel_size=2)


def test_an_unknown_model_runner_is_not_guessed_where_it_matters():
    """0.26 to 0.29 choose the runner by model; with two stages a window then holds two or three batches."""
    stages = [[full(), sliding()]] * 2
    launch = Launch("0.27.1", max_model_len=131072, max_num_batched_tokens=2048, pipeline_parallel_size=2)
    with pytest.raises(Unsupported, match="model runner"):
        plan_from_layers(stages, launch, 8 * GIB)
    assert plan_from_layers(stages, launch._replace(async_scheduling=False), 8 * GIB).num_blocks == 8 * GIB // 65536
    assert isinstance(plan_from_layers(stages, launch._replace(max_model_len=4096), 8 * GIB).longest_request, NotStated)


def test_batches_in_flight_widen_windows_from_0_26_0():
    """One batch before, two with asynchronous scheduling, three with two stages under the newer runner."""

    def blocks(version, stages=1, **settings):
        launch = Launch(
            version, max_model_len=131072, max_num_batched_tokens=2048, pipeline_parallel_size=stages, **settings
        )
        return plan_from_layers([[full(), sliding()]] * stages, launch, 64 * GIB).blocks_per_request[1]

    assert blocks("0.25.0") == -(-(1023 + 2048) // 16) + 1
    assert blocks("0.26.0") == -(-(1023 + 2 * 2048) // 16) + 1
    assert blocks("0.26.0", async_scheduling=False) == blocks("0.25.0")
    assert blocks("0.30.0", stages=2) == -(-(1023 + 3 * 2048) // 16) + 1


def test_a_stage_without_cache_layers():
    """0.10 plans one block for it, later releases fail."""
    stages = [LLAMA_8B[:4], []]
    launch = Launch("0.10.2", max_model_len=16, pipeline_parallel_size=2)
    assert plan_from_layers(stages, launch, GIB).num_blocks == 1
    for version in ("0.9.2", "0.11.0", "0.32.0"):
        with pytest.raises(WouldNotStart):
            plan_from_layers(stages, launch._replace(engine_version=version), GIB)


def test_a_model_without_cache_layers_has_one_block_and_no_capacity():
    """Encoder-only models start from 0.10.0 on."""
    plan = planned([], "0.32.0", 0)
    assert (plan.num_blocks, plan.bytes_per_block, plan.groups) == (1, 0, ())
    assert isinstance(plan.kv_cache_tokens, NotStated)
    with pytest.raises(WouldNotStart, match="without cache layers"):
        planned([], "0.9.2", 0)


def test_cross_attention_before_0_11_needs_the_models_encoder_length():
    """0.10.2 asks the model; later releases take the scheduler's limit."""
    layers = [full(), LayerSpec("CrossAttentionSpec", 16, 8, 128, 128)] * 2
    with pytest.raises(Unsupported, match="encoder length"):
        planned(layers, "0.10.2")
    assert planned(layers, "0.10.2", max_num_encoder_input_tokens=1500).blocks_per_request == (94, 64)
    assert planned(layers, "0.32.0").blocks_per_request == (64, 512)


def test_uneven_pages_depend_on_the_backend_from_0_24_to_0_28():
    """Padding is refused before, not known between, done after."""
    layers = [full(), sliding(heads=3)] * 2
    with pytest.raises(WouldNotStart, match="does not divide"):
        planned(layers, "0.23.0")
    with pytest.raises(Unsupported, match="attention backend"):
        planned(layers, "0.24.0")
    assert planned(layers, "0.29.0").groups[1].page_padding_bytes == 2 * (65536 - 3 * 8192)


def test_latent_and_window_layers_fall_back_to_full_attention_from_0_27_0():
    """Pages that cannot be unified make one group of one type."""
    layers = [mla(block=16)] * 3 + [sliding(size=64)]
    plan = planned(layers, "0.32.0")
    assert (plan.groups[0].kind, plan.groups[0].pages) == ("UniformTypeKVCacheSpecs", (18432,) * 3 + (32768,))
    with pytest.raises(WouldNotStart, match="does not divide"):
        planned(layers, "0.23.0")


def test_memory_comes_for_all_ranks_or_for_each():
    """One number, one a stage, one a rank; anything else is refused."""
    launch = Launch("0.32.0", max_model_len=16, tensor_parallel_size=2, pipeline_parallel_size=2)
    stages = [LLAMA_8B[:10], LLAMA_8B[:22]]
    plans = [plan_from_layers(stages, launch, memory) for memory in (20 * GIB, [20 * GIB] * 2, [20 * GIB] * 4)]
    assert [plan.num_blocks for plan in plans] == [14894] * 3
    assert [rank.bytes_per_block for rank in plans[0].ranks] == [655360, 655360, 1441792, 1441792]
    with pytest.raises(BadSetting, match="4 of them"):
        plan_from_layers(stages, launch, [GIB] * 3)


def test_mixed_pages_of_all_stages_are_counted_until_0_16_0():
    """A worker of a two-stage model with an indexer divides by the whole model's pages before 0.17.0."""
    stages = [[mla(cache_dtype_str="auto"), mla(132, dtype="uint8")] * 5] * 2
    launch = Launch("0.16.0", max_model_len=64, pipeline_parallel_size=2)
    whole = plan_from_layers(stages, launch, GIB)
    share = plan_from_layers(stages, launch._replace(engine_version="0.17.0"), GIB)
    assert (whole.bytes_per_block, share.bytes_per_block) == (821760, 410880)


def test_stages_must_form_the_same_groups_before_0_11_0():
    """Stages are grouped one by one, and their groups are compared."""
    stages = [[full(), sliding()], [sliding(), sliding()]]
    launch = Launch("0.10.2", max_model_len=64, pipeline_parallel_size=2)
    with pytest.raises(WouldNotStart, match="different cache groups"):
        plan_from_layers(stages, launch, GIB)
    assert plan_from_layers(stages, launch._replace(engine_version="0.11.0"), GIB).num_blocks == GIB // 65536


def test_the_engines_block_size_follows_the_groups_from_0_18_0():
    """The smallest of any group; ring buffers do not count from 0.30.0 on."""
    layers = [full(block=64), sliding(block=64)]
    assert planned(layers, "0.17.1", block_size=16).block_size == 16
    assert planned(layers, "0.18.0", block_size=16).block_size == 64
    rings = [mla(block=16), LayerSpec("CircularBufferSpec", 8, 1, 128, 128)]
    assert planned(rings, "0.29.0").block_size == 8
    assert planned(rings, "0.30.0").block_size == 16
