"""A geometry beside a log: what it pins down, when it is taken out again, and what it says of other layouts."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvforensics.explanation import explain
from parsers.launch_settings import read
from parsers.log import read_log
from reconstruct.eras import era
from reconstruct.geometry import Geometries, Layout, NoGeometry, Planner, planner_for
from reconstruct.hypotheses import STATED, plain_products
from reconstruct.interval import Interval
from reconstruct.planner.catalogue import find
from reconstruct.planner.config_sources import UnreadableConfig
from reconstruct.planner.errors import Unsupported
from reconstruct.releases import Span, index
from reconstruct.stated_launch import stated_launch
from reconstruct.stated_release import version_of
from tests.make_samples import GPT_OSS, LLAMA, page, rank
from tests.render.lines import render
from tests.render.numbers_as_printed import GIB
from tests.render.parts import Group
from tests.render.truth import Truth

H100 = 85028896768
LLAMA_BLOCK = 2 * 1024 * 1024
"""32 layers x 16 tokens x 2 x 8 heads x 128 x 2 bytes."""


@pytest.fixture(autouse=True)
def _no_local_cache(monkeypatch, tmp_path):
    """Keep the models that this machine happens to hold out of every test."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))


def llama(version="0.19.1", block=LLAMA_BLOCK, ranks=1, **more):
    """A start of Llama-3.1-8B whose blocks have `block` bytes."""
    workers = tuple(rank(H100, 0.51 + 0.3 * i, 14.99, 1.22, 0.24, block) for i in range(ranks))
    return Truth(version, workers, 0.9, **{**LLAMA, **more})


def started(text, **options):
    """The one start-up of a log."""
    (ledger,) = explain(text.encode(), **options).startups
    return ledger


def width(ledger, name, rank=0):
    return ledger.engines[0].ranks[rank].account.interval(name).width


def hypothesis_named(ledger, name):
    return next(h for h in ledger.geometry.engines[0].hypotheses if name in h.name.split(" or "))


# -- what it pins down --------------------------------------------------------------------------------------------------


def test_catalogue_makes_the_block_exact_and_narrows_the_pool_to_one_block():
    truth = llama()
    ledger = started(render(truth))
    size = ledger.engines[0].capacity.get("bytes_per_block")
    assert (size.interval, size.origin) == (Interval.exactly(LLAMA_BLOCK), "catalogue")
    assert ledger.geometry.status == "used"
    assert ledger.geometry.engines[0].pool.kind == "closes"
    assert width(ledger, "available_kv_cache_memory") < LLAMA_BLOCK
    left = ledger.engines[0].capacity.interval("unused_kv_memory")
    assert left.contains(truth.capacity(0).pool - truth.capacity(0).num_blocks * LLAMA_BLOCK)


def test_hybrid_blocks_follow_from_the_concurrency_once_the_groups_are_known():
    """gpt-oss-20b, 0.20.2: a request of 8192 tokens takes 512 + 513 blocks, and int(concurrency x length) is printed."""
    groups = (Group("full", 16), Group("sliding", 16, 128))
    truth = Truth("0.20.2", (rank(H100, 0.51, 13.72, 3.1, 0.25, page(12, 8, 64)),), 0.92, groups=groups, **GPT_OSS)
    blocks = started(render(truth)).engines[0].capacity.interval("num_blocks")
    assert blocks == Interval.exactly(truth.capacity(0).num_blocks)


def test_uneven_stages_have_blocks_of_their_own():
    """28 layers on 3 stages of 0.19.1 are 9, 10 and 9 (distributed/utils.py get_pp_indices)."""
    sizes = [page(layers, 4) for layers in (9, 10, 9)]
    ranks = tuple(rank(H100, 0.5, 5.1, 1.2, 0.2, size) for size in sizes)
    ledger = started(render(Truth("0.19.1", ranks, 0.9, pp=3, log_level="DEBUG")))
    assert ledger.geometry.status == "used"
    assert [r.account.interval("bytes_per_block") for r in ledger.engines[0].ranks] == [*map(Interval.exactly, sizes)]


