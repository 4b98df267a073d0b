"""How many bytes torch charges for a tensor: the caching allocator's rounding, in closed form.

Source: torch c10/cuda/CUDACachingAllocator.cpp (round_size, get_allocation_size, should_split).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconstruct.planner.pages import round_up

if TYPE_CHECKING:
    from collections.abc import Iterable

_GRAIN = 512
_SMALL = 1 << 20
_ALONE = 10 << 20
"""From this size on a request gets a segment of its own."""
_SEGMENT_GRAIN = 2 << 20
SPLIT_LIMIT = 20 << 20
"""max_split_size_mb=20, which vLLM sets around load_model from 0.21.0 and around the profile run from 0.31.0."""


def charged(nbytes: int, split_limit: int | None = None) -> int:
    """Bytes by which `memory_allocated` grows for a tensor of `nbytes`.

    A request is rounded up to 512 B. From 10 MiB on it gets a segment of whole 2 MiB of its own, and the whole segment
    is charged where no more than 1 MiB of it would be left, or where it may not be split (`split_limit`).
    """
    size = round_up(max(nbytes, 1), _GRAIN)
    if size < _ALONE:
        return size
    segment = round_up(size, _SEGMENT_GRAIN)
    whole = segment - size <= _SMALL or (split_limit is not None and size >= split_limit)
    return segment if whole else size


def charged_in_all(sizes: Iterable[int], split_limit: int | None = None) -> int:
    """Bytes charged for several tensors. Equal sizes repeat layer by layer, so each is rounded once."""
    counts: dict[int, int] = {}
    for size in sizes:
        counts[size] = counts.get(size, 0) + 1
    return sum(charged(size, split_limit) * count for size, count in counts.items())
