"""The renderer against what vLLM's own sources compute and print."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests import make_samples
from tests.render import wrappers
from tests.render.forms import FORMS, Engine
from tests.render.ledger import as_json
from tests.render.lines import render, render_all
from tests.render.numbers_as_printed import GIB, MIB, fixed, rounded, torch_size
from tests.render.parts import INJECTABLE, Captures, Failure, Group, Rank, Scope
from tests.render.strategies import Level, stage_layers, truths
from tests.render.truth import Truth

POOL = 37_123_456_789
"""The pool of the planner runs below; the same layers were given to every release's own planner."""


def rank(pool: int = POOL, block: int = 2 * MIB, **terms: Any) -> Rank:
    """A rank whose M is exactly `pool` at u = 0.5 in every release: W, P and N are 1 GiB each."""
    total = 2 * (pool + 3 * GIB)
    numbers: dict[str, Any] = {
        "total_memory": total,
        "initial_free_memory": total,
        "model_memory": GIB,
        "torch_peak_increase": GIB,
        "non_torch_increase": GIB,
        "bytes_per_block": block,
        "total_consumed": 2 * GIB,
        "transient_peak_headroom": GIB,
    }
    return Rank(**(numbers | terms))


def planned(version: str, block: int = 32 * 65536, **options: Any) -> Truth:
    """A start-up on that pool; graphs stay out of it."""
    one = rank(block=block)
    return Truth(version, (one,), 0.5, enforce_eager=True, engine=options.pop("engine", "V1"), **options)


HYBRID = (Group("full", 16), Group("sliding", 16, 128))
GEMMA = (Group("full", 16), *[Group("sliding", 16, 1024)] * 6)


@pytest.mark.parametrize(
    ("version", "options", "blocks", "tokens", "times"),
    [
        ("0.8.0", {}, 17701, 283216, 34.572),
        ("0.9.1", {}, 17701, 283216, 34.572),
        ("0.33.0", {}, 17701, 283216, 34.572),
        ("0.19.1", {"full_model_len": 5003}, 17701, 283216, 56.553),
        ("0.20.2", {"full_model_len": 5003}, 17701, 282933, 56.553),
        ("0.9.1", {"num_blocks_override": 777}, 17701, 283216, 34.572),  # printed and ignored, mended in 0.9.2
        ("0.9.2", {"num_blocks_override": 777}, 777, 12432, 1.518),
        ("0.9.2", {"groups": HYBRID, "block": 12 * 32768}, 94409, 755264, 92.106),
        ("0.20.2", {"groups": HYBRID, "block": 12 * 32768}, 94409, 754535, 92.106),
    ],
)
def test_planner_gives_what_the_release_itself_planned(version, options, blocks, tokens, times):
    """Answers of vLLM's own planner on the same pool: Llama-3.1-8B (32 x 65536 B), gpt-oss-20b (12 + 12 layers)."""
    found = planned(version, **options).capacity(0)
    assert (found.num_blocks, found.tokens) == (blocks, tokens)
    assert found.concurrency == pytest.approx(times, abs=0.0006)


def test_v0_block_counts_follow_a_known_start():
    """0.6.6.post1 on an L40S printed 83208 blocks, 9362 in swap and 325.03x for 35.55 GiB (worker/worker.py)."""
    sample = next(s for s in make_samples.samples() if s.name == "vllm-0.6.6.post1-single")
    assert "# GPU blocks: 83208, # CPU blocks: 9362\n" in sample.log
    assert "Maximum concurrency for 4096 tokens per request: 325.03x\n" in sample.log
    assert "for KV Cache is 35.55GiB.\n" in sample.log


def test_budget_is_a_float_up_to_0_13_and_rounded_up_from_0_14():
    """85028896768 x 0.95 = 80777451929.6 (0.13.0 gpu_worker.py init_device, 0.14.1 worker/utils.py request_memory)."""
    card = rank(total_memory=85028896768, initial_free_memory=84 * 10**9)
    old, new = (Truth(version, (card,), 0.95) for version in ("0.13.0", "0.14.1"))
    assert old.requested_float(card) == pytest.approx(80777451929.6)
    assert (old.requested(card), new.requested(card)) == (80777451929, 80777451930)
    assert new.available(card) - old.available(card) == 1


