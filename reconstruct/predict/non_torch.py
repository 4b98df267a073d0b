"""N: what a start-up takes of the card outside torch, and what is gone before its baseline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.interval import Interval
from reconstruct.predict.constants import UnknownConstant, constant
from reconstruct.rounding import GIB

if TYPE_CHECKING:
    from reconstruct.predict.constants import Constant
    from reconstruct.predict.peak import Subject

FEW = 4
"""Ranks up to which the fused all-reduce was measured closely."""


class NonTorch(NamedTuple):
    """Bytes outside torch, at least and at most, and likely. row: the constant behind it. reasons: why the band is wide."""

    interval: Interval
    likely: int
    row: Constant
    reasons: tuple[str, ...]


def fuses_all_reduce(subject: Subject) -> bool:
    """Whether all-reduce and norm are fused by default, whose workspace is 1.8 GiB a rank.

    Source: 0.17.1 to 0.33.0 config/vllm.py enable_allreduce_rms_fusion: tensor parallel, Hopper or data-centre
    Blackwell, compiled; up to 0.20 not with data or pipeline parallelism.
    """
    s = subject.scenario
    if s.release < (0, 17) or subject.ranks == 1 or s.enforce_eager or subject.hardware.capability[0] not in {9, 10}:
        return False
    alone = s.data_parallel_size == 1 and s.launch.pipeline_parallel_size == 1
    return alone or s.release >= (0, 21)


def kind_of(subject: Subject) -> str:
    """Which row of the table a rank falls under."""
    if subject.scenario.world == 1:
        return "single"
    if subject.ranks == 1:
        return "pipeline"
    if not fuses_all_reduce(subject):
        return "tensor"
    return "fused" if subject.ranks <= FEW else "fused_wide"


def _row(name: str, subject: Subject) -> tuple[Constant, tuple[str, ...]]:
    place, family = subject.scenario.place, subject.hardware.family
    try:
        return constant(name, place, family), ()
    except UnknownConstant:
        return constant(f"{name}.elsewhere", place), (f"{name} is not measured on this card and release: a wide band",)


def non_torch_of(subject: Subject) -> NonTorch:
    """N of one rank, the baseline use left out; V1 up to 0.9.0 counts what is on the card as well."""
    row, reasons = _row(f"non_torch.{kind_of(subject)}", subject)
    interval, likely = Interval(int(row.low * GIB), int(row.high * GIB)), int(row.value * GIB)
    if subject.settled.era.charge == "device":
        baseline = baseline_use(subject)
        interval, likely = interval.plus(baseline.interval), likely + baseline.likely
    if subject.scenario.enforce_eager and subject.scenario.release >= (0, 18):
        interval, likely = Interval(0, interval.high), likely // 2  # no graphs were profiled inside
    if subject.hardware.integrated:
        host = constant("non_torch.integrated")
        interval = interval.plus(Interval(int(host.low * GIB), int(host.high * GIB)))
        reasons += ("on an integrated card free memory is the host's, so that anything else there counts",)
    return NonTorch(interval, likely, row, reasons)


def baseline_kind(subject: Subject) -> str:
    """Which row of the baseline's table a rank falls under: before 0.11.0 there are no communicators yet."""
    if subject.scenario.world == 1 or subject.scenario.release < (0, 11):
        return "single"
    if subject.ranks == 1:
        return "pipeline"
    return "experts" if subject.shape.experts else "tensor"


def baseline_use(subject: Subject) -> NonTorch:
    """T - F: CUDA's context and, from 0.11.0 on, the communicators, plus what other processes hold."""
    row, reasons = _row(f"baseline.{baseline_kind(subject)}", subject)
    others = subject.scenario.other_use
    groups = GIB // 2 if subject.scenario.launch.decode_context_parallel_size > 1 else 0  # one more communicator
    interval = Interval(int(row.low * GIB) + others, int(row.high * GIB) + groups + others)
    if subject.hardware.integrated:
        interval = Interval(interval.low, int(subject.hardware.total_memory.high or 0))
    return NonTorch(interval, int(row.value * GIB) + others, row, reasons)
