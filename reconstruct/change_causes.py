"""Why a part of a change is what it is: the settings, defaults, releases and cards that two logs state differently."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.eras import BUDGET_WORDS, TOKEN_WORDS, describe
from reconstruct.interval import ANYTHING, Interval
from reconstruct.releases import index
from reconstruct.whatif_setup import today

if TYPE_CHECKING:
    from reconstruct.change_parts import Side
    from reconstruct.whatif_setup import Setup

SETTING, DEFAULT, RELEASE, CARD, OTHERS, GREW, MODEL, ROUNDING, SAME, UNTOLD = (
    "setting", "default", "release", "card", "others", "measured", "model", "rounding", "none", "unknown",
)  # fmt: skip
"""Kinds of cause: a setting given differently, a default that the release changed, the release's own arithmetic, another
card or driver, other processes, a measured figure that moved, another model or dtype, block rounding, nothing, not told."""
NOISE = 16 << 20
"""Bytes by which measured terms of equal starts differ: drivers hand memory out in steps of 2 MiB."""
SAMPLERS = ("0.17.0", "0.22.0", "0.27.0", "0.29.0", "0.33.0")
"""Releases from which the profiled peak is made of something else."""


class Cause(NamedTuple):
    """One cause: its kind, one clause, and the lines of both logs that state it."""

    kind: str
    text: str
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()


class Pair(NamedTuple):
    """Two sides and their setups."""

    before: Side
    after: Side
    first: Setup
    second: Setup

    def differs(self, name: str) -> Cause | None:
        """Give a setting that both logs state differently, or that one states and the other leaves out."""
        values = [side.startup.settings.get(name) for side in (self.before, self.after)]
        if values[0] == values[1]:
            return None
        lines = [_lines(side, name) for side in (self.before, self.after)]
        told = " to ".join("unset" if v is None else str(v) for v in values)
        return Cause(SETTING, f"{name} {told}", *lines)

    @property
    def released(self) -> str:
        """What happened to the release, or nothing."""
        if self.first.span == self.second.span:
            return ""
        return f"{describe(self.first.span)} to {describe(self.second.span)}"

    def behaviour(self, name: str) -> tuple[object, object] | None:
        """Give a behaviour of both eras where it surely differs."""
        held = [{getattr(e, name) for e in s.eras} for s in (self.first, self.second)]
        if len(held[0]) != 1 or len(held[1]) != 1 or held[0] == held[1]:
            return None
        return held[0].pop(), held[1].pop()

    def moved(self, name: str) -> Interval:
        """Give how far a figure moved."""
        return self.after.interval(name).minus(self.before.interval(name))

    def crossed(self, first: str) -> bool:
        """Whether a release lies between the two."""
        place = index(first)
        return (self.first.span.high < place) != (self.second.span.low < place)


def _lines(side: Side, name: str) -> tuple[int, ...]:
    found = side.startup.settings.values.get(name)
    return found.lines[:1] if found else ()


def pair_of(before: Side, after: Side) -> Pair:
    """Give both sides with their setups."""
    return Pair(before, after, today(before.startup, before.engine), today(after.startup, after.engine))


GEOMETRY = (
    "model", "dtype", "kv_cache_dtype", "tensor_parallel_size", "pipeline_parallel_size", "block_size",
    "decode_context_parallel_size", "disable_hybrid_kv_cache_manager", "speculative_config", "speculative_model",
)  # fmt: skip
"""Settings that decide the bytes of a block; the quantisation does not."""


def same_blocks(pair: Pair) -> bool:
    """Whether nothing that decides a block's bytes differs: then both are the same to the byte."""
    model = pair.before.startup.settings.text("model")
    sizes = (pair.first.block_size, pair.second.block_size)
    return model is not None and not pair.released and sizes[0] == sizes[1] and not any(map(pair.differs, GEOMETRY))


def causes_of(name: str, pair: Pair, share: Interval) -> tuple[Cause, ...]:
    """Give the causes of one part; `share` is what it adds to M or the pool, or to blocks or tokens below them."""
    if share == Interval.exactly(0) and name in {"pool", "override", "bytes_per_block", "formula"}:
        return ()
    found = _FINDERS[name](pair)
    if found:
        return tuple(found)
    if share.low is None or share.high is None:
        return (Cause(UNTOLD, "the logs do not state it on both sides"),)
    if name in MEASURED and not (share.contains(0) and share.high - share.low <= 4 * NOISE):
        if share.contains(0):
            return (Cause(SAME, "no more than the printed digits leave open"),)
        return (Cause(GREW, MEASURED[name]),)
    return ()


