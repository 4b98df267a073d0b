"""A decoder's tensors, made in the order in which vLLM's model classes make them: it decides what the allocator charges.

vLLM 0.8-0.33, vllm/model_executor/models and layers/rotary_embedding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from live_probe.rope import RopeShape
    from live_probe.shape import DecoderShape, DtypeName, ExpertShape

_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


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


class Mlp(NamedTuple):
    """A gated feed-forward network; gate and up are one matrix."""

    gate_up: Linear
    down: Linear


class Experts(NamedTuple):
    """A layer's experts: the router, gates and ups of all in one tensor, downs in another.

    `shared`: the network that every token takes, and the gate of its result.
    """

    shape: ExpertShape
    router: torch.Tensor
    shared_gate: torch.Tensor | None
    shared: Mlp | None
    gate_up: torch.Tensor
    down: torch.Tensor


class Norms(NamedTuple):
    """A layer's norms by their place; those behind are None where a layer has two."""

    before_attention: torch.Tensor
    before_mlp: torch.Tensor
    after_attention: torch.Tensor | None
    after_mlp: torch.Tensor | None


class Layer(NamedTuple):
    """Weights of one layer. Without head norms, empty; `rope` is shared by all layers of its kind."""

    qkv: Linear
    output: Linear
    rope: torch.Tensor
    head_norms: tuple[torch.Tensor, ...]
    scalars: tuple[torch.Tensor, ...]
    feed: Mlp | Experts
    norms: Norms


class Parameters(NamedTuple):
    """All that a rank of the model holds. `head` is the embedding where they are tied."""

    embedding: torch.Tensor
    layers: tuple[Layer, ...]
    norm: torch.Tensor
    head: torch.Tensor
    scale: torch.Tensor | None

    def weights(self) -> list[torch.Tensor]:
        """Give every weight once."""
        found = {id(tensor): tensor for tensor in _tensors(self)}
        scalars = {id(scalar) for layer in self.layers for scalar in layer.scalars}
        return [tensor for key, tensor in found.items() if key not in scalars]


def _tensors(part: object) -> list[torch.Tensor]:
    if isinstance(part, torch.Tensor):
        return [part]
    return [tensor for inner in part for tensor in _tensors(inner)] if isinstance(part, tuple) else []


def make_parameters(shape: DecoderShape, device: torch.device, dtype: DtypeName, scalars: int) -> Parameters:
    """Allocate every tensor. `scalars`: how many single numbers each attention layer keeps beside its weights."""
    return _Maker(shape, device, torch_dtype(dtype), scalars).whole()


class _Maker:
    """Makes tensors of one shape, device and dtype."""

    def __init__(self, shape: DecoderShape, device: torch.device, dtype: torch.dtype, scalars: int) -> None:
        self._shape = shape
        self._device = device
        self._dtype = dtype
        self._scalars = scalars
        self._ropes: dict[int, torch.Tensor] = {}

    def whole(self) -> Parameters:
        shape = self._shape
        embedding = self._make(shape.vocab_rows, shape.hidden)
        layers = tuple(self._layer(*kinds) for kinds in zip(shape.ropes.of_layer, shape.sparse, strict=True))
        norm = self._make(shape.hidden)
        scale = self._make() if shape.scaled_embedding else None
        head = embedding if shape.tied else self._make(shape.vocab_rows, shape.hidden)
        return Parameters(embedding, layers, norm, head, scale)

    def _make(self, *size: int) -> torch.Tensor:
        return torch.empty(size, dtype=self._dtype, device=self._device)

    def _wide(self, *size: int) -> torch.Tensor:
        return torch.empty(size, dtype=torch.float32, device=self._device)

    def _linear(self, rows: int, columns: int, *, bias: bool) -> Linear:
        return Linear(self._make(rows, columns), self._make(rows) if bias else None)

    def _layer(self, rope_place: int, sparse: bool) -> Layer:
        shape = self._shape
        qkv = self._linear(shape.query_size + 2 * shape.kv_size, shape.hidden, bias=shape.qkv_bias)
        output = self._linear(shape.hidden, shape.query_size, bias=shape.output_bias)
        rope = self._rope(rope_place)
        head_norms = (self._make(shape.head_dim), self._make(shape.head_dim)) if shape.head_norms else ()
        scalars = tuple(self._wide(1, 1) for _ in range(self._scalars))
        feed = self._experts(shape.experts) if sparse and shape.experts else self._mlp(shape.intermediate)
        return Layer(qkv, output, rope, head_norms, scalars, feed, self._norms())

    def _mlp(self, width: int) -> Mlp:
        hidden, bias = self._shape.hidden, self._shape.mlp_bias
        return Mlp(self._linear(2 * width, hidden, bias=bias), self._linear(hidden, width, bias=bias))

    def _experts(self, experts: ExpertShape) -> Experts:
        """Make router, shared expert and experts (0.12-0.33 models/qwen2_moe.py, mixtral.py)."""
        hidden, make = self._shape.hidden, self._make
        router = make(experts.number, hidden)
        shared_gate = make(1, hidden) if experts.shared else None
        shared = self._mlp(experts.shared) if experts.shared else None
        gate_up = make(experts.number, 2 * experts.intermediate, hidden)
        down = make(experts.number, hidden, experts.intermediate)
        return Experts(experts, router, shared_gate, shared, gate_up, down)

    def _norms(self) -> Norms:
        before_attention, before_mlp, *after = (self._make(self._shape.hidden) for _ in range(self._shape.norms))
        after_attention, after_mlp = after or (None, None)
        return Norms(before_attention, before_mlp, after_attention, after_mlp)

    def _rope(self, place: int) -> torch.Tensor:
        """Give a cos/sin cache; the first layer that takes it makes it, and later weights take what that leaves behind.

        vLLM 0.8-0.33, vllm/model_executor/layers/rotary_embedding: `_compute_cos_sin_cache` of each rope type. The twin
        of reconstruct/predict/rotary.py.
        """
        if place not in self._ropes:
            rope = self._shape.ropes.caches[place]
            self._ropes[place] = self._both_tables(rope) if rope.short_rows else self._table(rope, rope.rows)
        return self._ropes[place]

    def _both_tables(self, rope: RopeShape) -> torch.Tensor:
        """Give longrope's tables for short and long requests as one (Phi3LongRoPEScaledRotaryEmbedding)."""
        short, long = self._table(rope, rope.short_rows), self._table(rope, rope.rows)
        return self._make(short.shape[0] + long.shape[0], long.shape[1])

    def _table(self, rope: RopeShape, rows: int) -> torch.Tensor:
        return self._angles(rope, rows).to(self._dtype)

    def _angles(self, rope: RopeShape, rows: int) -> torch.Tensor:
        positions = self._wide(rows)
        if rope.kind == "linear":
            positions = torch.empty_like(positions)  # divided by the factor
        angles = self._wide(rows, rope.width // 2)
        cosines, sines = _half(rope, angles), _half(rope, angles)
        both = self._wide(rows, 2 * (rope.width // 2))
        if rope.kind == "linear":
            both = torch.empty_like(both)  # the caches of all factors in one
        del positions, cosines, sines  # alive until here
        return both


def _half(rope: RopeShape, angles: torch.Tensor) -> torch.Tensor:
    """Give the cosines or sines of all angles, which YaRN and longrope scale into a tensor of their own."""
    taken = torch.empty_like(angles)
    return torch.empty_like(taken) if rope.kind in ("yarn", "longrope") else taken
