"""What the model must know of a card beyond its memory: class, compute capability, multiprocessors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.cards import UnknownCard, find

if TYPE_CHECKING:
    from reconstruct.interval import Interval


class Hardware(NamedTuple):
    """One card. `family` names its class in the table of constants; `capability` is CUDA's, (0, 0) elsewhere."""

    name: str
    total_memory: Interval
    family: str
    capability: tuple[int, int]
    multiprocessors: int
    integrated: bool

    @property
    def device(self) -> str:
        """The planner's name for cards that choose attention kernels as this one does (reconstruct.planner Launch)."""
        return {7: "T4", 8: "A100", 9: "H100", 10: "B200", 12: "RTX PRO 6000"}.get(self.capability[0], "A100")

    @property
    def is_cuda(self) -> bool:
        """Whether it is an NVIDIA card."""
        return self.capability != (0, 0)

    @property
    def blas_workspace(self) -> int:
        """Bytes of cuBLAS's workspace as torch makes it: 32 MiB on Hopper and data-centre Blackwell, else 8.125 MiB.

        Source: torch aten/src/ATen/cuda/CublasHandlePool.cpp parseChosenWorkspaceSize.
        """
        return 32 << 20 if self.capability[0] in {9, 10} else (8 << 20) + (128 << 10)


class _Row(NamedTuple):
    key: str
    family: str
    capability: tuple[int, int]
    multiprocessors: int


_ROWS = (
    _Row("h100 pcie", "hopper", (9, 0), 114), _Row("h20", "hopper", (9, 0), 78), _Row("h100", "hopper", (9, 0), 132),
    _Row("h200", "hopper", (9, 0), 132), _Row("gh200", "hopper", (9, 0), 132), _Row("gb10", "spark", (12, 1), 48),
    _Row("b300", "blackwell", (10, 3), 148), _Row("b200", "blackwell", (10, 0), 148),
    _Row("rtx pro 6000", "blackwell-rtx", (12, 0), 188), _Row("5090", "blackwell-rtx", (12, 0), 170),
    _Row("a100", "ampere-dc", (8, 0), 108), _Row("a800", "ampere-dc", (8, 0), 108),
    _Row("l40", "ada", (8, 9), 142), _Row("l4", "ada", (8, 9), 58),
    _Row("a40", "ampere", (8, 6), 84), _Row("a6000", "ampere", (8, 6), 84), _Row("a10g", "ampere", (8, 6), 80),
    _Row("a10", "ampere", (8, 6), 72), _Row("t4", "turing", (7, 5), 40), _Row("v100", "volta", (7, 0), 80),
    _Row("3090", "ampere", (8, 6), 82), _Row("4090", "ada", (8, 9), 128), _Row("16 gb consumer", "ada", (8, 9), 76),
    _Row("mi3", "mi300", (0, 0), 304), _Row("mi2", "mi200", (0, 0), 104), _Row("radeon", "radeon", (0, 0), 96),
)  # fmt: skip
"""First match wins; facts of NVIDIA's and AMD's data sheets. A card that stands for several takes the first named."""


def hardware_of(name: str, total: Interval | None = None) -> Hardware:
    """Look a card up by the name or an alias of the table of cards; `total` overrides its memory.

    Raises reconstruct.cards.UnknownCard.
    """
    card = find(name)
    key = card.name.casefold()
    if "gb200" in key or "gb300" in key:
        row = _Row(key, "blackwell", (10, 0), 148)
    else:
        row = next((r for r in _ROWS if r.key in key), _Row("", "other", (0, 0), 64))
    if "gh200" in key:
        row = next(r for r in _ROWS if r.key == "gh200")
    return Hardware(
        card.name, total or card.total_memory, row.family, row.capability, row.multiprocessors, card.integrated
    )


def hardware_by_total(total: Interval) -> Hardware | None:
    """Give the card whose total memory this is, where all cards of that memory are of one family; else None."""
    from reconstruct.cards import cards

    fitting = [card for card in cards() if card.total_memory.meet(total) is not None]
    if not fitting:
        return None
    found = [hardware_of(card.aliases[0], total) for card in fitting]
    return found[0] if len({one.family for one in found}) == 1 else None


__all__ = ["Hardware", "UnknownCard", "hardware_by_total", "hardware_of"]