MEASURED = {
    "total_consumed": "what stays allocated was measured differently, with nothing in the logs to tell why",
    "transient_peak_headroom": "the profiled peak was measured differently, with nothing in the logs to tell why",
    "cudagraph_memory_applied": "the graph estimate was measured differently",
}


def _budget(pair: Pair) -> list[Cause]:
    found = []
    utilization = pair.differs("gpu_memory_utilization")
    ends = (pair.first.utilization, pair.second.utilization)
    if ends[0] != ends[1] and ends[0] != ANYTHING != ends[1]:
        defaults = pair.behaviour("default_utilization")
        text = f"gpu_memory_utilization {_number(ends[0])} to {_number(ends[1])}"
        if pair.first.utilization_by_default and pair.second.utilization_by_default and defaults:
            found.append(Cause(DEFAULT, f"{text}: the default of the release, {pair.released}"))
        else:
            lines = (utilization.before, utilization.after) if utilization else ((), ())
            found.append(Cause(SETTING, text, *lines))
    found += _card(pair)
    external = pair.moved("external_weight_memory")
    if external != ANYTHING and not external.contains(0):
        found.append(Cause(OTHERS, "weights held by another process are taken from the budget (0.32+)"))
    rounding = pair.behaviour("budget")
    if rounding and "none" not in rounding:
        first, second = (BUDGET_WORDS[str(r)] for r in rounding)
        found.append(Cause(RELEASE, f"the budget is {second} instead of {first}: a byte at most"))
    return found


def _number(interval: Interval) -> str:
    return f"{interval.low:g}" if interval.is_point else str(interval)


def _card(pair: Pair) -> list[Cause]:
    total = pair.moved("total_memory")
    if total == ANYTHING or total.contains(0):
        return []
    return [Cause(CARD, "another card or driver: total memory differs")]


def _model(pair: Pair) -> list[Cause]:
    names = ("model", "quantization", "dtype", "load_format", "cpu_offload_gb", "enable_lora")
    return [c._replace(kind=MODEL) for c in map(pair.differs, names) if c]


def _split(pair: Pair) -> list[Cause]:
    names = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "enable_expert_parallel")
    return [c for c in map(pair.differs, names) if c]


def _consumed(pair: Pair) -> list[Cause]:
    found = _model(pair) + _split(pair)
    charge = pair.behaviour("charge")
    if charge:
        text = {
            "consumed": "C counts all that is gone since the first snapshot (0.27.0 on)",
            "terms": "C counts weights and what was taken outside torch (0.9.1 to 0.26)",
            "device": "C counts all that is in use on the card (V1 up to 0.9.0)",
            "opaque": "C is not split up (V0 up to 0.6.4)",
        }[str(charge[1])]
        found.append(Cause(RELEASE, text))
    if pair.first.world > 1 and pair.second.world > 1 and pair.crossed("0.11.0"):
        found.append(Cause(RELEASE, "NCCL stands before the baseline snapshot from 0.11.0 on, in N up to 0.10.2"))
    found += _others(pair)
    eager = pair.differs("enforce_eager")
    found += [eager] if eager else []
    if not found and pair.released:
        found.append(Cause(RELEASE, f"another release: {pair.released}"))
    return found


def _others(pair: Pair) -> list[Cause]:
    """Say where other processes hold another share: F moved though card, ranks and release are the same."""
    free = pair.moved("initial_free_memory")
    if free == ANYTHING or pair.released or pair.first.world != pair.second.world or _card(pair):
        return []
    if free.low is None or free.high is None or (free.high > -NOISE and free.low < NOISE):
        return []
    charged = all(e.charge in {"device", "consumed"} for e in pair.second.eras)
    verb = "hold more" if free.high <= 0 else "hold less"
    if charged:
        return [
            Cause(
                OTHERS, f"other processes {verb}: the memory free at the start differs, and is charged where it moves"
            )
        ]
    return [Cause(OTHERS, f"other processes {verb} at the start; this release does not charge it")]