def test_context_parallel_ranks_hold_a_share_of_the_tokens():
    """With dcp 2 a block spans 32 tokens: 17701 blocks are 566432 tokens, and 256 blocks serve 8192 of them."""
    four = Truth("0.13.0", (rank(),) * 4, 0.5, tp=4, dcp=2, enforce_eager=True, log_level="DEBUG")
    assert four.capacity(0).tokens == 17701 * 16 * 2
    assert four.capacity(0).concurrency == 17701 / 256
    assert "by the cp_world_size 2 (pcp_world_size 1 * dcp_world_size 2)." in render(four)
    assert "(Worker_TP3_DCP1 pid=" in render(four)


def test_external_weights_leave_the_budget_from_0_32():
    """E is subtracted from R in 0.32.0 and ignored before (0.33.0 worker/utils.py request_memory)."""
    card = rank(external_weight_memory=GIB)
    before, after = (Truth(version, (card,), 0.5, enforce_eager=True) for version in ("0.31.0", "0.32.0"))
    assert before.requested(card) - after.requested(card) == GIB


def test_estimate_counts_first_captures_once_and_further_ones_each():
    """Llama-3.1-8B on two stages, 0.19.0: 114/4 and 256/2 MiB, 51 graphs each, printed as 0.54 GiB total."""
    card = rank(captures=Captures(114 * MIB, 4 * MIB, 256 * MIB, 2 * MIB))
    assert Truth("0.19.1", (card,), 0.5).graph_estimate(card) == (256 + 50 * 4 + 50 * 2) * MIB
    assert Truth("0.17.1", (card,), 0.5).graph_estimate(card) == 0


@pytest.mark.parametrize(
    ("version", "switch", "charged", "in_peak"),
    [
        ("0.18.1", True, True, True),
        ("0.19.1", None, False, False),
        ("0.19.1", True, True, False),
        ("0.20.2", None, True, False),
        ("0.26.0", False, False, False),
        ("0.27.1", None, True, True),
    ],
)
def test_who_charges_graphs_and_counts_them_as_peak(version, switch, charged, in_peak):
    """Off by default in 0.18-0.19, on from 0.20; the usage line's peak holds the charge in 0.18 and from 0.27."""
    card = rank(captures=Captures(100 * MIB, 0, 0, 0))
    truth = Truth(version, (card,), 0.5, graph_sizes=(1, 0), estimate_switch=switch)
    assert (truth.graphs_applied(card) == 100 * MIB) is charged
    assert (truth.printed_peak(card) - GIB == 100 * MIB) is in_peak


def test_suggestions_differ_by_free_less_requested_and_hold_back_150_mib():
    """0.10.2 gpu_worker.py compile_or_warm_up_model: F - R exactly, nothing else lies between the two."""
    card = rank(cudagraph_actual=GIB)
    truth = Truth("0.10.2", (card,), 0.5)
    into_budget, into_free = truth.suggested(card)
    assert into_free - into_budget == card.initial_free_memory - truth.requested(card)
    assert into_budget == truth.available(card) - GIB - 150 * MIB


@pytest.mark.parametrize(("version", "charged"), [("0.8.5", True), ("0.9.0.1", True), ("0.9.1", False)])
def test_early_v1_charges_its_neighbours(version, charged):
    """0.8.5 takes all that is used on the card off the budget; 0.9.1 knows its own baseline."""
    card = rank(initial_free_memory=2 * (POOL + 3 * GIB) - 5 * GIB)
    assert Truth(version, (card,), 0.5).available(card) == POOL - 5 * GIB * charged


def test_the_null_block_is_held_back_from_0_29():
    """A request that needs every block fits in 0.28, not in 0.29 (kv_cache_utils.py check_enough_kv_cache_memory)."""
    card = rank(pool=512 * 2 * MIB)
    kinds = [Truth(v, (card,), 0.5, full_model_len=8192, enforce_eager=True).failure for v in ("0.28.0", "0.29.0")]
    assert kinds == [Failure.NONE, Failure.REQUEST_TOO_LONG]


