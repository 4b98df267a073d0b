"""What a rank of a model keeps in memory, before a quantisation scheme turns it into bytes."""

from __future__ import annotations

from parsers.tuples import NamedTuple
from reconstruct.planner.pages import cdiv


class Linear(NamedTuple):
    """One linear layer of a rank, checkpoint matrices fused as vLLM fuses them.

    names: the checkpoint modules inside, relative to the layer ("self_attn.q_proj"), which a scheme's ignore list may
    name. rows, columns: of this rank's weight. outputs: rows of each fused matrix. quantised: whether the model class
    hands its scheme to the layer.
    """

    part: str
    names: tuple[str, ...]
    rows: int
    columns: int
    bias: bool = False
    quantised: bool = True


class Plain(NamedTuple):
    """A tensor that no scheme touches: its elements, and bytes per element (0: those of the model's dtype)."""

    part: str
    elements: int
    width: int = 0


class Experts(NamedTuple):
    """The fused experts of one layer on a rank: how many, their hidden and intermediate size, biases, gate."""

    part: str
    names: tuple[str, ...]
    number: int
    hidden: int
    intermediate: int
    bias: bool = False
    gated: bool = True


Part = Linear | Plain | Experts
Layer = tuple[Part, ...]


class Split(NamedTuple):
    """How a layer is cut over ranks: tensor parallel size, and ranks that share the experts whole (1: cut like the rest)."""

    tensor: int = 1
    expert: int = 1

    def of(self, size: int) -> int:
        """Give a size cut over the tensor-parallel ranks, the last share rounded up."""
        return cdiv(size, self.tensor)

    def kv_heads(self, heads: int) -> int:
        """Key heads of a rank: at least one, shared where there are fewer than ranks."""
        return max(1, heads // self.tensor)
