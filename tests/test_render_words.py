"""The renderer's sentences against those of vLLM's own sources."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

import pytest

from tests.render.forms import FORMS, Engine
from tests.render.lines import render
from tests.render.numbers_as_printed import GIB, MIB
from tests.render.parts import Captures, Failure, Scope
from tests.render.planned_start import POOL, planned, rank
from tests.render.truth import Truth

if TYPE_CHECKING:
    from tests.render.strategies import Level


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
