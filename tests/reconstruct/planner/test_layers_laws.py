"""Laws that every plan of every release keeps."""

from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from reconstruct.planner import Launch, LayerSpec, Unsupported, WouldNotStart, plan_from_layers
from reconstruct.planner.releases import ROWS
from reconstruct.planner.rules import release_of
from tests.reconstruct.planner.layer_models import deepseek_v4, full, mla, sliding

RELEASES = [first for first, _source, _changes in ROWS]
VERSIONS = st.sampled_from(RELEASES)
FITTING = st.sampled_from(["0.14.0", "0.17.1", "0.20.2", "0.29.0", "0.32.0"])
LENGTHS = st.sampled_from([1, 100, 5003, 8192])
MEMORY = st.integers(1 << 32, 1 << 38)


@st.composite
def starts(draw, versions=VERSIONS):
    """Layers that a release can plan (dense, windowed, states, several page sizes, DeepSeek-V4), and its settings."""
    version = draw(versions)
    heads, size = draw(st.sampled_from([1, 2, 4, 8])), draw(st.sampled_from([64, 128, 256]))
    layers, every = draw(st.integers(2, 12)), draw(st.integers(2, 6))
    shapes = [[full(heads, size)] * layers]
    shapes.append([full(heads, size) if i % every == 0 else sliding(heads, size) for i in range(layers * 2)])
    if release_of(version) >= (0, 9, 2):
        shapes.append([full(heads, size, 1040) if i % every == 0 else _state(heads, size) for i in range(layers * 2)])
    if release_of(version) >= (0, 11):
        shapes.append([mla(cache_dtype_str="auto"), mla(132, dtype="uint8")] * layers)
        shapes.append([full(heads, size)] * layers + [full(draw(st.sampled_from([1, 2, 4, 8])), 64)])
    if release_of(version) >= (0, 20, 1):
        shapes.append(deepseek_v4(layers + 4))
    launch = Launch(
        version,
        max_model_len=draw(LENGTHS),
        max_num_batched_tokens=draw(st.sampled_from([512, 8192])),
        mamba_cache_mode=draw(st.sampled_from(["none", "align"])),
    )
    return draw(st.sampled_from(shapes)), launch


def _state(heads, size):
    """A small mamba state on the page of a full layer with 1040 tokens a block."""
    return LayerSpec(
        "MambaSpec",
        1040,
        shapes=((3, 64), (8, 64)),
        dtypes=("bfloat16", "bfloat16"),
        page_size_padded=1040 * heads * size * 4,
        dcp_sharded=False,
    )


def planned(stages, launch, memory):
    """The plan, or None where the start is refused or not known."""
    try:
        return plan_from_layers(stages, launch, memory)
    except (WouldNotStart, Unsupported):
        return None