def test_a_poorer_rank_that_printed_nothing_shows_in_the_blocks():
    """At INFO 0.19.1 prints M of one worker only; the blocks are those of the poorest (v1/core/kv_cache_utils.py)."""
    truth = llama(block=LLAMA_BLOCK // 2, ranks=2, tp=2)
    poorer = replace(truth.ranks[1], torch_peak_increase=truth.ranks[1].torch_peak_increase + GIB)
    truth = replace(truth, ranks=(truth.ranks[0], poorer))
    verdict = started(render(truth)).geometry.engines[0].pool
    assert verdict.kind == "poorer-rank"
    assert verdict.shortfall.contains(truth.pool(truth.ranks[0]) - truth.pool(poorer))


def test_an_override_leaves_the_pool_uncompared():
    verdict = started(render(llama(num_blocks_override=900))).geometry.engines[0].pool
    assert verdict.kind == "override"


# -- when it is taken out again ------------------------------------------------------------------------------------------


def test_a_geometry_that_contradicts_the_log_is_withdrawn_and_reported_with_both_figures():
    """36 layers of 2 heads are no Llama-3.1-8B, whatever the log calls them."""
    text = render(llama(block=page(36, 2)))
    ledger = started(text)
    assert ledger.geometry.status == "withdrawn"
    (conflict,) = ledger.conflicts
    ours, logs = conflict.claims
    assert (conflict.quantity, ours.origin, ours.interval) == (
        "bytes_per_block",
        "catalogue",
        Interval.exactly(LLAMA_BLOCK),
    )
    assert logs.interval.contains(page(36, 2))
    other = started(text.replace(LLAMA["model"], "someone/else"))
    assert ledger.engines[0].capacity.quantities.keys() == other.engines[0].capacity.quantities.keys()
    for name, quantity in other.engines[0].capacity.quantities.items():
        assert ledger.engines[0].capacity.interval(name) == quantity.interval


def test_fp8_that_was_not_in_force_is_excluded_and_the_models_dtype_fits():
    ledger = started(render(llama(kv_cache_dtype="fp8")))
    assert ledger.geometry.status == "withdrawn"
    assert not hypothesis_named(ledger, STATED).fits
    assert hypothesis_named(ledger, "cache in the model's dtype").fits


@pytest.mark.parametrize("name", ["fp8 cache", "block size 32", "tensor parallel 2"])
def test_other_layouts_of_a_healthy_start_are_excluded(name):
    ledger = started(render(llama(full_model_len=5003)))
    assert hypothesis_named(ledger, STATED).fits
    assert not hypothesis_named(ledger, name).fits


def test_the_hybrid_manager_can_be_told_off_from_on():
    groups = (Group("full", 16), Group("sliding", 16, 128))
    truth = Truth("0.20.2", (rank(H100, 0.51, 13.72, 3.1, 0.25, page(12, 8, 64)),), 0.92, groups=groups, **GPT_OSS)
    ledger = started(render(truth))
    assert hypothesis_named(ledger, STATED).fits
    assert not hypothesis_named(ledger, "hybrid manager off").fits


# -- where it comes from -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "word"),
    [
        ("me/Llama-3.1-8B-Instruct", "no geometry of"),
        ("/models/Llama-3.1-8B-Instruct", "local path"),
        ("..", "local path"),
    ],
)
def test_a_similar_name_or_a_path_is_no_match(model, word):
    ledger = started(render(llama(model=model)))
    assert ledger.geometry.status == "none"
    assert word in ledger.geometry.reason


def test_the_users_config_counts_for_any_name(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(find(LLAMA["model"])))
    ledger = started(render(llama(model="/models/fine-tuned")), config=tmp_path)
    size = ledger.engines[0].capacity.get("bytes_per_block")
    assert (ledger.geometry.source, size.origin, size.interval) == ("given", "config", Interval.exactly(LLAMA_BLOCK))


def test_the_local_cache_comes_before_the_catalogue(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    snapshot = tmp_path / "models--meta-llama--Llama-3.1-8B-Instruct" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps(find(LLAMA["model"])))
    assert started(render(llama())).geometry.source == "cache"
    (snapshot / "config.json").write_text("[]")
    assert "mapping" in started(render(llama())).geometry.reason


def test_a_given_file_that_is_no_config_is_the_users_fault(tmp_path):
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UnreadableConfig):
        explain(render(llama()).encode(), config=tmp_path)


@pytest.mark.parametrize(
    ("argument", "word"),
    [("'hf_overrides': {'num_hidden_layers': 2}, ", "hf_overrides"), ("'model_impl': 'transformers', ", "model_impl")],
)
def test_an_argument_without_a_rule_leaves_the_log_alone(argument, word):
    text = render(llama()).replace("non-default args: {", "non-default args: {" + argument)
    ledger = started(text)
    assert ledger.geometry.status == "none"
    assert word in ledger.geometry.reason


def test_a_start_that_the_planner_refuses_says_so():
    """8 key heads cannot be split over 3 ranks."""
    truth = llama(ranks=3, tp=3, block=page(32, 3))
    assert "divisible" in started(render(truth)).geometry.reason


# -- what the log states of a launch -------------------------------------------------------------------------------------


def stated(text, card=None):
    log = read_log(text.encode()).startups[0]
    return stated_launch(log, read(log), card, fetch=False)


def test_what_is_not_stated_spans_its_ends():
    text = render(llama())
    without = "\n".join(line for line in text.splitlines() if "max_num_batched_tokens" not in line)
    assert len(stated(text).batched_tokens) == 1
    assert len(stated(without).batched_tokens) == 2
    assert len(stated(text).cards) > 1
    assert stated(text, "H100-80GB").cards == ("H100-80GB",)


def test_a_draft_is_read_off_the_configuration_line():
    text = render(llama())
    draft = "speculative_config=SpeculativeConfig(method='ngram', model=None, num_spec_tokens=3)"
    assert "speculative_config=None" in text
    log = text.replace("speculative_config=None", draft)
    assert read(read_log(log.encode()).startups[0]).text("speculative_config") == draft.partition("=")[2]
    found = stated(log).launch.speculative_config
    assert (found.method, found.num_speculative_tokens) == ("ngram", 3)
    with pytest.raises(Unsupported):
        stated(text.replace("speculative_config=None", "speculative_config=SpeculativeConfig(model='x')"))