def test_auto_fit_takes_the_longest_length_that_fits():
    """1023 blocks of 16 tokens are left once the null block is off."""
    truth = Truth("0.30.0", (rank(pool=1024 * 2 * MIB),), 0.5, auto_fit=True, full_model_len=131072, enforce_eager=True)
    assert truth.max_model_len == 1023 * 16
    assert "reduced from 131072 to 16368 to fit in available GPU memory (2.0 GiB available" in render(truth)


def test_the_poorest_rank_binds_even_with_more_memory():
    """Uneven stages: the stage with 22 layers has more memory and fewer blocks."""
    small, large = rank(block=10 * 65536), rank(pool=POOL + GIB, block=22 * 65536)
    truth = Truth("0.33.0", (small, large), 0.5, pp=2, enforce_eager=True)
    assert truth.capacity(0).binding == 1
    assert truth.capacity(0).num_blocks == (POOL + GIB) // (22 * 65536)


def test_early_v1_shares_the_poorest_pool():
    """0.8.0 gives every worker the smallest pool, 0.8.4 each its own (v1/core/kv_cache_utils.py)."""
    pair = (rank(), rank(pool=POOL - GIB))
    counts = {v: [Truth(v, pair, 0.5, tp=2).own_blocks(i) for i in range(2)] for v in ("0.8.0", "0.8.4")}
    assert counts["0.8.0"][0] == counts["0.8.0"][1] == counts["0.8.4"][1] < counts["0.8.4"][0]


def test_remainder_of_a_pipeline_split():
    """61 layers on 4 stages (distributed/utils.py get_pp_indices)."""
    assert stage_layers("0.8.0", 61, 4) == [15, 15, 16, 15]
    assert stage_layers("0.7.3", 61, 4) == [15, 15, 15, 16]


