"""Fused experts as Triton's kernels take and drop memory: routing, two buffers of scratch, the result.

vLLM 0.8-0.13, vllm/model_executor/layers/fused_moe/fused_moe.py: fused_experts_impl; 0.14-0.33, modular_kernel.py
(_allocate_buffers), fused_moe.py or experts/triton_moe.py: TritonExperts.workspace_shapes, v1/worker/workspace.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from live_probe.eras import Era
    from live_probe.parameters import Experts
    from live_probe.shape import ExpertShape

_ALIGNMENT = 256


class ExpertRunner:
    """Runs the experts of every layer; what it keeps is shared by all of them."""

    def __init__(self, era: Era) -> None:
        self._era = era
        self._workspace: torch.Tensor | None = None

    def __call__(self, experts: Experts, hidden: torch.Tensor) -> torch.Tensor:
        """Give this rank's part of the result; up to 0.11.0 it stands where `hidden` was."""
        chosen = (hidden.shape[0], experts.shape.chosen)
        scores = functional.linear(hidden, experts.router)
        shares = torch.empty(chosen, dtype=torch.float32, device=hidden.device)
        ids = torch.empty(chosen, dtype=torch.int32, device=hidden.device)
        order = torch.empty_like(ids)
        result = hidden if self._era.expert_scratch == "in place" else torch.empty_like(hidden).copy_(hidden)
        scratch = self._scratch(experts.shape, hidden)
        result.mul_(scores.narrow(-1, 0, 1))  # the numbers are of no interest
        del scratch, shares, ids, order
        return result

    def _scratch(self, shape: ExpertShape, hidden: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Give both buffers: gate and up or the results, and the activations, a row for each token and chosen expert."""
        tokens, width = hidden.shape
        rows = min(tokens, self._era.expert_pass or tokens) * shape.chosen
        wide = rows * max(2 * shape.intermediate, width)
        if self._era.expert_scratch != "kept":
            sizes = (wide, rows * shape.intermediate)
            return tuple(torch.empty(size, dtype=hidden.dtype, device=hidden.device) for size in sizes)
        whole = (tokens * width,) if rows < tokens * shape.chosen else ()  # of all passes together
        return (self._kept((wide, rows * max(shape.intermediate, width), *whole), hidden),)

    def _kept(self, sizes: tuple[int, ...], hidden: torch.Tensor) -> torch.Tensor:
        """Give the workspace, grown if need be: the old one is dropped before the new one is made."""
        needed = sum(-(-size * hidden.element_size() // _ALIGNMENT) * _ALIGNMENT for size in sizes)
        if self._workspace is None or self._workspace.numel() < needed:
            self._workspace = None
            self._workspace = torch.empty(needed, dtype=torch.uint8, device=hidden.device)
        return self._workspace
