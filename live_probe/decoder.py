"""A dense decoder with random weights that takes and drops memory as vLLM's models do.

Fused query/key/value and gate/up projections, one residual stream, attention that only fills its output (in the
profile run vLLM's attention layer has no metadata), logits for the sampled rows only. Kernels that are fused there
are written here with operators that need no temporaries; the numbers they give are of no interest. Of several
tensor-parallel ranks one is there: what it would receive from the others is only allocated.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from live_probe.shape import DecoderShape, DtypeName

_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
_SPREAD = 0.02


def torch_dtype(name: DtypeName) -> torch.dtype:
    """Give torch's dtype of that name."""
    return _DTYPES[name]


class Linear(NamedTuple):
    """A projection's weight, and its bias where it has one."""

    weight: torch.Tensor
    bias: torch.Tensor | None

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        """Project."""
        return functional.linear(hidden, self.weight, self.bias)


class Layer(NamedTuple):
    """Weights of one layer, in the order in which vLLM's model classes create them. Without head norms, empty."""

    qkv: Linear
    output: Linear
    head_norms: tuple[torch.Tensor, ...]
    scalars: tuple[torch.Tensor, ...]
    gate_up: Linear
    down: Linear
    norms: tuple[torch.Tensor, torch.Tensor]


class Decoder:
    """The whole model on one rank.

    `compiled` keeps alive what the piecewise-compiled model keeps during the MLP: the attention output and the
    incoming residual in the caller's frame, with the norm writing a new tensor (vLLM 0.8-0.33,
    vllm/compilation/backends.py: split_graph), T*b*(q + 3h + 3I) in all. Eager execution runs the norms in place and
    keeps the layer's input in the model's frame, T*b*(3h + 3I) (vllm/model_executor/models/llama.py). `scalars`: how
    many single numbers each attention layer keeps beside its weights.
    """

    def __init__(
        self, shape: DecoderShape, device: torch.device, dtype: DtypeName, *, compiled: bool, scalars: int = 0
    ) -> None:
        self.shape = shape
        self._scalars = scalars
        self._compiled = compiled
        self._device = device
        self._dtype = torch_dtype(dtype)
        self.embedding = self._make(shape.vocab_rows, shape.hidden)
        self.layers: list[Layer] = []
        for _ in range(shape.layers):
            self.layers.append(self._layer())
        self.norm = self._make(shape.hidden)
        self.head = self.embedding if shape.tied else self._make(shape.vocab_rows, shape.hidden)
        self._fill()

    def _make(self, *size: int) -> torch.Tensor:
        return torch.empty(size, dtype=self._dtype, device=self._device)

    def _linear(self, rows: int, columns: int, *, bias: bool) -> Linear:
        return Linear(self._make(rows, columns), self._make(rows) if bias else None)

    def _layer(self) -> Layer:
        shape, make = self.shape, self._make
        qkv_size = shape.query_size + 2 * shape.kv_size
        qkv = self._linear(qkv_size, shape.hidden, bias=shape.qkv_bias)
        output = self._linear(shape.hidden, shape.query_size, bias=shape.output_bias)
        if not self.layers:
            self.rope = self._rope_cache()  # the first layer creates what all share
        return Layer(
            qkv=qkv,
            output=output,
            head_norms=(make(shape.head_dim), make(shape.head_dim)) if shape.head_norms else (),
            scalars=tuple(self._wide(1, 1) for _ in range(self._scalars)),
            gate_up=self._linear(2 * shape.intermediate, shape.hidden, bias=shape.mlp_bias),
            down=self._linear(shape.hidden, shape.intermediate, bias=shape.mlp_bias),
            norms=(make(shape.hidden), make(shape.hidden)),
        )

    def _rope_cache(self) -> torch.Tensor:
        """Give the cosines and sines of every position; what their making leaves in the cache, later weights take.

        vLLM 0.8-0.33, vllm/model_executor/layers/rotary_embedding: `_compute_cos_sin_cache` of each rope type. The twin
        of reconstruct/predict/rotary.py.
        """
        return self._angles().to(self._dtype)

    def _angles(self) -> torch.Tensor:
        shape, wide = self.shape, self._wide
        positions = wide(shape.rope_rows)
        if shape.rope_type == "linear":
            positions = torch.empty_like(positions)  # divided by the factor
        angles = wide(shape.rope_rows, shape.rope_width // 2)
        cosines, sines = self._half(angles), self._half(angles)
        both = wide(shape.rope_rows, shape.rope_width)
        if shape.rope_type == "linear":
            both = torch.empty_like(both)  # the caches of all factors in one
        del positions, cosines, sines  # alive until here
        return both

    def _half(self, angles: torch.Tensor) -> torch.Tensor:
        """Give the cosines or sines of all angles, which YaRN scales into a tensor of their own."""
        taken = torch.empty_like(angles)
        return torch.empty_like(taken) if self.shape.rope_type == "yarn" else taken

    def _wide(self, *size: int) -> torch.Tensor:
        return torch.empty(size, dtype=torch.float32, device=self._device)

    def _fill(self) -> None:
        for weight in self.weights():
            weight.uniform_(-_SPREAD, _SPREAD)

    def weights(self) -> list[torch.Tensor]:
        """Give every weight once."""
        found = [self.embedding, self.rope, self.norm]
        if self.head is not self.embedding:
            found.append(self.head)
        for layer in self.layers:
            for linear in (layer.qkv, layer.output, layer.gate_up, layer.down):
                found += [part for part in linear if part is not None]
            found += [*layer.head_norms, *layer.norms]
        return found

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Run every layer over the tokens and give their hidden states."""
        run = self._compiled_layers if self._compiled else self._eager_layers
        # no name here may keep the embeddings alive
        return run(self._reduced(functional.embedding(ids, self.embedding)))

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Give the scores of the vocabulary for these rows; the padding is cut off without a copy."""
        return self._gathered(functional.linear(hidden, self.head)).narrow(-1, 0, self.shape.vocab)

    def _reduced(self, partial: torch.Tensor) -> torch.Tensor:
        """Stand for the sum over all ranks, which goes into a tensor of its own.

        vLLM 0.8-0.33, vllm/distributed/device_communicators/pynccl.py: PyNcclCommunicator.all_reduce.
        """
        return partial if self.shape.ranks == 1 else torch.empty_like(partial).copy_(partial)

    def _gathered(self, scores: torch.Tensor) -> torch.Tensor:
        """Stand for the gathering of every rank's scores: first rank after rank, then row by row.

        vLLM 0.8-0.33, vllm/distributed/device_communicators/base_device_communicator.py: all_gather.
        """
        ranks, (rows, columns) = self.shape.ranks, scores.shape
        if ranks == 1:
            return scores
        received = torch.empty(ranks, rows, columns, dtype=scores.dtype, device=scores.device)
        received.copy_(scores.expand(ranks, rows, columns))
        return received.movedim(0, 1).reshape(rows, ranks * columns)

    def _compiled_layers(self, residual: torch.Tensor) -> torch.Tensor:
        attended = self._attention(self.layers[0], _scaled(residual, self.layers[0].norms[0]))
        for layer, following in pairwise(self.layers):
            normed, residual = self._piece(layer, attended, residual, following.norms[0])
            attended = self._attention(following, normed)
            del normed
        return self._piece(self.layers[-1], attended, residual, self.norm)[0]

    def _piece(
        self, layer: Layer, attended: torch.Tensor, residual: torch.Tensor, next_norm: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run what is compiled between two attentions; the caller keeps `attended` and `residual` meanwhile."""
        projected = self._reduced(layer.output(attended))
        summed = _sum(residual, projected)
        del projected
        summed = _sum(summed, self._reduced(self._mlp(layer, _scaled(summed, layer.norms[1]))[0]))
        return _scaled(summed, next_norm), summed

    def _eager_layers(self, hidden: torch.Tensor) -> torch.Tensor:
        residual = hidden
        for layer in self.layers:
            hidden, residual = self._eager_layer(layer, hidden, residual)
        residual.add_(hidden)
        return hidden.copy_(residual).mul_(self.norm)

    def _eager_layer(
        self, layer: Layer, hidden: torch.Tensor, residual: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run one layer with the norms in place; the caller keeps its input meanwhile."""
        if hidden is residual:
            hidden = torch.empty(residual.shape, dtype=residual.dtype, device=residual.device)
        else:
            residual.add_(hidden)
        hidden.copy_(residual).mul_(layer.norms[0])
        projected = self._reduced(layer.output(self._attention(layer, hidden)))
        residual.add_(projected)
        projected.copy_(residual).mul_(layer.norms[1])
        partial, _activated = self._mlp(layer, projected)
        return self._reduced(partial), residual

    def _attention(self, layer: Layer, hidden: torch.Tensor) -> torch.Tensor:
        mixed = layer.qkv(hidden)
        query = mixed.narrow(-1, 0, self.shape.query_size)
        query.mul_(self.rope.narrow(0, 0, 1).narrow(1, 0, 1))  # positions are applied in place
        return torch.empty(query.shape, dtype=query.dtype, device=query.device).zero_()

    def _mlp(self, layer: Layer, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Give this rank's part of the result, and the activations, which eager execution holds on to meanwhile."""
        width = self.shape.intermediate
        gate_up = layer.gate_up(hidden)
        activated = torch.empty(gate_up.shape[0], width, dtype=gate_up.dtype, device=gate_up.device)
        functional.silu(activated.copy_(gate_up.narrow(-1, 0, width)), inplace=True)
        activated.mul_(gate_up.narrow(-1, width, width))
        del gate_up
        return layer.down(activated), activated


def _sum(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Add into a new tensor; in-place operators are the quick ones on meta tensors."""
    return torch.empty(left.shape, dtype=left.dtype, device=left.device).copy_(left).add_(right)


def _scaled(hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Stand for a norm that writes a new tensor."""
    return torch.empty(hidden.shape, dtype=hidden.dtype, device=hidden.device).copy_(hidden).mul_(weight)
