"""Scratch that the kernels of expert layers take, and whether they keep it; what a runner holds from the start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.interval import Interval
from reconstruct.planner.pages import cdiv

if TYPE_CHECKING:
    from reconstruct.predict.peak import Subject

CHUNKS: tuple[tuple[tuple[int, ...], int | None], ...] = (((0, 18), None), ((0, 12), 16384), ((0,), 65536))
"""Tokens of one pass of the fused experts, newest release first (VLLM_FUSED_MOE_CHUNK_SIZE; 0.18.1 has no passes)."""
ALIGNED = 128
"""Rows that DeepGEMM rounds each expert's share up to."""
NOTHING = Interval(0, 0)


class Workspace(NamedTuple):
    """Scratch of one layer's experts. persistent: kept by the workspace manager, shared by all layers.

    That manager came with 0.13.0; experts without a scheme took to it with 0.14.0.
    """

    bytes: Interval
    persistent: bool
    reasons: tuple[str, ...]


def expert_workspace(subject: Subject) -> Workspace:
    """Two buffers, a row for each token and chosen expert: as wide as gate and up, and as the hidden size at least.

    Source: 0.19.1 layers/fused_moe: TritonExperts, CutlassExpertsFp8 and MarlinExperts.workspace_shapes, whose sums are
    alike; v1/worker/workspace.py. Without a scheme, 0.8.5 to 0.13.0 layers/fused_moe/fused_moe.py fused_experts_impl, whose
    activations are no wider than they need. DeepGEMM's has more rows, FlashInfer's kernels take none or one of the hidden
    size, so the band spans what may run. live_probe/experts.py takes the same of Triton's.
    """
    shape, settled = subject.shape, subject.settled
    if not shape.experts:
        return Workspace(NOTHING, persistent=False, reasons=())
    release, parallel = subject.scenario.release, subject.scenario.expert_parallel
    middle = shape.expert_intermediate if parallel else cdiv(shape.expert_intermediate, subject.ranks)
    chunk = next(size for first, size in CHUNKS if release >= first)
    tokens = settled.batched_tokens if chunk is None else min(settled.batched_tokens, chunk)
    pairs = tokens * shape.experts_per_token
    alone = subject.scheme.kind == "none" and release < (0, 14)
    persistent = release >= (0, 13) and not alone
    activations = middle if alone else max(middle, shape.hidden)
    row = settled.width * (activations + max(2 * middle, shape.hidden))
    full = pairs * row + _result_bytes(subject, passes=settled.batched_tokens > tokens, alone=alone, kept=persistent)
    if _has_rows_of_triton(subject):
        return Workspace(Interval(full, full), persistent=persistent, reasons=())
    most = full
    if subject.scheme.kind == "fp8_block" and subject.hardware.capability[0] in {9, 10}:
        ranks = subject.ranks * subject.scenario.data_parallel_size if parallel else 1
        most += cdiv(shape.experts, ranks) * ALIGNED * row
    why = "which kernels run the experts decides their scratch; the band spans none of it to the largest"
    return Workspace(Interval(0, most), persistent=persistent, reasons=(why,))


def _result_bytes(subject: Subject, *, passes: bool, alone: bool, kept: bool) -> int:
    """Bytes of the result beside the buffers: a kept workspace holds it inside, unless several passes add up to it.

    Without a scheme it is written over the input up to 0.11.0 (torch 2.9 on allows that no longer).
    """
    in_place = alone and subject.scenario.release < (0, 11, 1)
    if in_place or (kept and not passes):
        return 0
    return subject.settled.batched_tokens * subject.shape.hidden * subject.settled.width


def _has_rows_of_triton(subject: Subject) -> bool:
    """Whether the kernels that a release takes by default for these experts are surely Triton's, or take as much.

    Source: layers/fused_moe/oracle/unquantized.py (FlashInfer first from 0.20.0 on, behind Triton on Hopper from 0.23.0
    on) and oracle/fp8.py (0.14.1 on; Triton for blocks on Hopper from 0.17.1 on). Cards before Ada run fp8 in Marlin.
    """
    kind, release, major = subject.scheme.kind, subject.scenario.release, subject.hardware.capability[0]
    if kind == "none":
        flashes = release >= (0, 20) and (major >= 10 or (major == 9 and release < (0, 23)))
        return not flashes or subject.scenario.data_parallel_size > 1
    if release < (0, 14, 1) or major == 0:
        return False
    if kind == "fp8_block":
        return major in {7, 8, 12} or (major == 9 and release >= (0, 17) and not subject.scenario.expert_parallel)
    loaded = subject.scenario.config.get("quantization_config") is None
    return kind == "fp8_channel" or (kind == "fp8" and loaded and major != 10)


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