def test_numbers_are_printed_as_python_and_torch_print_them():
    """%.2f keeps zeros, round drops them, torch changes unit by size."""
    assert (fixed(21 * GIB), rounded(21 * GIB), rounded(GIB // 2)) == ("21.00", "21.0", "0.5")
    assert (torch_size(298 * MIB), torch_size(79 * GIB), torch_size(1024)) == ("298.00 MiB", "79.00 GiB", "1024 bytes")


# -- words ------------------------------------------------------------------------------------------------------------


@cache
def printed(version: str, engine: Engine, level: Level) -> str:
    """The log of an ordinary start, printed once for all forms."""
    return render(ordinary(version, engine, level))


def ordinary(version: str, engine: Engine, level: Level = "INFO") -> Truth:
    """A start that prints what there is to print."""
    card = rank(captures=Captures(114 * MIB, 4 * MIB, 256 * MIB, 2 * MIB), cudagraph_actual=GIB)
    return Truth(version, (card,), 0.5, engine=engine, log_level=level)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: f"{form.engine}-{form.first}-{form.pattern[:24]}")
def test_each_form_stands_in_its_releases_and_in_no_other(form):
    """The sentence is there from its first to its last release, at its level, and elsewhere it is not."""

    def stands(version: str, level: Level) -> bool:
        return re.search(form.pattern, printed(version, form.engine, level), re.MULTILINE) is not None

    assert [v for v in form.inside if not stands(v, form.level)] == []
    assert [v for v in form.inside if form.level == "DEBUG" and stands(v, "INFO")] == []
    assert [v for v in form.outside if form.alone and stands(v, form.level)] == []


REPLICAS = ("APIServer", "EngineCore_DP0", "EngineCore_DP1")


def four(outer: str) -> list[str]:
    """Names of two by two workers."""
    return [f"Worker_{outer}{a}_TP{b}" for a in (0, 1) for b in (0, 1)]


@pytest.mark.parametrize(
    ("version", "shape", "names"),
    [
        ("0.8.5", {"tp": 2}, {"VllmWorker rank=0", "VllmWorker rank=1"}),
        ("0.10.0", {}, set()),
        ("0.10.0", {"dp": 2}, {"EngineCore_0", "EngineCore_1"}),
        ("0.10.1.1", {"tp": 2}, {"APIServer", "EngineCore_0", "VllmWorker TP0", "VllmWorker TP1"}),
        ("0.13.0", {"tp": 2, "pp": 2}, {"APIServer", "EngineCore_DP0", *four("PP")}),
        ("0.19.1", {"pp": 2}, {"APIServer", "EngineCore", "Worker", "Worker_PP0", "Worker_PP1"}),
        ("0.21.0", {"dp": 2, "tp": 2, "moe": True}, {*REPLICAS, "Worker", *four("DP")}),
        ("0.21.0", {"dp": 2, "tp": 2}, {*REPLICAS, "Worker", "Worker_TP0", "Worker_TP1"}),
    ],
)  # fmt: skip
def test_process_names(version, shape, names):
    """Names as each release's executors and engine core set them; dense DP engines forget their rank from 0.14."""
    count = shape.get("tp", 1) * shape.get("pp", 1) * shape.get("dp", 1)
    text = render(Truth(version, (rank(),) * count, 0.5, log_level="DEBUG", **shape))
    assert set(re.findall(r"^\((.+?) pid=\d+\) ", text, re.MULTILINE)) == names


def test_prefix_grammar_by_era():
    """No bracket before 0.8.0, paths with DEBUG from 0.10.2, colours 1;36 then 0;36, none in tracebacks from 0.31."""
    assert re.match(r"INFO \d\d-\d\d \d\d:\d\d:\d\d utils\.py:\d+\] args: ", render(planned("0.3.3", engine="V0")))
    assert "[v1/worker/gpu_worker.py:" in render(planned("0.19.1", log_level="DEBUG"))
    assert "\x1b[1;36m(EngineCore_DP0 pid=" in render(planned("0.11.2", colour=True))
    assert "\x1b[0;36m(EngineCore pid=" in render(planned("0.26.0", colour=True))
    ending = render(planned("0.31.0", injected=Failure.OOM_PROFILING)).splitlines()
    assert any(line.startswith("torch.OutOfMemoryError: CUDA out of memory.") for line in ending)


def test_multi_line_message_repeats_its_prefix_after_a_carriage_return():
    """logging_utils/formatter.py NewLineFormatter: three physical lines, two of them end in CR LF."""
    lines = [line for line in render(planned("0.7.3", engine="V0")).split("\n") if "worker.py" in line]
    account = [line for line in lines if "Memory profiling takes" in line or "GiB" in line][:3]
    assert [line.endswith("\r") for line in account] == [True, True, False]
    assert len({line.split("] ")[0] for line in account}) == 1


def test_scope_local_prints_on_the_first_rank_of_a_node():
    """0.11.0 prints M on each rank, 0.11.1 once per node; with DP the second engine's device offset silences it."""
    for version, shape, times in (
        ("0.11.0", {"tp": 2}, 2),
        ("0.11.1", {"tp": 2}, 1),
        ("0.11.0", {"dp": 2}, 2),
        ("0.21.0", {"dp": 2}, 1),
        ("0.21.0", {"tp": 4, "ray": True, "nodes": 2}, 2),
    ):
        count = shape.get("tp", 1) * shape.get("dp", 1)
        text = render(Truth(version, (rank(),) * count, 0.5, **shape))
        assert text.count("Available KV cache memory") == times, (version, shape)


def test_tokens_per_worker_before_the_minimum_up_to_0_11_0():
    """0.11.0 prints one pair for each worker in rank order, 0.12.0 the minimum once."""
    pair = (rank(), rank(pool=POOL - GIB))
    old, new = (render(Truth(version, pair, 0.5, tp=2)) for version in ("0.11.0", "0.12.0"))
    sizes = [re.findall(r"KV cache size: ([\d,]+)", text) for text in (old, new)]
    own = [Truth("0.11.0", pair, 0.5, tp=2).own_blocks(i) * 16 for i in range(2)]
    assert sizes == [[f"{own[0]:,}", f"{own[1]:,}"], [f"{own[1]:,}"]]


@pytest.mark.parametrize(
    ("version", "options", "text"),
    [
        ("0.9.1", {"free": GIB}, "(1.0/75.15 GiB) on startup is less than desired GPU memory utilization (0.5, "),
        ("0.14.1", {"free": GIB}, "Free memory on device cuda:0 (1.0/75.15 GiB) on startup is less than desired"),
        ("0.10.2", {"weights": 60 * GIB}, "ValueError: No available memory for the cache blocks. Try increasing `gpu"),
        ("0.8.0", {"length": 10**7}, "models's max seq len (10000000), (1220.70 GB KV cache is needed, which is "),
        ("0.8.5", {"length": 10**7}, " GiB).  Try increasing"),
        ("0.13.0", {"length": 10**7}, "the estimated maximum model length is 283216. Try increasing `gpu_memory"),
        ("0.22.1", {"length": 10**7}, "with the model's max seq len (10000000), (1220.7 GiB KV cache is needed"),
        ("0.5.5", {"length": 10**7, "engine": "V0"}, "number of tokens that can be stored in KV cache (283216)."),
    ],
)  # fmt: skip
def test_refusals_speak_as_their_release_does(version, options, text):
    """Texts of request_memory, check_enough_kv_cache_memory and V0's raise_if_cache_size_invalid."""
    changed: dict[str, int] = {}
    if "free" in options:
        changed["initial_free_memory"] = options["free"]
    if "weights" in options:
        changed["model_memory"] = options["weights"]
    truth = Truth(
        version,
        (rank(**changed),),
        0.5,
        engine=options.get("engine", "V1"),
        full_model_len=options.get("length", 8192),
        enforce_eager=True,
    )
    assert text in render(truth)
    assert truth.outcome == "failed"


def test_a_failure_keeps_only_what_was_known_by_then():
    """Free memory below the budget ends before the weights; an out-of-memory while profiling ends before M."""
    early = Truth("0.21.0", (rank(initial_free_memory=GIB),), 0.5).expected()
    later = planned("0.21.0", injected=Failure.OOM_PROFILING).expected()
    worker = Scope(0, 0, 0)
    assert (worker, "model_memory") not in early
    assert later[worker, "model_memory"] == GIB
    assert (worker, "available_kv_cache_memory") not in later


def test_explicit_memory_hides_the_profile():
    """No M, no suggestion, no estimate; the pool is the flag's."""
    truth = planned("0.21.0", kv_cache_memory_bytes=10 * GIB)
    assert "reserved 10.0 GiB memory for KV Cache" in render(truth)
    assert "Available KV cache memory" not in render(truth)
    assert truth.expected()[Scope(0), "kv_pool_memory"] == 10 * GIB


def test_multimodal_reservation_shrinks_the_pool_and_not_m():
    """0.25.1: M is printed before the reservation, the last figure of the reserve line is what is divided."""
    truth = planned("0.25.1", mm_reservation=2 * GIB)
    assert "KV cache memory reduced to 32.57 GiB." in render(truth)
    assert truth.expected()[Scope(0), "kv_pool_memory"] == POOL - 2 * GIB
    assert truth.expected()[Scope(0, 0, 0), "available_kv_cache_memory"] == POOL


# -- laws -------------------------------------------------------------------------------------------------------------

FEW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@FEW
@given(truths(injections=INJECTABLE))
def test_every_drawn_start_prints_and_prints_the_same_again(truth):
    """Rendering and the ledger depend on the truth alone."""
    text = render(truth)
    assert text == render(truth)
    assert text.endswith("\n")
    assert as_json([truth]) == json.loads(json.dumps(as_json([truth])))


@FEW
@given(truths())
def test_the_identity_closes_in_every_release(truth):
    """M = R - C - H - G to the byte, up to the truncation of a negative M."""
    for index, one in enumerate(truth.ranks):
        found = {name: value for (scope, name), value in truth.expected().items() if scope == truth.scope(index)}
        if "available_kv_cache_memory" in found:
            left = found["requested_memory"] - found["total_consumed"] - found["transient_peak_headroom"]
            residual = left - found["cudagraph_memory_applied"] - found["available_kv_cache_memory"]
            assert residual == 0 or (residual == -1 and truth.available(one) <= 0)


@FEW
@given(truths())
def test_blocks_never_take_more_than_the_pool_without_an_override(truth):
    """0 <= unused < one block on the binding rank."""
    for dp in range(truth.dp):
        found = {name: value for (scope, name), value in truth.expected().items() if scope == Scope(dp)}
        if "num_blocks" in found and truth.num_blocks_override is None:
            assert 0 <= found["unused_kv_memory"] < found["bytes_per_block"]


@FEW
@given(truths(versions=["0.13.0", "0.19.1", "0.33.0"]), st.integers(0, 99))
def test_interleaving_keeps_each_process_in_order(truth, seed):
    """The same lines, each worker's in the same order."""
    assume(not truth.ray)  # there the driver's name stands before every line
    plain = render(replace(truth, interleave=None)).splitlines()
    mixed = render(replace(truth, interleave=seed)).splitlines()
    assert sorted(plain) == sorted(mixed)
    for pid in set(re.findall(r"pid=(\d+)\)", "\n".join(plain))):
        assert [line for line in plain if f"pid={pid})" in line] == [line for line in mixed if f"pid={pid})" in line]


def test_injected_failures_may_not_contradict_the_numbers():
    """What arithmetic decides cannot be asked for."""
    with pytest.raises(ValueError, match="follows from the numbers"):
        planned("0.21.0", injected=Failure.NO_KV_MEMORY)


def test_a_start_that_is_cut_is_unfinished():
    """The log ends early, the truth stays whole."""
    whole, cut = planned("0.21.0"), planned("0.21.0", injected=Failure.CUT, cut_at=0.5)
    assert render(whole).startswith(render(cut))
    assert cut.outcome == "unfinished"


# -- transports -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrapper", wrappers.WRAPPERS, ids=lambda wrapper: wrapper.__name__)
def test_transports_lose_nothing(wrapper):
    """What a transport adds can be taken off again: every message is still there in order."""
    text = render(planned("0.21.0"))
    wrapped = wrapper(text)
    bare = re.sub(r"\x1b?\[\d+m", "", wrapped).replace("\r", "")
    if wrapper is wrappers.docker_json:
        bare = "".join(json.loads(line)["log"] for line in wrapped.splitlines())
    if wrapper is wrappers.terminal:
        assert max(map(len, wrapped.splitlines())) <= wrappers.WIDTH
        assert bare.replace("\n", "") == text.replace("\n", "")
        return
    for before, after in zip(text.splitlines(), bare.splitlines()[3 * (wrapper is wrappers.fenced) :], strict=False):
        assert after.endswith(before)


def test_json_formatter_keeps_message_and_process():
    """0.32's own JSON: records become objects, other lines stay."""
    lines = wrappers.json_records(render(planned("0.32.0"))).splitlines()
    objects = [json.loads(line) for line in lines if line.startswith("{")]
    assert any(
        o["message"].startswith("Available KV cache memory") and o["vllm_process_name"] == "EngineCore" for o in objects
    )
    assert any("Application startup complete" in line and not line.startswith("{") for line in lines)


def test_ray_folds_lines_that_differ_in_digits():
    """The second of two is held back, and from three on the last carries a count."""
    four = Truth("0.8.4", (rank(),) * 4, 0.5, tp=4, ray=True)
    folded = wrappers.ray_folded(render(four))
    assert folded.count("Model loading took") == 2
    assert re.search(r"Model loading took .*\[repeated 3x across cluster\]$", folded, re.MULTILINE)


def test_dropping_every_line_leaves_nothing():
    text = render(planned("0.21.0"))
    assert wrappers.drop_lines(text, Random(1), 1.0) == ""
    assert wrappers.drop_lines(text, Random(1), 0.0) == text


# -- samples ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sample", make_samples.samples(), ids=lambda sample: sample.name)
def test_samples_on_disk_are_what_the_script_writes(sample):
    """`python -m tests.make_samples` leaves the folder as it is."""
    for suffix, wanted in ((".log", sample.log), (".ledger.json", sample.ledger)):
        assert (make_samples.SAMPLES / f"{sample.name}{suffix}").read_bytes().decode() == wanted


def test_no_sample_is_orphaned():
    """Every file in the folder comes from the script."""
    written = {f"{sample.name}{suffix}" for sample in make_samples.samples() for suffix in (".log", ".ledger.json")}
    assert {path.name for path in make_samples.SAMPLES.iterdir() if path.suffix in (".log", ".json")} == written


def test_several_starts_stand_one_after_the_other():
    """A crash loop is the plain concatenation of its starts."""
    loop = next(sample for sample in make_samples.samples() if sample.name == "vllm-0.22.1-crash-loop")
    assert loop.log == "".join(render(truth) for truth in loop.truths) == render_all(loop.truths)
    assert [truth.failure for truth in loop.truths] == [Failure.FREE_BELOW_DESIRED, Failure.OOM_CAPTURE, Failure.NONE]
