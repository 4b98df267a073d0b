"""A dense decoder with random weights that takes and drops memory as vLLM's models do.

Fused query/key/value and gate/up projections, one residual stream, attention that only fills its output (in the
profile run vLLM's attention layer has no metadata), logits for the sampled rows only. Kernels that are fused there
are written here with operators that need no temporaries; the numbers they give are of no interest.
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


class Layer(NamedTuple):
    """Weights of one layer, in the order in which vLLM's model classes create them. Without a bias or norm, empty."""

    qkv: torch.Tensor
    qkv_bias: tuple[torch.Tensor, ...]
    output: torch.Tensor
    head_norms: tuple[torch.Tensor, ...]
    gate_up: torch.Tensor
    down: torch.Tensor
    norms: tuple[torch.Tensor, torch.Tensor]


class Decoder:
    """The whole model on one rank.

    `compiled` keeps alive what the piecewise-compiled model keeps during the MLP: the attention output and the
    incoming residual in the caller's frame, with the norm writing a new tensor (vLLM 0.8-0.33,
    vllm/compilation/backends.py: split_graph), T*b*(q + 3h + 3I) in all. Eager execution runs the norms in place and
    keeps the layer's input in the model's frame, T*b*(3h + 3I) (vllm/model_executor/models/llama.py).
    """

    def __init__(self, shape: DecoderShape, device: torch.device, dtype: DtypeName, *, compiled: bool) -> None:
        self.shape = shape
        self._compiled = compiled
        self._device = device
        self._dtype = torch_dtype(dtype)
        self.embedding = self._make(shape.padded_vocab, shape.hidden)
        # the first layer creates the cache of cosines and sines that all share
        self.rope = self._make(shape.rope_rows, shape.head_dim)
        self.layers = [self._layer() for _ in range(shape.layers)]
        self.norm = self._make(shape.hidden)
        self.head = self.embedding if shape.tied else self._make(shape.padded_vocab, shape.hidden)
        self._fill()

    def _make(self, *size: int) -> torch.Tensor:
        return torch.empty(size, dtype=self._dtype, device=self._device)

    def _layer(self) -> Layer:
        shape, make = self.shape, self._make
        qkv_size = shape.query_size + 2 * shape.kv_size
        return Layer(
            qkv=make(qkv_size, shape.hidden),
            qkv_bias=(make(qkv_size),) if shape.attention_bias else (),
            output=make(shape.hidden, shape.query_size),
            head_norms=(make(shape.head_dim), make(shape.head_dim)) if shape.qk_norm else (),
            gate_up=make(2 * shape.intermediate, shape.hidden),
            down=make(shape.hidden, shape.intermediate),
            norms=(make(shape.hidden), make(shape.hidden)),
        )

    def _fill(self) -> None:
        for weight in self.weights():
            weight.uniform_(-_SPREAD, _SPREAD)

    def weights(self) -> list[torch.Tensor]:
        """Give every weight once."""
        found = [self.embedding, self.rope, self.norm]
        if self.head is not self.embedding:
            found.append(self.head)
        for layer in self.layers:
            found += [layer.qkv, *layer.qkv_bias, layer.output, *layer.head_norms]
            found += [layer.gate_up, layer.down, *layer.norms]
        return found

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Run every layer over the tokens and give their hidden states."""
        run = self._compiled_layers if self._compiled else self._eager_layers
        return run(functional.embedding(ids, self.embedding))  # no name here may keep the embeddings alive

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Give the scores of the vocabulary for these rows; the padding is cut off without a copy."""
        return functional.linear(hidden, self.head).narrow(-1, 0, self.shape.vocab)

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
        projected = functional.linear(attended, layer.output)
        summed = _sum(residual, projected)
        del projected
        summed = _sum(summed, self._mlp(layer, _scaled(summed, layer.norms[1])))
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
        projected = functional.linear(self._attention(layer, hidden), layer.output)
        residual.add_(projected)
        projected.copy_(residual).mul_(layer.norms[1])
        return self._mlp(layer, projected), residual

    def _attention(self, layer: Layer, hidden: torch.Tensor) -> torch.Tensor:
        bias = layer.qkv_bias[0] if layer.qkv_bias else None
        mixed = functional.linear(hidden, layer.qkv, bias)
        query = mixed.narrow(-1, 0, self.shape.query_size)
        query.mul_(self.rope.narrow(0, 0, 1).narrow(1, 0, 1))  # positions are applied in place
        return torch.empty(query.shape, dtype=query.dtype, device=query.device).zero_()

    def _mlp(self, layer: Layer, hidden: torch.Tensor) -> torch.Tensor:
        width = self.shape.intermediate
        gate_up = functional.linear(hidden, layer.gate_up)
        activated = torch.empty(gate_up.shape[0], width, dtype=gate_up.dtype, device=gate_up.device)
        functional.silu(activated.copy_(gate_up.narrow(-1, 0, width)), inplace=True)
        activated.mul_(gate_up.narrow(-1, width, width))
        del gate_up
        return functional.linear(activated, layer.down)


def _sum(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Add into a new tensor; in-place operators are the quick ones on meta tensors."""
    return torch.empty(left.shape, dtype=left.dtype, device=left.device).copy_(left).add_(right)


def _scaled(hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Stand for a norm that writes a new tensor."""
    return torch.empty(hidden.shape, dtype=hidden.dtype, device=hidden.device).copy_(hidden).mul_(weight)
