"""G: CUDA graphs, as the release estimates them before the cache and as the capture takes them.

The engine's own estimate is max(first piecewise, first full) + the second of each kind times the rest, of free-memory
deltas in steps of 2 MiB (0.18.1 to 0.28 v1/worker/gpu_model_runner.py profile_cudagraph_memory); the deltas themselves
are measured, and the constants here are fitted to them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.interval import Interval
from reconstruct.planner.pages import cdiv
from reconstruct.predict.constants import UnknownConstant, constant
from reconstruct.rounding import MIB

if TYPE_CHECKING:
    from reconstruct.predict.constants import Constant
    from reconstruct.predict.peak import Subject

SPLITS = 32
"""flash_attn_max_num_splits_for_cuda_graph (0.12.0 config/attention.py)."""


class Graphs(NamedTuple):
    """The figures of one rank.

    estimate: G_est. applied: what M loses. actual: G_act at capture. nominal, likely_estimate: the fitted centres of
    G_act and G_est, in bytes.
    """

    estimate: Interval
    applied: Interval
    actual: Interval
    nominal: int
    likely_estimate: int
    reasons: tuple[str, ...]


NONE = Interval(0, 0)


def split_workspace(subject: Subject) -> int:
    """Bytes of FlashAttention 3's split buffer, made with the first full graph: Hopper alone, not in float32 or Triton.

    Source: 0.19.1 v1/attention/backends/flash_attn.py; 32 splits of the largest full batch, float32.
    """
    shape, graphs = subject.shape, subject.settled.captured
    if subject.hardware.capability[0] != 9 or subject.scenario.release < (0, 12) or not graphs.full:
        return 0
    if subject.settled.width == 4 or shape.trait.experts == "gpt_oss":
        return 0
    if shape.architecture.startswith("Gemma3") and shape.multimodal:
        return 0  # image tokens attend both ways: TRITON_ATTN
    size = 512 if shape.trait.mixer == "latent" else shape.head_size
    heads = cdiv(shape.heads, subject.ranks)
    return SPLITS * heads * graphs.largest_full * size * 4


def first_piecewise(subject: Subject) -> float:
    """Give the fitted first piecewise delta, in MiB: buffers of the largest size's feed-forward layer."""
    return constant("graphs.first").value + constant("graphs.first_slope").value * largest_rows(subject)


def largest_rows(subject: Subject) -> float:
    """MiB of the largest graph's feed-forward rows."""
    shape = subject.shape
    row = shape.expert_intermediate if shape.experts else shape.intermediate
    return subject.settled.captured.largest * cdiv(row, subject.ranks) * subject.settled.width / MIB


def captured_layers(subject: Subject) -> float:
    """Layers of all captured graphs, in units of 102 graphs: the 51 sizes up to 512 once whole and once in pieces."""
    graphs = subject.settled.captured
    return subject.layers * (graphs.piecewise + graphs.full) / 102


def graphs_of(subject: Subject) -> Graphs:
    """All three figures of one rank."""
    graphs, era = subject.settled.captured, subject.settled.era
    if subject.scenario.enforce_eager or not (graphs.piecewise or graphs.full):
        return Graphs(NONE, NONE, NONE, 0, 0, ())
    nominal = _nominal(subject)
    band = _row(f"graphs.actual.{'experts' if subject.shape.experts else 'dense'}", subject)
    actual = _spread(nominal, band.low, band.high)
    actual = _at_least_a_few(actual)
    nominal = int(nominal * (1 + band.value))
    odd = not subject.hardware.is_cuda or subject.hardware.integrated
    if odd or subject.settled.engine == "V0":
        wide = constant("graphs.unmodelled" if odd else "graphs.v0")
        actual = Interval(int(wide.low * MIB), int(wide.high * MIB))
    estimate, likely, reasons = _estimate(subject)
    if era.estimate == "none":
        return Graphs(NONE, NONE, actual, nominal, 0, ())
    charged = subject.scenario.charge_graphs
    applies = era.estimate == "on" if charged is None else charged
    if not applies:  # nothing depends on its width
        estimate = Interval(estimate.low, (estimate.high or 0) + _fresh_segment(subject))
    return Graphs(estimate, estimate if applies else NONE, actual, nominal, likely, reasons if applies else ())


