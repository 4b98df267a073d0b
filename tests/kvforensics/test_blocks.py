"""`kvforensics blocks`: the plan of a model before any start, at both ends of a rounded memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from kvforensics.app import whole_app
from kvforensics.blocks import MAY_START, NO_MEMORY, REFUSED, STARTS, NoConfig, blocks
from kvforensics.errors import UsageFault
from kvforensics.given import size
from kvforensics.report.blocks_document import numbers
from reconstruct.interval import Interval
from reconstruct.planner.catalogue import find
from reconstruct.planner.errors import Unsupported
from reconstruct.planner.launch import Launch

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
BLOCK = 2 * 1024 * 1024
"""32 layers x 16 tokens x 2 x 8 heads x 128 x 2 bytes."""
LAUNCH = Launch("0.27.1")


@pytest.fixture(autouse=True)
def _no_local_cache(monkeypatch, tmp_path):
    """Keep the models that this machine happens to hold out of every test."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))


def run(*arguments):
    """Run the command; give its exit code and what it wrote to either stream."""
    done = CliRunner().invoke(whole_app(), ["blocks", *arguments])
    return done.exit_code, done.output


def figures(*arguments):
    code, text = run(*arguments, "--format", "json")
    assert code == 0
    return json.loads(text)


# -- figures -------------------------------------------------------------------------------------------------------------


def test_a_rounded_memory_gives_intervals_from_both_ends():
    """41.73 GiB as printed is 41.725 to 41.735 GiB: 21363 to 21368 blocks of 2 MiB."""
    found = blocks(LLAMA, LAUNCH, size("41.73GiB"))
    assert found.outcome == STARTS
    assert found.account.interval("num_blocks") == Interval(21363, 21368)
    assert found.account.interval("bytes_per_block") == Interval.exactly(BLOCK)
    assert found.account.interval("unused_kv_memory") == Interval(0, BLOCK - 1)
    assert found.account.interval("request_bytes_per_token") == Interval.exactly(BLOCK / 16)


def test_an_exact_memory_gives_points():
    found = blocks(LLAMA, LAUNCH, Interval.exactly(10**10))
    blocks_held, rest = divmod(10**10, BLOCK)
    assert found.outcome == REFUSED  # one request of the model's own 131072 tokens does not fit
    found = blocks(LLAMA, LAUNCH._replace(max_model_len=8192), Interval.exactly(10**10))
    assert found.account.interval("num_blocks") == Interval.exactly(blocks_held)
    assert found.account.interval("unused_kv_memory") == Interval.exactly(rest)


