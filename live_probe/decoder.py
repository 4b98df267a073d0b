"""A decoder with random weights that takes and drops memory as vLLM's models do.

Fused query/key/value and gate/up projections, one residual stream, attention that only fills its output (in the
profile run vLLM's attention layer has no metadata), logits for the sampled rows only. Kernels that are fused there
are written here with operators that need no temporaries; the numbers they give are of no interest. Of several
tensor-parallel ranks one is there: what it would receive from the others is only allocated.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from live_probe.eras import ERAS
from live_probe.experts import ExpertRunner
from live_probe.parameters import Mlp, make_parameters

if TYPE_CHECKING:
    from live_probe.eras import Era
    from live_probe.parameters import Experts, Layer
    from live_probe.shape import DecoderShape, DtypeName

_SPREAD = 0.02


class Decoder:
    """The whole model on one rank.

    `compiled` runs in pieces from one attention to the next, as vLLM splits the model (0.8-0.33,
    vllm/compilation/backends.py: split_graph), and keeps alive what the code does that Inductor generates for a piece:
    the caller's attention output and residual, the residual of its own, and the input of the MLP where it waits for the
    output: T*b*(q + 2h or 3h + 3I), or where queries are rotated T*b*(4q + 2h + 3kv). `tokens` are those of the batch it
    is compiled for. Norms behind attention and MLP are fused into the sums and write in place. Eager execution runs the
    norms in place and keeps the layer's input in the model's frame, T*b*(3h + 3I) (vllm/model_executor/models/llama.py),
    or has norms that write new tensors, T*b*(4h + 3I) (layers/layernorm.py: GemmaRMSNorm).
    """

    def __init__(
        self, shape: DecoderShape, device: torch.device, dtype: DtypeName, *, compiled: bool, era: Era = ERAS[-1],
        tokens: int = 0,
    ) -> None:  # fmt: skip
        self.shape = shape
        self._compiled = compiled
        self._input_waits = era.input_waits == "always" or tokens <= 2 * shape.hidden
        self._run_experts = ExpertRunner(era)
        self.parameters = make_parameters(shape, device, dtype, era.attention_scalars)
        for weight in self.parameters.weights():
            weight.uniform_(-_SPREAD, _SPREAD)

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Every layer's weights."""
        return self.parameters.layers

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Run every layer over the tokens and give their hidden states."""
        run = self._compiled_layers if self._compiled else self._eager_layers
        # no name here may keep the embeddings alive
        return run(self._scaled_once(self._reduced(functional.embedding(ids, self.parameters.embedding))))

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Give the scores of the vocabulary for these rows; the padding is cut off without a copy."""
        return self._gathered(functional.linear(hidden, self.parameters.head)).narrow(-1, 0, self.shape.vocab)

    def _scaled_once(self, embedded: torch.Tensor) -> torch.Tensor:
        return embedded if self.parameters.scale is None else _scaled(embedded, self.parameters.scale)

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
        first, last = self.layers[0], self.layers[-1]
        attention = self._projected(first, _scaled(residual, first.norms.before_attention))
        for layer, following in pairwise(self.layers):
            attended = _attend(attention)
            del attention
            before, residual = residual, self._piece(layer, attended, residual)
            attention = self._projected(following, _scaled(residual, following.norms.before_attention))
            del attended, before  # the caller keeps both to the end of the piece
        attended = _attend(attention)
        del attention
        return _scaled(self._piece(last, attended, residual), self.parameters.norm)

    def _piece(self, layer: Layer, attended: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """Give the residual behind a layer, up to whose end the caller keeps both arguments."""
        norms = layer.norms
        projected = self._reduced(layer.output(attended))
        summed = _sum(residual, _in_place(projected, norms.after_attention))
        del projected
        if isinstance(layer.feed, Mlp):
            fed = self._reduced(self._compiled_mlp(layer.feed, _scaled(summed, norms.before_mlp)))
        else:
            fed = self._reduced(self._feed(layer.feed, _scaled(summed, norms.before_mlp))[0])
        return _sum(summed, _in_place(fed, norms.after_mlp))

    def _projected(self, layer: Layer, hidden: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Give what a piece hands to attention: room for its output, queries and keys rotated anew, values."""
        mixed = layer.qkv(hidden)
        del hidden
        queries, keys = self.shape.query_size, self.shape.kv_size
        query, key = mixed.narrow(-1, 0, queries), mixed.narrow(-1, queries, keys)
        angle = layer.rope.narrow(0, 0, 1).narrow(1, 0, 1)
        rotated = [_scaled(part, angle) for part in (query, key)]
        return (torch.empty_like(rotated[0]), *rotated, mixed.narrow(-1, queries + keys, keys))

    def _compiled_mlp(self, mlp: Mlp, hidden: torch.Tensor) -> torch.Tensor:
        gate_up = mlp.gate_up(hidden)
        if not self._input_waits:
            del hidden
        activated = _activated(gate_up)
        del gate_up
        return mlp.down(activated)

    def _eager_layers(self, hidden: torch.Tensor) -> torch.Tensor:
        run = self._fresh_layer if self.shape.fresh_norms else self._eager_layer
        residual = hidden
        for layer in self.layers:
            hidden, residual = run(layer, hidden, residual)
        residual.add_(hidden)
        return hidden.copy_(residual).mul_(self.parameters.norm)

    def _eager_layer(
        self, layer: Layer, hidden: torch.Tensor, residual: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run one layer with the norms in place; the caller keeps its input meanwhile."""
        if hidden is residual:
            hidden = torch.empty(residual.shape, dtype=residual.dtype, device=residual.device)
        else:
            residual.add_(hidden)
        hidden.copy_(residual).mul_(layer.norms.before_attention)
        projected = self._reduced(layer.output(self._attention(layer, hidden)))
        residual.add_(_in_place(projected, layer.norms.after_attention))
        projected.copy_(residual).mul_(layer.norms.before_mlp)
        partial, _activated = self._feed(layer.feed, projected)
        return _in_place(self._reduced(partial), layer.norms.after_mlp), residual

    def _fresh_layer(
        self, layer: Layer, hidden: torch.Tensor, residual: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run one layer whose norms write new tensors; the caller keeps its input and residual meanwhile."""
        norms = layer.norms
        if hidden is not residual:
            residual = _sum(residual, hidden)
        hidden = _scaled(residual, norms.before_attention)
        hidden = self._reduced(layer.output(self._attention(layer, hidden)))
        if norms.after_attention is not None:
            hidden = _scaled(hidden, norms.after_attention)
        residual = _sum(residual, hidden)
        hidden = _scaled(residual, norms.before_mlp)
        partial, _activated = self._feed(layer.feed, hidden)
        hidden = self._reduced(partial)
        return (hidden if norms.after_mlp is None else _scaled(hidden, norms.after_mlp)), residual

    def _attention(self, layer: Layer, hidden: torch.Tensor) -> torch.Tensor:
        mixed = layer.qkv(hidden)
        query = mixed.narrow(-1, 0, self.shape.query_size)
        query.mul_(layer.rope.narrow(0, 0, 1).narrow(1, 0, 1))  # positions are applied in place
        return torch.empty(query.shape, dtype=query.dtype, device=query.device).zero_()

    def _feed(self, feed: Mlp | Experts, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Give this rank's part of the result, and what eager execution holds on to meanwhile."""
        if isinstance(feed, Mlp):
            return self._mlp(feed, hidden)
        shared = self._mlp(feed.shared, hidden)[0] if feed.shared is not None else None
        if shared is not None and feed.shared_gate is not None:
            shared.mul_(functional.linear(hidden, feed.shared_gate).sigmoid_())
        result = self._run_experts(feed, hidden)
        return (result if shared is None else result.add_(shared)), hidden

    def _mlp(self, mlp: Mlp, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Give this rank's part of the result, and the activations, which eager execution holds on to meanwhile."""
        activated = _activated(mlp.gate_up(hidden))
        return mlp.down(activated), activated


def _attend(given: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Fill the output, which is all that attention does in the profile run."""
    return given[0].zero_()


def _activated(gate_up: torch.Tensor) -> torch.Tensor:
    """Apply the gate, into a tensor of its own."""
    rows, width = gate_up.shape[0], gate_up.shape[1] // 2
    activated = torch.empty(rows, width, dtype=gate_up.dtype, device=gate_up.device)
    functional.silu(activated.copy_(gate_up.narrow(-1, 0, width)), inplace=True)
    return activated.mul_(gate_up.narrow(-1, width, width))


def _sum(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Add into a new tensor; in-place operators are the quick ones on meta tensors."""
    return torch.empty(left.shape, dtype=left.dtype, device=left.device).copy_(left).add_(right)


def _scaled(hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Stand for a norm that writes a new tensor."""
    return torch.empty(hidden.shape, dtype=hidden.dtype, device=hidden.device).copy_(hidden).mul_(weight)


def _in_place(hidden: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
    """Stand for a norm that writes over its input, where there is one."""
    return hidden if weight is None else hidden.mul_(weight)