def _fresh_segment(subject: Subject) -> int:
    """Bytes that an estimate exceeds its band by where the second capture opens a fresh 20 MiB segment: one in sixteen.

    The engine takes the second delta for each further graph's (0.18.1 to 0.28 profile_cudagraph_memory).
    """
    return 20 * MIB * max(subject.settled.captured.piecewise - 1, 0)


def _row(name: str, subject: Subject) -> Constant:
    """Give the stated error where the fit was made (Hopper, 0.18 and 0.19), else the wider one of everywhere else."""
    if subject.hardware.capability[0] == 9:
        try:
            return constant(f"{name}.hopper", subject.scenario.place)
        except UnknownConstant:
            pass
    return constant(f"{name}.elsewhere")


def _nominal(subject: Subject) -> int:
    """Give the fitted capture: the split workspace, a fixed part, and a part for each layer and graph."""
    graphs = subject.settled.captured
    fixed = constant("graphs.fixed").value * min(1.0, graphs.largest / 512 if graphs.largest else 0.3)
    each = constant("graphs.layer").value
    if subject.shape.experts:
        each += constant("graphs.layer.experts").value
    if subject.scheme.kind != "none":
        each += constant("graphs.layer.quantised").value
    return split_workspace(subject) + int((fixed + each * captured_layers(subject)) * MIB)


def _estimate(subject: Subject) -> tuple[Interval, int, tuple[str, ...]]:
    release = subject.scenario.release
    if subject.settled.runner == "V2" and release < (0, 29):
        return NONE, 0, ("the V2 runner's estimate is zero in this release: graphs take memory that nobody set aside",)
    if not subject.hardware.is_cuda or subject.hardware.integrated:
        wide = constant("graphs.unmodelled")
        interval = Interval(int(wide.low * MIB), int(wide.high * MIB))
        return interval, int(wide.value * MIB), ("graph estimates on this card follow no rule known here",)
    band = _row("graphs.estimate", subject)
    first = max(first_piecewise(subject), split_workspace(subject) / MIB)
    graphs = subject.settled.captured
    second, full = (_further(subject, name) for name in ("graphs.second", "graphs.second_full"))
    rest = second * max(graphs.piecewise - 1, 0) + full * max(graphs.full - 1, 0)
    nominal = int((first + rest) * MIB)
    return (
        _at_least_a_few(_spread(nominal, band.low, band.high)),
        int(nominal * (1 + band.value)),
        (
            "one estimate in sixteen exceeds this band by up to 1 GiB: a fresh segment in the second capture is multiplied",
        ),
    )


def _at_least_a_few(band: Interval) -> Interval:
    """Let a band reach what a handful of graphs takes: what the first ones load does not shrink with their number."""
    return Interval(band.low, max(band.high or 0, int(constant("graphs.few").high * MIB)))


def _further(subject: Subject, name: str) -> float:
    """Give the fitted delta of each further graph, in MiB; the engine floors it at 1 MiB."""
    each = constant(f"{name}_layer").value
    if subject.shape.experts:
        each += constant(f"{name}_layer.experts").value
    if subject.scheme.kind != "none":
        each += constant(f"{name}_layer.quantised").value
    return max(1.0, constant(name).value + each * subject.layers)


def _spread(nominal: int, low: float, high: float) -> Interval:
    """Give a band of shares of the nominal, and 64 MiB besides for what steps of 2 MiB and allocator segments add."""
    slack = int(constant("graphs.edge").value * MIB)
    return Interval(max(0, int(nominal * (1 + low)) - slack), int(nominal * (1 + high)) + slack)
