"""The sampling that a release warms up on dummy rows, operator by operator: what it holds is most of H.

vLLM 0.8-0.33: vllm/v1/sample/sampler.py and ops/topk_topp_sampler.py (V1 runner), vllm/v1/worker/gpu/sample (V2).
FlashInfer's and Triton's kernels are stood in for by tensors of the sizes they take.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from live_probe.eras import V2_WARMS_SAMPLER, release_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from live_probe.launch import LaunchSettings

_GUMBEL_BLOCK = 1024
_FEW_ROWS = 8
_ALWAYS_TRITON = (0, 31, 0)
"""Until then fewer than eight rows are still sorted (apply_top_k_top_p)."""


class TritonBuffers:
    """The scratch that the Triton top-k/top-p filter keeps between calls: a row of scores for each program.

    vLLM 0.17-0.33, vllm/v1/sample/ops/topk_topp_triton.py: apply_top_k_top_p_triton (rows of float32, up to the next
    power of two, one for each multiprocessor at most).
    """

    def __init__(self, multiprocessors: int) -> None:
        self._programs = multiprocessors
        self._kept: torch.Tensor | None = None

    def filter(self, scores: torch.Tensor) -> torch.Tensor:
        """Filter in place, growing the kept rows if need be."""
        rows = min(self._programs, scores.shape[0])
        if rows and (self._kept is None or self._kept.shape[0] < rows):
            whole = min(1 << (rows - 1).bit_length(), self._programs)
            self._kept = torch.empty(whole, scores.shape[1], dtype=scores.dtype, device=scores.device)
        return scores


def dummy_sampler(
    launch: LaunchSettings, filtering: str, buffers: TritonBuffers
) -> Callable[[torch.Tensor], torch.Tensor]:
    """Give the sampling of `_dummy_sampler_run` for a release's runner: it takes logits and gives token ids."""
    release = release_of(launch.version)
    if launch.runner == "v2":
        return _sample_v2_twice if release >= V2_WARMS_SAMPLER else _sample_v2
    sorts_few = release < _ALWAYS_TRITON

    def sample(logits: torch.Tensor) -> torch.Tensor:
        sorts = filtering == "sort" or (sorts_few and logits.shape[0] < _FEW_ROWS)
        return _sample_v1(logits, _sort_filter if sorts else buffers.filter)

    return sample


def _sample_v1(logits: torch.Tensor, keep: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """Sampler.forward with the native sampler: a float32 copy, the filter, probabilities and exponential noise."""
    scores = logits.to(torch.float32)
    greedy = scores.argmax(dim=-1)
    scores = keep(scores.div_(0.5))
    probabilities = scores.softmax(dim=-1, dtype=torch.float32)
    noise = torch.empty_like(probabilities).uniform_(0.1, 1.0)
    sampled = probabilities.div_(noise).argmax(dim=-1)
    return torch.maximum(greedy, sampled)


def _sort_filter(scores: torch.Tensor) -> torch.Tensor:
    """Do as apply_top_k_top_p with both filters on: sort, mask, cumulate, mask, scatter back."""
    ordered, order = scores.sort(dim=-1, descending=False)
    width = ordered.shape[1]
    threshold = ordered.narrow(1, 1, 1)
    masked = ordered < threshold
    ordered.masked_fill_(masked, float("-inf"))
    cumulated = ordered.softmax(dim=-1)
    torch.cumsum(cumulated, dim=-1, out=cumulated)
    masked = cumulated <= 0.1
    masked.narrow(1, width - 1, 1).fill_(0)
    ordered.masked_fill_(masked, float("-inf"))
    return ordered.scatter(dim=-1, index=order, src=ordered)


def _sample_v2(logits: torch.Tensor) -> torch.Tensor:
    """gumbel_sample on logits in the model's dtype: one candidate for each 1024 scores."""
    rows, width = logits.shape
    blocks = -(-width // _GUMBEL_BLOCK)
    candidates = torch.empty(rows, blocks, dtype=torch.int64, device=logits.device).zero_()
    best = torch.empty(rows, blocks, dtype=torch.float32, device=logits.device).zero_()
    return candidates.gather(-1, best.argmax(dim=-1, keepdim=True)).view(-1)


def _sample_v2_twice(logits: torch.Tensor) -> torch.Tensor:
    """Follow the default pass by one with every processor on (SamplingParams.for_sampler_warmup).

    That takes a float32 copy, and FlashInfer's top_k_top_p_sampling_from_logits a masked copy and its
    probabilities.
    """
    _sample_v2(logits)
    scores = torch.empty(logits.shape, dtype=torch.float32, device=logits.device).copy_(logits)
    masked = torch.empty_like(scores).copy_(scores)
    return masked.softmax(dim=-1).argmax(dim=-1)
