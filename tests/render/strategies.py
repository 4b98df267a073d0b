"""Random start-ups that could be real, and random transports."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from hypothesis import strategies as st

from tests.render.numbers_as_printed import GIB, MIB
from tests.render.parts import Captures, Failure, Group, Rank
from tests.render.releases import BETWEEN, KNOWN, V0_LAST, V1_FIRST, since
from tests.render.truth import Truth
from tests.render.wrappers import WRAPPERS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PAGE = 1 << 16
"""Drivers hand out memory in pages of 64 KiB."""

CARDS = {
    "H100 SXM": 85028896768,
    "A100 40GB": 42298834944,
    "L4": 23795204096,
    "GH200": 102005473280,
    "H200": 150121480192,
    "A100 80GB": 85098823680,
    "RTX 4090": 25386352640,
    "RTX 3090": 25430786048,
    "RTX PRO 6000": 101970870272,
    "T4": 15655829504,
    "MI300X": 206141652992,
}
"""Total memory as drivers report it, in bytes; the first four are exact, the rest lie in what was seen."""

UTILIZATIONS = (0.9, 0.92, 0.95, 0.85, 0.8, 0.7, 0.5, 0.875, 0.8661508568217998, 0.97, 0.35, 0.9375, 0.6)


V1_RAY = "0.8.4"
"""The first release whose V1 is drawn under Ray."""


class Shape(NamedTuple):
    """What of a model decides its KV cache."""

    model: str
    architecture: str
    layers: int
    kv_heads: int
    head_size: int
    moe: bool = False
    sliding: int = 0
    """Layers with a window, in a hybrid; 0 means every layer is full."""
    window: int = 0


SHAPES = (
    Shape("meta-llama/Llama-3.1-8B-Instruct", "LlamaForCausalLM", 32, 8, 128),
    Shape("Qwen/Qwen2.5-7B-Instruct", "Qwen2ForCausalLM", 28, 4, 128),
    Shape("Qwen/Qwen2.5-1.5B-Instruct", "Qwen2ForCausalLM", 28, 2, 128),
    Shape("microsoft/phi-4", "Phi3ForCausalLM", 40, 10, 128),
    Shape("facebook/opt-125m", "OPTForCausalLM", 12, 12, 64),
    Shape("Qwen/Qwen3-30B-A3B", "Qwen3MoeForCausalLM", 48, 4, 128, moe=True),
)
HYBRIDS = (
    Shape("example-org/two-windows-20b", "GptOssForCausalLM", 24, 8, 64, moe=True, sliding=12, window=128),
    Shape("example-org/many-windows-27b", "Gemma3ForCausalLM", 62, 16, 128, sliding=52, window=1024),
)


def pages(low: float, high: float) -> st.SearchStrategy[int]:
    """Bytes between `low` and `high` GiB, in whole driver pages."""
    return st.integers(int(low * GIB) // PAGE, int(high * GIB) // PAGE).map(lambda count: count * PAGE)


def blobs(low: float, high: float) -> st.SearchStrategy[int]:
    """Bytes between `low` and `high` GiB, in torch's steps of 512."""
    return st.integers(int(low * GIB) // 512, int(high * GIB) // 512).map(lambda count: count * 512)


utilizations = st.one_of(
    st.sampled_from(UTILIZATIONS),
    st.integers(3000, 9800).map(lambda n: n / 10000),
    st.floats(0.3, 0.98, allow_nan=False),
)

captures = st.builds(
    lambda a, b, c, d: Captures(a * 2 * MIB, b * 2 * MIB, c * 2 * MIB, d * 2 * MIB),
    st.integers(10, 120),
    st.integers(0, 14),
    st.integers(0, 400),
    st.integers(0, 6),
)


def stage_layers(version: str, layers: int, stages: int) -> list[int]:
    """Layers per pipeline stage: the remainder goes last up to 0.7.3, then from the second to last backwards."""
    each, left = divmod(layers, stages)
    counts = [each] * stages
    if not since(version, "0.8.0"):
        counts[-1] += left
    else:
        for back in range(left):
            counts[-2 - back] += 1
    return counts


Engine = Literal["V0", "V1"]
Level = Literal["INFO", "DEBUG"]
levels: st.SearchStrategy[Level] = st.sampled_from(("INFO", "DEBUG"))


@st.composite
def topologies(
    draw: st.DrawFn, version: str, engine: str, moe: bool, hybrid: bool, ray: bool | None = None
) -> dict[str, Any]:
    """Ranks and nodes that the release could run; hybrids in one stage, since a stage's share of each group is not told.

    ray: under Ray or not; None leaves it open.
    """
    shapes = [(1, 1, 1)] * 3 + [(2, 1, 1), (4, 1, 1)]
    if since(version, "0.8.4") or (engine == "V0" and since(version, "0.5.5")):
        shapes += [(1, 2, 1), (2, 2, 1), (1, 3, 1)]
    if engine == "V1" and since(version, "0.8.4"):
        shapes += [(1, 1, 2), (1, 1, 3)]
    if engine == "V1" and since(version, "0.8.4" if moe else "0.14.0"):
        shapes += [(2, 1, 2), (1, 2, 2)]
    if ray:
        shapes = [shape for shape in shapes if shape[0] * shape[1] > 1 and shape[2] == 1]
    tp, pp, dp = draw(st.sampled_from([shape for shape in shapes if not hybrid or shape[1] == 1]))
    many = tp * pp > 1 and dp == 1
    if ray is None:
        ray = many and draw(st.integers(0, 4)) == 0 and (engine == "V0" or since(version, V1_RAY))
    nodes = 2 if ray and draw(st.booleans()) else 1
    return {"tp": tp, "pp": pp, "dp": dp, "ray": ray, "nodes": nodes}


@st.composite
def ranks(draw: st.DrawFn, version: str, total: int, u: float, bytes_per_block: int) -> Rank:
    """One worker; mostly it fits, sometimes it does not."""
    budget = total * u
    neighbours = draw(st.sampled_from((0, 0, 0, 0, 3 * GIB)))
    free = total - draw(pages(0.2, 2.5)) - neighbours
    tight = draw(st.integers(0, 7)) == 0
    low, high = (0.85, 1.0) if tight else (0.05, draw(st.sampled_from((0.3, 0.7))))
    weights = draw(blobs(low * budget / GIB, high * budget / GIB))
    peak = draw(blobs(0.05, min(5.0, 0.15 * budget / GIB + 0.1)))
    other = draw(pages(-0.03, 1.5))
    slack = draw(blobs(0, 0.4))
    external = draw(pages(0.0, 2.0)) if since(version, "0.32.0") and draw(st.integers(0, 3)) == 0 else 0
    return Rank(
        total_memory=total,
        initial_free_memory=free - external,
        model_memory=weights,
        torch_peak_increase=peak,
        non_torch_increase=other,
        bytes_per_block=bytes_per_block,
        total_consumed=weights + slack + other,
        transient_peak_headroom=draw(st.integers(0, peak // 512).map(lambda n: n * 512)),
        reserved_slack=slack,
        captures=draw(captures),
        cudagraph_actual=draw(pages(-0.3, 2.5)),
        external_weight_memory=external,
    )


def _capacity_options(draw: st.DrawFn, version: str, engine: str, dp: int) -> dict[str, Any]:
    """Flags that change the pool or its division, where that release has them; several may come together."""
    v1 = engine == "V1"

    def chosen(first: str, needed: bool = True) -> bool:
        return needed and since(version, first) and draw(st.integers(0, 9)) == 0

    options: dict[str, Any] = {"block_size": draw(st.sampled_from((16, 16, 16, 32, 64 if v1 else 8)))}
    if chosen("0.10.2", v1):
        options["kv_cache_memory_bytes"] = draw(st.integers(2 * GIB, 40 * GIB))
        options["startup_plan"] = since(version, "0.26.0") and draw(st.booleans())
    if chosen("0.4.3"):
        options["num_blocks_override"] = draw(st.integers(600, 9000))
    if chosen("0.14.1", v1 and dp == 1):
        options["auto_fit"] = True
    if chosen("0.25.1", v1):
        options["mm_reservation"] = draw(st.integers(256, 2048)) * MIB
    if chosen("0.18.0", v1):
        options["estimate_switch"] = draw(st.booleans())
    if chosen("0.3.3"):
        options["enforce_eager"] = True
    if chosen("0.29.0"):
        options["v2_runner"] = True
    if chosen("0.10.0" if v1 else "0.4.3"):
        options["kv_cache_dtype"] = "fp8"
    return options


def _stated(draw: st.DrawFn, version: str) -> str | None:
    """What a build calls itself: mostly its release, else a vendor's build of it or one on the way to it."""
    if not since(version, "0.8.0") or draw(st.integers(0, 5)):
        return None
    ending = draw(st.sampled_from(("+cu129", "+faa43dbf.nv26.01", ".post1", "rc2", "rc1.dev120+gd08eebad1", "dev")))
    return "0.1.dev18496+gd4e0675a7" if ending == "dev" else version + ending


def _alike(drawn: tuple[Rank, ...]) -> tuple[Rank, ...]:
    """Weights are held outside for all ranks of a launch or for none."""
    if all(rank.external_weight_memory for rank in drawn):
        return drawn
    return tuple(
        dataclasses.replace(
            rank,
            external_weight_memory=0,
            initial_free_memory=rank.initial_free_memory + rank.external_weight_memory,
        )
        for rank in drawn
    )


@st.composite
def truths(
    draw: st.DrawFn,
    versions: Sequence[str] = KNOWN + BETWEEN,
    injections: Sequence[Failure] = (Failure.NONE,),
    log_level: Level | None = None,
    ray: bool | None = None,
) -> Truth:
    """A whole start-up of one of `versions`; natural failures occur, others only when listed in `injections`.

    ray: only under Ray, or only without; None leaves it open.
    """
    version = draw(st.sampled_from(versions))
    engines: list[Engine] = ["V0"] if since(V0_LAST, version) else []
    engines += ["V1"] if since(version, V1_RAY if ray else V1_FIRST) else []
    engine = draw(st.sampled_from(engines))
    hybrid = engine == "V1" and since(version, "0.14.0") and draw(st.integers(0, 4)) == 0
    shape = draw(st.sampled_from(HYBRIDS if hybrid else SHAPES))
    place = draw(topologies(version, engine, shape.moe, hybrid, ray))
    u = draw(utilizations)
    if engine == "V1" and since(version, "0.10.2") and place["tp"] > shape.kv_heads and draw(st.booleans()):
        place["dcp"] = place["tp"] // shape.kv_heads
    options = _capacity_options(draw, version, engine, place["dp"])
    injected = draw(st.sampled_from(injections))
    if injected is Failure.OOM_SAMPLER and (engine == "V0" or not since(version, "0.9.1")):
        injected = Failure.OOM_CAPTURE
    truth = Truth(
        version=version,
        stated=_stated(draw, version),
        engine=engine,
        ranks=_drawn_ranks(draw, version, u, _bytes_per_block(version, shape, place, options)),
        gpu_memory_utilization=u,
        model=shape.model,
        architecture=shape.architecture,
        moe=shape.moe,
        groups=_groups(shape, options["block_size"]),
        full_model_len=draw(st.sampled_from((512, 2048, 4096, 5003, 8192, 16384, 32768, 131072))),
        length_given=draw(st.booleans()),
        max_num_batched_tokens=draw(st.sampled_from((2048, 8192))),
        injected=injected,
        cut_at=draw(st.floats(0, 0.7)),
        log_level=draw(levels) if log_level is None else log_level,
        colour=draw(st.booleans()),
        start=draw(st.integers(0, 10**6)),
        interleave=draw(st.none() | st.integers(0, 99)),
        **place,
        **options,
    )
    fits = all(truth.pool(rank) > 0 for rank in truth.ranks)  # else the reservation itself refuses
    return truth if fits else dataclasses.replace(truth, mm_reservation=0)


def _drawn_ranks(draw: st.DrawFn, version: str, u: float, per_rank: list[int]) -> tuple[Rank, ...]:
    """Every rank on a card of the same kind, now and then one on another."""
    totals = [draw(st.sampled_from(sorted(CARDS.values())))] * len(per_rank)
    if len(totals) > 1 and draw(st.integers(0, 9)) == 0:
        totals[-1] = draw(st.sampled_from(sorted(CARDS.values())))
    pairs = zip(totals, per_rank, strict=True)
    return _alike(tuple(draw(ranks(version, total, u, size)) for total, size in pairs))


def _groups(shape: Shape, block_size: int) -> tuple[Group, ...]:
    """Groups of equal length, the last one padded: one full group and as many sliding ones as it takes."""
    if not shape.sliding:
        return ()
    full = shape.layers - shape.sliding
    return (Group("full", block_size), *[Group("sliding", block_size, shape.window)] * -(-shape.sliding // full))


def _bytes_per_block(version: str, shape: Shape, place: dict[str, Any], options: dict[str, Any]) -> list[int]:
    """Each rank's divisor, in the order dp, pp, tp (FullAttentionSpec.page_size_bytes times its layers)."""
    tp, pp, dp = (int(place[name]) for name in ("tp", "pp", "dp"))
    element = 1 if options.get("kv_cache_dtype") else 2
    page = 2 * int(options["block_size"]) * max(1, shape.kv_heads // tp) * shape.head_size * element
    if shape.sliding:
        return [page * (shape.layers - shape.sliding)] * (tp * dp)
    stages = [page * layers for layers in stage_layers(version, shape.layers, pp) for _ in range(tp)]
    return stages * dp


wrappers: st.SearchStrategy[Callable[[str], str]] = st.sampled_from(WRAPPERS)
"""One transport."""

stacked_wrappers: st.SearchStrategy[list[Callable[[str], str]]] = st.lists(wrappers, max_size=2, unique=True)
"""Up to two transports, applied in order."""
