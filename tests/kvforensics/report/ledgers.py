"""Ledgers built by hand, one for each shape that a report has to show."""

from __future__ import annotations

from kvforensics.explanation import Report
from kvforensics.findings import Verdict
from kvforensics.findings.finding import Action, Cost, Effect, Finding, Unsaid
from parsers.launch_settings import Setting, Settings
from parsers.record import Record
from parsers.rule import Rule, Statement
from parsers.startups import StartUpLog
from parsers.template import Printed
from reconstruct.eras import era
from reconstruct.interval import Interval
from reconstruct.ledger import (
    Account,
    Claim,
    Conflict,
    EngineLedger,
    Missing,
    Quantity,
    RankLedger,
    StartUpLedger,
)
from reconstruct.quantities import BY_NAME
from reconstruct.releases import EngineVersion, Span, index
from reconstruct.rounding import GIB


def hundredths(text: str) -> Interval:
    """Give the bytes that print as this many GiB with two decimals."""
    n = round(float(text) * 100)
    return Interval(-((-(2 * n - 1) * GIB) // 200), ((2 * n + 1) * GIB) // 200)


def exactly(value: float) -> Interval:
    return Interval.exactly(value)


def account(missing: dict[str, str] | None = None, **figures: tuple[Interval, str, tuple[int, ...]]) -> Account:
    """Give an account: each figure as (interval, origin, lines)."""
    found = {n: Quantity(n, i, BY_NAME[n].unit, origin, lines) for n, (i, origin, lines) in figures.items()}
    return Account(found, {n: Missing(n, reason) for n, reason in (missing or {}).items()})


def statement(kind: str, line: int, text: str, **fields: str) -> Statement:
    rule = Rule(kind, text, ("0.33.0", "0.33.0"), text)
    printed = tuple(Printed(name, value, "rest") for name, value in fields.items())
    return Statement(kind, rule, Record(line, text), printed, (line,))


def settings(line: int, **values: str | int | bool | None) -> Settings:
    return Settings({n: Setting(v, (line,)) for n, v in values.items()}, lists_changes=True, lists_all=False)


def startup(
    release: str,
    engines: tuple[EngineLedger, ...],
    asked: Settings,
    *,
    generation: str = "V1",
    outcome: str = "ready",
    lines: tuple[int, int] = (1, 99),
    statements: tuple[Statement, ...] = (),
    conflicts: tuple[Conflict, ...] = (),
    unread: tuple[Record, ...] = (),
    version: EngineVersion | None = None,
) -> StartUpLedger:
    place = index(release)
    return StartUpLedger(
        log=StartUpLog(*lines, statements, ()),
        version=version or EngineVersion(release, Span(place, place)),
        eras=(era(place, generation),),
        outcome=outcome,
        settings=asked,
        engines=engines,
        conflicts=conflicts,
        unread=unread,
    )


def whole() -> Report:
    """One GPU of 0.27.1 that states every term; the model lies in someone's home."""
    rank = account(
        total_memory=(hundredths("79.25"), "printed", (29,)),
        requested_memory=(hundredths("71.33"), "printed", (29,)),
        initial_free_memory=(hundredths("78.85"), "printed", (12,)),
        model_memory=(hundredths("56.93"), "printed", (19,)),
        total_consumed=(hundredths("57.26"), "printed", (29,)),
        transient_peak_headroom=(Interval(75248096, 94502702), "derived", (7, 21, 23, 28, 29)),
        cudagraph_memory_estimate=(hundredths("0.11"), "printed", (21, 28)),
        cudagraph_memory_applied=(hundredths("0.11"), "derived", (21, 28)),
        cudagraph_memory_actual=(hundredths("0.11"), "printed", (27,)),
        available_kv_cache_memory=(hundredths("13.88"), "printed", (22, 29)),
        missing={"torch_peak_increase": "its line is not in the log"},
    )
    capacity = account(
        gpu_memory_utilization=(exactly(0.9), "printed", (7,)),
        kv_pool_memory=(hundredths("13.88"), "derived", (22, 29)),
        block_size=(exactly(16), "default", ()),
        bytes_per_block=(exactly(1572864), "config", ()),
        num_blocks=(exactly(9476), "derived", (24, 25)),
        kv_cache_bytes=(exactly(9476 * 1572864), "derived", (24, 25)),
        unused_kv_memory=(Interval(0, 1572863), "derived", (22, 24)),
        kv_cache_tokens=(exactly(151616), "printed", (24,)),
        max_model_len=(exactly(131072), "printed", (25,)),
        max_concurrency=(Interval(1.155, 1.165), "printed", (25,)),
    )
    engine = EngineLedger(
        0, (RankLedger("EngineCore", 0, 0, 0, None, rank),), capacity, "EngineCore", Interval(-30000000, 29000000)
    )
    asked = settings(
        12,
        model="/home/alice/models/qwen3|30b`x`",
        dtype="bfloat16",
        kv_cache_dtype="fp8",
        tensor_parallel_size=1,
        pipeline_parallel_size=1,
    )
    card = statement("device_name", 15, "", path="/x/E=128,N=768,device_name=NVIDIA_H100_80GB_HBM3.json")
    ledger = startup("0.27.1", (engine,), asked, lines=(7, 36), statements=(card,))
    tokens = Interval(1050, 1200)
    graphs = Finding(
        "graphs-charged-to-kv", "note", "CUDA graphs are charged to the KV cache", "0.11 GiB of the budget are kept.",
        (21, 28), Cost(hundredths("0.11"), tokens),
        (
            Action(
                "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0",
                (Effect("available_kv_cache_memory", hundredths("13.99")), Effect("kv_cache_tokens", Interval(152000, 153000))),
                "graphs then come on top of the budget",
            ),
        ),
    )  # fmt: skip
    healthy = Finding("healthy", "note", "Nothing is wrong", "All that was looked at is as it should be.", (24,))
    unsaid = (Unsaid("memory-held-by-others", "T and F"), Unsaid("ranks-differ", "T and F"))
    return Report("/home/alice/server.log", 36, (ledger,), verdicts=(Verdict((graphs, healthy), unsaid),))


def pipeline() -> Report:
    """Two stages on two nodes at INFO: most terms missing, the log cut, lines that nobody read."""
    why = "printed only at DEBUG by 0.19.1"
    first = account(
        requested_memory=(Interval(78000000000, 81000000000), "derived", (7, 23, 25, 33)),
        model_memory=(hundredths("7.51"), "printed", (21,)),
        cudagraph_memory_applied=(exactly(0), "config", ()),
        available_kv_cache_memory=(hundredths("66.55"), "printed", (24,)),
        total_consumed=(Interval(None, 9700000000), "derived", (7, 23)),
        missing={"total_memory": f"{why} (--gpu or --total-memory adds it)", "transient_peak_headroom": why},
    )
    second = account(
        cudagraph_memory_applied=(exactly(0), "config", ()),
        missing={
            "total_memory": f"{why} (--gpu or --total-memory adds it)",
            "transient_peak_headroom": why,
            "model_memory": why,
        },
    )
    capacity = account(
        gpu_memory_utilization=(exactly(0.95), "printed", (7,)),
        num_blocks=(exactly(67215), "derived", (29,)),
        kv_cache_tokens=(exactly(1075440), "printed", (29,)),
        missing={"bytes_per_block": "neither blocks and pool nor a model config bound it"},
    )
    ranks = (
        RankLedger("Worker_PP0", 0, 0, 0, "10.0.0.7", first),
        RankLedger("Worker_PP1", 0, 1, 0, "10.0.0.8", second),
    )
    asked = settings(12, model="meta-llama/Llama-3.1-8B", tensor_parallel_size=1, pipeline_parallel_size=2)
    unread = tuple(
        Record(40 + i, f"Memory of worker 10.0.0.{i}: {i}.5 GiB [bold]\x1b[31mtoken=s3cret{i}") for i in range(7)
    )
    ledger = startup(
        "0.19.1", (EngineLedger(0, ranks, capacity, None, None),), asked, outcome="unfinished", unread=unread
    )
    return Report("-", 99, (ledger,), "the gzip stream ends early at line 99")


def old_engine() -> Report:
    """V0 whose log states no version."""
    rank = account(
        total_memory=(hundredths("44.42"), "printed", (9,)),
        requested_memory=(hundredths("39.98"), "printed", (9,)),
        model_memory=(hundredths("14.99"), "printed", (8, 9)),
        non_torch_increase=(hundredths("0.08"), "printed", (9,)),
        torch_peak_increase=(hundredths("1.26"), "printed", (9,)),
        total_consumed=(hundredths("15.07"), "derived", (9,)),
        transient_peak_headroom=(hundredths("1.26"), "derived", (9,)),
        cudagraph_memory_applied=(exactly(0), "config", ()),
        available_kv_cache_memory=(hundredths("23.65"), "printed", (9,)),
    )
    capacity = account(
        gpu_memory_utilization=(exactly(0.9), "default", ()),
        kv_pool_memory=(hundredths("23.65"), "derived", (9,)),
        block_size=(exactly(16), "default", ()),
        bytes_per_block=(Interval(2096500, 2098200), "derived", (9, 10)),
        num_blocks=(exactly(12107), "printed", (10,)),
        missing={"kv_cache_tokens": "0.6.5 to 0.7.3 prints blocks, not tokens"},
    )
    engine = EngineLedger(
        0, (RankLedger("rank 0", 0, 0, 0, None, rank),), capacity, "rank 0", Interval(-21000000, 21000000)
    )
    version = EngineVersion(
        None, Span(index("0.6.5"), index("0.7.3")), "the log states no version; narrowed by the wording of its lines"
    )
    asked = settings(3, model="m", dtype="float16", tensor_parallel_size=1, pipeline_parallel_size=1)
    return Report("v0.log", 20, (startup("0.6.6.post1", (engine,), asked, generation="V0", version=version),))


def crash_loop() -> Report:
    """A start that failed after one that did: no room for a pool."""
    rank = account(
        model_memory=(hundredths("14.25"), "printed", (13,)),
        available_kv_cache_memory=(hundredths("-1.93"), "printed", (14,)),
        missing={"total_memory": "its line is not in the log"},
    )
    capacity = account(
        kv_pool_memory=(hundredths("-1.93"), "derived", (14,)),
        unused_kv_memory=(Interval(None, -2066953708), "derived", (14,)),
        missing={"num_blocks": "not printed"},
    )
    engine = EngineLedger(0, (RankLedger("EngineCore_DP0", 0, 0, 0, None, rank),), capacity, "EngineCore_DP0", None)
    asked = settings(7, model="Qwen/Qwen2.5-7B-Instruct", tensor_parallel_size=1, pipeline_parallel_size=1)
    said = (
        "ValueError: No available memory for the cache blocks of http://10.1.2.3:8000. Raise `gpu_memory_utilization`."
    )
    over = statement("no_kv_memory", 20, said)
    failed = statement("engine_failed", 25, "Engine core initialization failed.")
    before = startup("0.10.2", (), asked, outcome="failed", lines=(1, 4))
    after = startup("0.10.2", (engine,), asked, outcome="failed", lines=(5, 30), statements=(failed, over))
    others = Finding(
        "memory-held-by-others", "warning", "Other processes hold memory", "On 10.0.0.7 <b>24</b> GiB are *in use*.",
        (13, 14), Cost(Interval(0, GIB)), (Action("end them", risk="they may be wanted"),),
    )  # fmt: skip
    short = Finding(
        "no-kv-memory", "error", "No memory is left for the KV cache", "1.93 GiB are missing, in /home/alice/m.",
        (14, 20), Cost(hundredths("1.93")),
        (Action("--tensor-parallel-size 2"), Action("a smaller model", risk="it is another model")),
    )  # fmt: skip
    return Report("crash.log", 30, (before, after), verdicts=(Verdict((), ()), Verdict((others, short), ())))


def contradicted() -> Report:
    """Two engines; lines that cannot all be true; facts that the user added."""
    given = account(
        total_memory=(Interval(84900000000, 85200000000), "catalogue", ()),
        requested_memory=(Interval(76410000000, 76680000000), "derived", (7,)),
        external_weight_memory=(hundredths("2.00"), "given", ()),
        available_kv_cache_memory=(hundredths("40.00"), "printed", (20,)),
    )
    plenty = account(available_kv_cache_memory=(hundredths("41.00"), "printed", (21,)))
    small = account(num_blocks=(exactly(100), "printed", (30,)), kv_pool_memory=(hundredths("40.00"), "derived", (20,)))
    large = account(num_blocks=(exactly(120), "printed", (31,)), kv_pool_memory=(hundredths("41.00"), "derived", (21,)))
    engines = (
        EngineLedger(0, (RankLedger("EngineCore_DP0", 0, 0, 0, None, plenty),), large, "EngineCore_DP0", None),
        EngineLedger(
            1, (RankLedger("EngineCore_DP1", 1, 0, 0, None, given),), small, "EngineCore_DP1", Interval(GIB, 2 * GIB)
        ),
    )
    conflicts = (
        Conflict(
            "model_memory",
            (
                Claim(hundredths("6.59"), "printed", (1,)),
                Claim(hundredths("6.47"), "printed", (13,)),
                Claim(hundredths("6.59"), "printed", (5, 3)),
            ),
            "the lines contradict each other",
        ),
        Conflict(
            "kv_cache_tokens",
            (Claim(exactly(2064), "printed", (40,)), Claim(exactly(128), "printed", (41,))),
            "tokens = num_blocks x block_size does not hold: kv_cache_tokens [2064, 2064], num_blocks [128, 128]",
        ),
    )
    asked = settings(7, model="a/b", tensor_parallel_size=1, pipeline_parallel_size=1, data_parallel_size=2)
    return Report("two.log", 50, (startup("0.33.0", engines, asked, conflicts=conflicts),))