def _peak(pair: Pair) -> list[Cause]:
    names = ("max_num_batched_tokens", "max_num_seqs")
    found = [c for c in map(pair.differs, names) if c and c.before and c.after]
    found += _model(pair) + [c for c in map(pair.differs, ("pipeline_parallel_size", "tensor_parallel_size")) if c]
    compiles = (pair.before.startup.compiles, pair.after.startup.compiles)
    if None not in compiles and compiles[0] != compiles[1]:
        did = (
            "the second compiled its graphs, the first" if compiles[1] else "the first compiled its graphs, the second"
        )
        found.append(
            Cause(GREW, f"{did} loaded them: what compiling takes counts in the peak", *map(_compiling, pair[:2]))
        )
    crossed = [first for first in SAMPLERS if pair.crossed(first)]
    if crossed:
        found.append(Cause(RELEASE, f"the profile run changed in {', '.join(crossed)}"))
    if not found and pair.released:
        found.append(Cause(RELEASE, f"another release: {pair.released}"))
    return found


def _compiling(side: Side) -> tuple[int, ...]:
    return tuple(s.line for s in side.startup.log.of("compiled", "compile_cache_hit")[:1])


def _graphs(pair: Pair) -> list[Cause]:
    charged = (pair.first.charged, pair.second.charged)
    eager = pair.differs("enforce_eager")
    if eager:
        return [eager]
    if charged[0] is not charged[1] and None not in charged:
        word = "charged" if charged[1] else "not charged"
        estimate = pair.behaviour("estimate")
        if estimate and pair.second.switched is None:
            return [Cause(DEFAULT, f"the graph estimate is {word} by default: {pair.released}")]
        return [Cause(SETTING, f"the graph estimate is {word}: VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS or eager mode")]
    if not charged[0] and not charged[1]:
        return []
    names = ("max_num_seqs", "tensor_parallel_size", "pipeline_parallel_size", "kv_cache_dtype")
    found = _model(pair) + [c for c in map(pair.differs, names) if c]
    return found or ([Cause(RELEASE, f"another release: {pair.released}")] if pair.released else [])


def _pool(pair: Pair) -> list[Cause]:
    if pair.before.explicit or pair.after.explicit:
        return [pair.differs("kv_cache_memory_bytes") or Cause(SETTING, "the pool was given in bytes")]
    reservation = pair.differs("mm_ipc_gpu_memory_gb")
    reserved = [bool(side.startup.log.of("mm_reservation")) for side in (pair.before, pair.after)]
    found = [reservation] if reservation else []
    if any(reserved):
        found.append(Cause(SETTING, "multimodal memory is reserved from M (0.25.0 on)"))
    return found or [Cause(UNTOLD, "the pool that was divided may be another rank's")]


def _per_block(pair: Pair) -> list[Cause]:
    found = []
    for name in GEOMETRY:
        cause = pair.differs(name)
        if cause:
            found.append(cause._replace(kind=MODEL) if name in {"model", "dtype", "kv_cache_dtype"} else cause)
    sizes = (pair.first.block_size, pair.second.block_size)
    if sizes[0] != sizes[1] and sizes[0].is_point and sizes[1].is_point and not pair.differs("block_size"):
        found.append(Cause(SETTING, f"block_size {sizes[0].low} to {sizes[1].low}"))
    if not found and pair.released:
        found.append(Cause(RELEASE, f"the planner of another release: {pair.released}"))
    return found


def _rounding(pair: Pair) -> list[Cause]:
    del pair
    return [Cause(ROUNDING, "the rest of the pool that fills no block")]


def _override(pair: Pair) -> list[Cause]:
    return [pair.differs("num_gpu_blocks_override") or Cause(SETTING, "num_gpu_blocks_override")]


def _formula(pair: Pair) -> list[Cause]:
    formula = pair.behaviour("tokens")
    found = []
    if formula:
        first, second = (TOKEN_WORDS[str(f)] for f in formula)
        found.append(
            Cause(RELEASE, f"the printed number is {second} instead of {first}; the pool need not have changed")
        )
    lengths = (pair.first.max_model_len, pair.second.max_model_len)
    if lengths[0] != lengths[1] and all("requests" in {e.tokens for e in s.eras} for s in (pair.first, pair.second)):
        found.append(
            Cause(SETTING, f"max_model_len {_number(lengths[0])} to {_number(lengths[1])}: the number follows it")
        )
    names = ("block_size", "decode_context_parallel_size")
    return found + [c for c in map(pair.differs, names) if c]


_FINDERS = {
    "requested_memory": _budget,
    "total_consumed": _consumed,
    "transient_peak_headroom": _peak,
    "cudagraph_memory_applied": _graphs,
    "pool": _pool,
    "bytes_per_block": _per_block,
    "rounding": _rounding,
    "override": _override,
    "formula": _formula,
}
