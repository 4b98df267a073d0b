"""Scratch that the kernels of expert layers take, and whether they keep it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.interval import Interval
from reconstruct.planner.pages import cdiv

if TYPE_CHECKING:
    from reconstruct.predict.peak import Subject

CHUNK = 16384
"""Tokens of one pass of the fused experts (VLLM_FUSED_MOE_CHUNK_SIZE, 0.12.0 on; 32768 and more before)."""
NOTHING = Interval(0, 0)


class Workspace(NamedTuple):
    """Scratch of one layer's experts. persistent: kept by the workspace manager (0.13.0 on), shared by all layers."""

    bytes: Interval
    persistent: bool
    reasons: tuple[str, ...]


def expert_workspace(subject: Subject) -> Workspace:
    """Two buffers, a row for each token and chosen expert: as wide as gate and up, and as the hidden size at least.

    Source: 0.19.1 layers/fused_moe/fused_moe.py TritonExperts.workspace_shapes, v1/worker/workspace.py. The formula
    holds for unquantised experts in Triton; other kernels take less or none of it, so the band starts at zero there.
    """
    shape, settled = subject.shape, subject.settled
    if not shape.experts:
        return Workspace(NOTHING, persistent=False, reasons=())
    release = subject.scenario.release
    middle = shape.expert_intermediate
    if not subject.scenario.expert_parallel:
        middle = cdiv(middle, subject.ranks)
    tokens = min(settled.batched_tokens, CHUNK)
    pairs = tokens * shape.experts_per_token
    full = pairs * settled.width * (max(middle, shape.hidden) + max(2 * middle, shape.hidden))
    persistent = release >= (0, 13)
    if not persistent:
        full += tokens * shape.hidden * settled.width
    if subject.scheme.kind == "none" and (release < (0, 20) or subject.hardware.capability[0] != 9):
        return Workspace(Interval(full, full), persistent=persistent, reasons=())
    why = "which kernels run the experts decides their scratch; the band spans none of it to Triton's"
    return Workspace(Interval(0, full), persistent=persistent, reasons=(why,))


def runner_buffers(subject: Subject) -> int:
    """Torch memory that the model runner holds from its construction on: no weight and no peak, but consumed (0.27.0 on).

    Block tables for every request, and in the V2 runner the counts of generated tokens and a mask of prompt tokens for
    penalties. Source: 0.27.1 v1/worker/gpu/sample/penalties.py, v1/worker/block_table.py.
    """
    settled = subject.settled
    tables = 4 * settled.sequences * cdiv(settled.max_model_len, 16)
    if settled.runner != "V2" or not subject.last:
        return tables
    return tables + settled.sequences * subject.shape.vocabulary * 4 + settled.sequences * subject.shape.vocabulary // 8
