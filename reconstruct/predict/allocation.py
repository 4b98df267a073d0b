"""How many bytes torch charges for the tensors of a model, made one after the other on an empty card.

Source: torch c10/cuda/CUDACachingAllocator.cpp (round_size, get_allocation_size, get_free_block, should_split,
try_merge_blocks), 2.3 to 2.13. The twin of live_probe/allocator.py, which may be imported by nothing here;
tests/live_probe/test_agreement.py holds the two equal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.planner.pages import round_up

if TYPE_CHECKING:
    from collections.abc import Iterable

_GRAIN = 512
_SMALL = 1 << 20
"""Up to this size requests share small segments, of which no part is lost."""
_SHARED = 20 << 20
_ALONE = 10 << 20
"""From this size on a request gets a segment of its own, in whole steps; below it takes part of a shared one."""
_STEP = 2 << 20
_SLACK = 20 << 20
"""How much larger a free block may be than a request that may not split it."""
SPLIT_LIMIT = 20 << 20
"""max_split_size_mb=20, which vLLM sets around load_model from 0.21.0 and around the profile run from 0.31.0."""


class Tensor(NamedTuple):
    """A tensor of `nbytes`, and those it is made from, which are dropped once it is there."""

    nbytes: int
    made_from: tuple[Tensor, ...] = ()


class _Block(NamedTuple):
    """Bytes of a segment. Of equally large ones the first fits best, as addresses are given out in order."""

    size: int
    segment: int
    start: int


class Heap:
    """Free blocks of more than 1 MiB, and the bytes charged so far. `split_limit`: max_split_size in bytes."""

    def __init__(self, split_limit: int | None = None) -> None:
        self.charged = 0
        self._limit = split_limit
        self._segments = 0
        self._free: list[_Block] = []

    def hold(self, tensor: Tensor) -> _Block:
        """Make a tensor as its recipe says and keep it."""
        parts = [self.hold(part) for part in tensor.made_from]
        block = self._take(round_up(max(tensor.nbytes, 1), _GRAIN))
        for part in parts:
            self._drop(part)
        return block

    def _take(self, size: int) -> _Block:
        block = _Block(size, 0, 0)
        if size > _SMALL:
            whole = self._cached(size) or self._fresh(size)
            rest = whole.size - size
            split = rest > _SMALL and (self._limit is None or size < self._limit)
            block = whole._replace(size=size) if split else whole
            if split:
                self._free.append(_Block(rest, whole.segment, whole.start + size))
        self.charged += block.size
        return block

    def _cached(self, size: int) -> _Block | None:
        """Give the best fit among free blocks, unless it is one that may not be split and is too large to waste."""
        best = min((block for block in self._free if block.size >= size), default=None)
        if best is None:
            return None
        if self._limit is not None and (best.size >= self._limit if size < self._limit else best.size >= size + _SLACK):
            return None
        self._free.remove(best)
        return best

    def _fresh(self, size: int) -> _Block:
        self._segments += 1
        return _Block(_SHARED if size < _ALONE else round_up(size, _STEP), self._segments, 0)

    def _drop(self, block: _Block) -> None:
        self.charged -= block.size
        if block.size <= _SMALL:
            return
        for other in [free for free in self._free if free.segment == block.segment]:
            if other.start + other.size == block.start or block.start + block.size == other.start:
                self._free.remove(other)
                block = _Block(block.size + other.size, block.segment, min(block.start, other.start))
        self._free.append(block)


def charged_in_all(tensors: Iterable[Tensor], split_limit: int | None = None) -> int:
    """Bytes by which `memory_allocated` grows as these are made in this order and kept."""
    heap = Heap(split_limit)
    for tensor in tensors:
        heap.hold(tensor)
    return heap.charged