# -- layouts over what is left open --------------------------------------------------------------------------------------


def planner(model, text):
    log = read_log(text.encode()).startups[0]
    found = planner_for(Geometries().of(model), log, read(log), version_of(log), None)
    assert isinstance(found, Planner)
    return found


@settings(max_examples=12, deadline=None)
@given(st.sampled_from(("0.9.2", "0.11.2", "0.14.0", "0.18.1", "0.20.2", "0.26.0")), st.integers(0, 4))
def test_a_wider_span_of_releases_never_says_more(release, more):
    asked = planner("google/gemma-2-2b-it", render(llama()))
    low = index(release)
    wide = asked.layout(era(low, "V1"), Span(low, low + more))
    assert isinstance(wide, Layout)
    for place in range(low, low + more + 1):
        one = asked.layout(era(place, "V1"), Span(place, place))
        assert isinstance(one, Layout)
        assert one.bytes_per_block.within(wide.bytes_per_block)
        assert one.blocks_per_request.within(wide.blocks_per_request)
        assert wide.groups in {None, one.groups}


def test_a_release_that_is_not_known_has_no_layout():
    text = render(llama()).replace("v0.19.1", "v0.99.0").replace("0.19.1", "0.99.0")
    log = read_log(text.encode()).startups[0]
    found = planner_for(Geometries().of(LLAMA["model"]), log, read(log), version_of(log), None)
    assert isinstance(found, Planner)
    assert isinstance(found.layout(era(index("0.33.0"), "V1"), Span(index("0.33.0"), index("0.33.0"))), NoGeometry)


# -- without a geometry --------------------------------------------------------------------------------------------------


def test_without_a_geometry_the_true_product_is_among_those_listed():
    products = started(render(llama(model="/models/x"))).geometry.engines[0].products
    assert products.allowed.contains(LLAMA_BLOCK)
    assert any((p.layers, p.kv_heads, p.head_size) == (32, 8, 128) for p in products.shown)
    assert all(products.allowed.contains(p.bytes_per_block) for p in products.shown)


def test_a_pool_of_41_73_gib_over_16353_blocks_holds_no_bf16_layers_of_8_heads_of_128():
    """It is 2.613 MiB a block: 41 such layers are too few, 42 too many."""
    low, high = (41.725 * GIB) // 16354, (41.735 * GIB) // 16353
    products = plain_products(Interval(int(low), int(high)), Interval.exactly(16), (2,))
    assert products is not None
    assert not any((p.kv_heads, p.head_size) == (8, 128) for p in products.shown)
    assert low > 41 * 65536
    assert high < 42 * 65536


@given(st.integers(1, 1 << 24), st.integers(0, 1 << 16), st.sampled_from((16, 32, 64)))
def test_every_product_lies_inside_and_the_list_is_bounded(low, span, size):
    products = plain_products(Interval(low, low + span), Interval.exactly(size), (2, 1))
    assert products is not None
    assert len(products.shown) <= min(12, products.total)
    for p in products.shown:
        assert low <= p.bytes_per_block <= low + span
        assert p.bytes_per_block == 2 * size * p.layers * p.kv_heads * p.head_size * p.element_bytes


# -- what a log alone tells of its groups --------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["0.9.2", "0.13.0", "0.20.2", "0.28.0"])
@pytest.mark.parametrize("length", [32768, 131072])
def test_a_window_behind_every_layer_contradicts_nothing(version, length):
    """A request of 4096 tokens' window takes fewer blocks than its length: in capacity lines and in the check."""
    windowed = {"model": "/models/x", "architecture": "MistralForCausalLM", "groups": (Group("sliding", 16, 4096),)}
    for weights in (14.99, 68):
        truth = Truth(
            "0.28.0", (rank(H100, 0.51, weights, 1.22, 0.24, LLAMA_BLOCK),), 0.9, full_model_len=length, **windowed
        )
        ledger = started(render(replace(truth, version=version, max_num_batched_tokens=8192)))
        assert ledger.conflicts == ()
        assert ledger.engines[0].capacity.interval("bytes_per_block").contains(LLAMA_BLOCK)


def test_a_damaged_length_leaves_the_log_readable():
    text = render(llama())
    damaged = text.replace("Maximum concurrency for 8,192 tokens", "Maximum concurrency for -1 tokens")
    assert damaged != text
    assert started(damaged).outcome == "ready"


# -- what it costs -------------------------------------------------------------------------------------------------------

LOADED = """
import sys
from kvforensics.explanation import explain
explain(sys.stdin.buffer.read())
print(sorted(m for m in sys.modules if m.startswith("reconstruct.planner")))
"""


def test_an_unknown_model_loads_no_planner():
    """Only the look-up itself is loaded: the catalogue's text is searched, not parsed."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED], input=render(llama(model="me/mine")).encode(), capture_output=True, check=True
    )
    assert done.stdout.decode().count("planner.plan") == 0
    assert "reconstruct.planner.config_sources" in done.stdout.decode()