def split(layers, stages):
    size = -(-len(layers) // stages)
    return [layers[i : i + size] for i in range(0, len(layers), size)]


@settings(max_examples=150, deadline=None)
@given(starts(), MEMORY)
def test_blocks_fill_the_memory_to_within_one_block(start, memory):
    """blocks x bytes_per_block <= memory < (blocks + 1) x bytes_per_block, without an override."""
    layers, launch = start
    plan = planned([layers], launch, memory)
    assume(plan is not None)
    assert plan.num_blocks * plan.bytes_per_block <= memory < (plan.num_blocks + 1) * plan.bytes_per_block
    assert plan.unused_bytes == memory - plan.num_blocks * plan.bytes_per_block


@settings(max_examples=150, deadline=None)
@given(starts(), MEMORY, MEMORY)
def test_more_memory_never_gives_less(start, one, other):
    """Blocks, tokens, concurrency and the longest request never fall, and a start that works keeps working."""
    layers, launch = start
    less, more = sorted((one, other))
    small, large = planned([layers], launch, less), planned([layers], launch, more)
    assume(small is not None)
    assert large is not None
    assert small.num_blocks <= large.num_blocks
    assert small.kv_cache_tokens <= large.kv_cache_tokens
    assert small.max_concurrency <= large.max_concurrency
    if isinstance(small.longest_request, int) and isinstance(large.longest_request, int):
        assert small.longest_request <= large.longest_request


@settings(max_examples=150, deadline=None)
@given(starts(), MEMORY, st.integers(1, 3))
def test_padding_is_a_share_of_a_block(start, memory, stages):
    """No group is wider than a block, and some group of the binding rank holds something."""
    layers, launch = start
    plan = planned(split(layers, stages), launch._replace(pipeline_parallel_size=stages), memory)
    assume(plan is not None)
    for rank in plan.ranks:
        assert all(group.padding_bytes >= 0 and 0 <= group.padding_share <= 1 for group in rank.groups)
    assert 0 <= plan.padding_share < 1


@settings(max_examples=100, deadline=None)
@given(starts(), MEMORY, st.integers(1, 3))
def test_every_layer_is_in_one_group_of_one_rank(start, memory, stages):
    """Groups partition the layers of each stage."""
    layers, launch = start
    plan = planned(split(layers, stages), launch._replace(pipeline_parallel_size=stages), memory)
    assume(plan is not None)
    numbers = [layer for rank in plan.ranks for group in rank.groups for layer in group.layers]
    assert sorted(numbers) == list(range(len(layers)))


@settings(max_examples=100, deadline=None)
@given(starts(), st.lists(MEMORY, min_size=4, max_size=4))
def test_the_poorest_rank_decides(start, memory):
    """All ranks get the fewest blocks of any, and the binding rank is the one that has them."""
    layers, launch = start
    launch = launch._replace(tensor_parallel_size=4)
    plan = planned([layers], launch, memory)
    assume(plan is not None)
    assert plan.num_blocks == min(rank.blocks for rank in plan.ranks)
    assert plan.binding_rank == min(range(4), key=lambda rank: plan.ranks[rank].blocks)
    assert plan.num_blocks == planned([layers], launch, min(memory)).num_blocks


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 80), st.sampled_from([1, 2, 4, 8]), st.sampled_from([2, 4, 8]), VERSIONS, MEMORY)
def test_more_tensor_parallelism_never_holds_fewer_tokens(layers, heads, ranks, version, memory):
    """Each rank keeps max(1, heads / ranks) heads, so equal memory per rank holds at least as many tokens."""
    launch = Launch(version, max_model_len=128)
    alone = planned([[full(heads)] * layers], launch, memory)
    shared = planned([[full(max(1, heads // ranks))] * layers], launch._replace(tensor_parallel_size=ranks), memory)
    assume(alone is not None)
    assert shared.kv_cache_tokens >= alone.kv_cache_tokens
    # Replicated heads waste memory: the cluster holds no more tokens per byte than one rank.
    assert alone.bytes_per_block <= shared.bytes_per_block * ranks


@settings(max_examples=100, deadline=None)
@given(starts(st.sampled_from(["0.20.1", "0.24.0", "0.30.0", "0.33.0"])), MEMORY)
def test_tokens_follow_from_concurrency_from_0_20_1(start, memory):
    """int(concurrency x length), a floating product cut off."""
    layers, launch = start
    plan = planned([layers], launch, memory)
    assume(plan is not None)
    assert plan.kv_cache_tokens == int(plan.max_concurrency * plan.max_model_len)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 40), LENGTHS, VERSIONS, MEMORY)
def test_a_uniform_model_holds_blocks_times_block_size(layers, length, version, memory):
    """In every release the tokens are blocks x block size, up to the rounding of a request to whole blocks."""
    plan = planned([[full()] * layers], Launch(version, max_model_len=length), memory)
    assume(plan is not None)
    held, per_request = plan.num_blocks * 16, -(-length // 16)
    assert held * length // (per_request * 16) - 1 <= plan.kv_cache_tokens <= held


@settings(max_examples=100, deadline=None)
@given(starts(st.sampled_from(["0.11.0", "0.14.0", "0.19.0", "0.20.2", "0.27.0", "0.29.0", "0.32.0"])), MEMORY)
def test_the_longest_request_fits_and_one_more_token_does_not(start, memory):
    """A start with that length works; a start with one more token is refused."""
    layers, launch = start
    plan = planned([layers], launch, memory)
    assume(plan is not None and isinstance(plan.longest_request, int))
    assert planned([layers], launch._replace(max_model_len=plan.longest_request), memory) is not None
    assert planned([layers], launch._replace(max_model_len=plan.longest_request + 1), memory) is None


@settings(max_examples=100, deadline=None)
@given(starts(), MEMORY)
def test_the_least_memory_starts_and_one_byte_less_does_not(start, memory):
    """What the check of one request asks for, in every release."""
    layers, launch = start
    plan = planned([layers], launch, memory)
    assume(plan is not None)
    assert planned([layers], launch, plan.least_memory) is not None
    assert planned([layers], launch, plan.least_memory - 1) is None


@settings(max_examples=100, deadline=None)
@given(starts(FITTING), MEMORY)
def test_auto_fit_gives_the_longest_length_that_starts(start, memory):
    """Auto-fit lands on the length asked for, or on the longest that fits."""
    layers, launch = start
    fitted = planned([layers], launch._replace(autofit=True), memory)
    assume(fitted is not None)
    assert fitted.max_model_len <= launch.max_model_len
    assert planned([layers], launch._replace(max_model_len=fitted.max_model_len), memory) is not None
    if fitted.max_model_len < launch.max_model_len:
        assert planned([layers], launch._replace(max_model_len=fitted.max_model_len + 1), memory) is None


@settings(max_examples=100, deadline=None)
@given(
    starts(st.sampled_from(["0.11.0", "0.14.0", "0.19.0", "0.20.2", "0.27.0", "0.29.0", "0.32.0"])),
    MEMORY,
    st.integers(1, 1 << 20),
)
def test_an_override_sets_the_blocks_whatever_the_memory(start, memory, blocks):
    """With an override the blocks are those asked for; the memory only decides whether the start is refused."""
    layers, launch = start
    plan = planned([layers], launch._replace(num_gpu_blocks_override=blocks), memory)
    assume(plan is not None)
    assert plan.num_blocks == blocks
    assert plan.unused_bytes == memory - blocks * plan.bytes_per_block


@settings(max_examples=100, deadline=None)
@given(starts(), st.integers(-(1 << 30), 0))
def test_no_memory_never_starts(start, memory):
    """Without memory for a block the engine refuses, whatever else is asked."""
    layers, launch = start
    assert planned([layers], launch, memory) is None
