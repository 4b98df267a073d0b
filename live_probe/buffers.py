"""Persistent tensors of the model runner: in total_consumed, in no printed weight."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from live_probe.parameters import torch_dtype

if TYPE_CHECKING:
    from live_probe.launch import LaunchSettings
    from live_probe.shape import DecoderShape


class RunnerBuffers:
    """What the runner allocates when it is constructed, the token ids of the dummy batch among it.

    vLLM 0.8-0.33, vllm/v1/worker/gpu_model_runner.py: GPUModelRunner.__init__ (the inputs' embeddings included,
    whether used or not) and block_table.py: BlockTable; V2: vllm/v1/worker/gpu/input_batch.py: InputBuffers. Left
    out: a few KiB of flags, and everything for several modalities, LoRA and speculation.
    """

    def __init__(self, launch: LaunchSettings, shape: DecoderShape, device: torch.device) -> None:
        tokens, seqs = launch.max_num_batched_tokens, launch.max_num_seqs
        self.input_ids = torch.zeros(tokens, dtype=torch.int32, device=device)
        self._kept = [
            torch.zeros(tokens, dtype=torch.int64, device=device),
            torch.zeros(seqs + 1, dtype=torch.int32, device=device),
            torch.zeros(seqs, dtype=torch.int32, device=device),
        ]
        if launch.runner == "v1":
            blocks = -(-launch.max_model_len // launch.block_size)
            self._kept += [
                torch.zeros(tokens, shape.hidden, dtype=torch_dtype(launch.dtype), device=device),
                torch.zeros(seqs, blocks, dtype=torch.int32, device=device),
                torch.zeros(tokens, dtype=torch.int64, device=device),
            ]


class SamplerBuffers:
    """Penalty counters of the V2 runner's sampler, made after the weights are measured.

    vLLM 0.22-0.33, vllm/v1/worker/gpu/sample/penalties.py: PenaltiesState.
    """

    def __init__(self, launch: LaunchSettings, shape: DecoderShape, device: torch.device) -> None:
        words = -(-shape.vocab // 32)
        self._kept = [
            torch.zeros(launch.max_num_seqs, words, dtype=torch.int32, device=device),
            torch.zeros(launch.max_num_seqs, shape.vocab, dtype=torch.int32, device=device),
        ]