def test_a_refusal_still_names_the_longest_request():
    """4768 blocks of 16 tokens hold 76288."""
    found = blocks(LLAMA, LAUNCH, Interval.exactly(10**10))
    assert found.account.interval("longest_request") == Interval.exactly(10**10 // BLOCK * 16)
    assert found.account.missing["num_blocks"].reason == "the engine does not start with this memory"
    assert "131072" in found.reason


def test_a_memory_that_starts_at_its_high_end_only():
    found = blocks(LLAMA, LAUNCH, Interval(8192 * BLOCK - 1, 8192 * BLOCK))
    assert found.outcome == MAY_START
    assert found.account.interval("num_blocks") == Interval(None, 8192)
    assert found.account.interval("longest_request") == Interval(131056, 131072)


def test_auto_fit_gives_the_length_that_fits():
    found = blocks(LLAMA, LAUNCH._replace(max_model_len=-1), Interval.exactly(10**10))
    assert found.outcome == STARTS
    assert found.account.interval("max_model_len") == Interval.exactly(10**10 // BLOCK * 16)


def test_without_a_memory_the_layout_stands_and_the_rest_is_missing():
    found = blocks("google/gemma-3-27b-it", LAUNCH)
    assert found.outcome == NO_MEMORY
    assert sum(len(like.layers) for like in found.layers) == 62
    assert found.plan is not None
    assert len(found.plan.groups) == 7
    assert {"num_blocks", "kv_cache_tokens", "max_concurrency"} <= found.account.missing.keys()
    assert 0 < (found.account.interval("padding_share").high or 0) < 1


def test_a_split_that_the_engine_refuses_is_an_answer():
    found = blocks(LLAMA, LAUNCH._replace(tensor_parallel_size=5))
    assert (found.outcome, found.plan) == (REFUSED, None)
    assert "tensor_parallel_size" in found.reason


@given(st.integers(1 << 30, 1 << 38), st.integers(0, 1 << 30))
def test_every_memory_inside_has_its_figures_inside(low, span):
    launch = LAUNCH._replace(max_model_len=1024)
    wide = blocks(LLAMA, launch, Interval(low, low + span)).account
    for memory in (low, low + span // 2, low + span):
        one = blocks(LLAMA, launch, Interval.exactly(memory)).account
        for name, quantity in one.quantities.items():
            assert quantity.interval.within(wide.interval(name)), name


# -- models --------------------------------------------------------------------------------------------------------------


def test_a_file_and_its_folder_are_models_too(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(find(LLAMA)))
    for given_path in (tmp_path, tmp_path / "config.json"):
        found = blocks(str(given_path), LAUNCH)
        assert (found.found.source, found.origin) == ("given", "config")
        assert found.account.interval("bytes_per_block") == Interval.exactly(BLOCK)


def test_unknown_models_and_spoilt_files(tmp_path):
    with pytest.raises(NoConfig):
        blocks("me/Llama-3.1-8B-Instruct", LAUNCH)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UsageFault):
        blocks(str(tmp_path), LAUNCH)
    with pytest.raises(Unsupported):
        blocks(LLAMA, Launch("0.99.0"))


# -- the command ---------------------------------------------------------------------------------------------------------


def test_json_has_the_quantities_of_explain():
    found = figures(LLAMA, "--memory", "41.73GiB", "--engine-version", "0.27.1", "--dp", "2")
    assert found["schema"] == "kvforensics.blocks/1"
    assert found["launch"]["data_parallel_size"] == 2
    size_of_block = found["quantities"]["bytes_per_block"]
    assert size_of_block == {"low": BLOCK, "high": BLOCK, "unit": "B", "origin": "catalogue", "lines": []}
    assert found["quantities"]["num_blocks"]["origin"] == "derived"
    assert found["layers"][0]["spec"] == {
        "kind": "FullAttentionSpec",
        "block_size": 16,
        "num_kv_heads": 8,
        "head_size": 128,
        "head_size_v": 128,
        "dtype": "bfloat16",
    }
    (group,) = found["stages"][0]["groups"]
    assert (len(group["layers"]), group["padding_bytes"], group["grows"]) == (32, 0, True)


def test_the_launch_reaches_the_plan():
    asked = ("--tp", "4", "--kv-cache-dtype", "fp8", "--block-size", "32", "--max-model-len", "8k", "--memory", "2GiB")
    found = figures(LLAMA, *asked)
    assert found["quantities"]["bytes_per_block"]["low"] == BLOCK // 4 // 2 * 2
    assert found["quantities"]["max_model_len"]["low"] == 8000


def test_padding_is_told_group_by_group():
    code, text = run("google/gemma-3-27b-it", "--width", "120")
    assert code == 0
    assert "Who shares what" in text
    assert "stay empty" in text


@pytest.mark.parametrize("form", ["table", "markdown"])
def test_ascii_reports_hold_nothing_else(form):
    code, text = run("google/gemma-3-27b-it", "--memory", "41.73GiB", "--ascii", "--format", form, "--pp", "2")
    assert code == 0
    assert text.isascii()


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_asked(width):
    _, text = run("Qwen/Qwen3.5-27B", "--memory", "41.73GiB", "--width", str(width))
    assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((LLAMA,), 0),
        ((LLAMA, "--tp", "5"), 0),
        ((LLAMA, "--memory", "4"), 0),
        (("me/mine",), 2),
        ((LLAMA, "--memory", "lots"), 2),
        ((LLAMA, "--format", "xml"), 2),
        ((LLAMA, "--tp", "0"), 2),
        ((LLAMA, "--max-model-len", "0"), 2),
        ((LLAMA, "--draft", ":3"), 2),
        ((LLAMA, "--engine-version", "newest"), 2),
        ((LLAMA, "--engine-version", "99.0"), 3),
        ((LLAMA, "--device", "abacus"), 3),
        ((LLAMA, "--draft", "eagle:1"), 3),
    ],
)
def test_exit_codes(arguments, code):
    assert run(*arguments)[0] == code


@pytest.mark.parametrize(
    ("layers", "text"),
    [
        ((), "none"),
        ((7,), "7"),
        ((0, 1), "0-1"),
        (range(28), "0-27"),
        ((1, 3, 5, 7), "1-7 step 2"),
        ((0, 1, 4, 5, 9), "0-1, 4-5, 9"),
    ],
)
def test_layer_numbers_in_runs(layers, text):
    assert numbers(tuple(layers)) == text


@given(st.sets(st.integers(0, 30), min_size=1))
def test_runs_name_no_layer_that_is_not_there(layers):
    first = numbers(sorted(layers)).split(" ")[0].rstrip(",")
    assert int(first.split("-")[0]) == min(layers)


# -- explain with a config -------------------------------------------------------------------------------------------------


def test_explain_takes_a_config_and_refuses_a_spoilt_one(tmp_path):
    log = str(Path(__file__).parents[2] / "sample_logs" / "vllm-0.10.2-single.log")
    config = tmp_path / "config.json"
    config.write_text(json.dumps(find("Qwen/Qwen3-8B")))
    done = CliRunner().invoke(whole_app(), ["explain", log, "--config", str(tmp_path), "--format", "json"])
    geometry = json.loads(done.output)["startups"][0]["geometry"]
    assert (geometry["status"], geometry["source"], geometry["engines"][0]["pool"]["verdict"]) == (
        "used",
        "given",
        "closes",
    )
    config.write_text("{")
    assert CliRunner().invoke(whole_app(), ["explain", log, "--config", str(config)]).exit_code == 2


@pytest.mark.parametrize("form", ["table", "markdown"])
def test_explain_says_why_it_has_no_geometry_and_what_would_fit(form):
    log = str(Path(__file__).parents[2] / "sample_logs" / "vllm-0.10.2-single.log")
    text = " ".join(CliRunner().invoke(whole_app(), ["explain", log, "--format", form]).output.split())
    assert "No geometry of unsloth/Qwen3-8B-FP8 is known here" in text
    assert "36 layers x 8 key heads x 128" in text
