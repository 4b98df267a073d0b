"""A byte-exact model of torch's native CUDA caching allocator on a card of any size.

Every rule is that of c10/cuda/CUDACachingAllocator.cpp (torch 2.3 to 2.13; from 2.9 the constants stand in
c10/core/AllocatorConfig.h), one stream, default settings except max_split_size_mb. Left out: expandable segments,
power-of-two rounding, garbage_collection_threshold, set_per_process_memory_fraction, several streams. Where free
blocks of equal size compete the lower address wins; the driver's addresses are not knowable, so the model hands
them out in the order of request.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import NamedTuple

from live_probe.device import AllocatorStats, DeviceMemoryError, MemoryInfo

MIB = 1 << 20

MIN_BLOCK = 512
"""Every size is a multiple of this (kMinBlockSize)."""
SMALL_SIZE = MIB
"""Largest request that goes to the small pool (kSmallSize)."""
SMALL_SEGMENT = 2 * MIB
"""What the small pool asks the driver for (kSmallBuffer)."""
LARGE_SEGMENT = 20 * MIB
"""What a large request below MIN_LARGE asks the driver for (kLargeBuffer, large_segment_size)."""
MIN_LARGE = 10 * MIB
"""Smallest request that gets a segment of its own size (kMinLargeAlloc)."""
LARGE_STEP = 2 * MIB
"""Such segments are multiples of this (kRoundLarge); so are the driver's pages."""
OVERSIZE_SLACK = 20 * MIB
"""How much larger a cached block may be than an oversize request it serves (max_non_split_rounding_size)."""
_ADDRESS_GAP = 1 << 44


def round_size(nbytes: int) -> int:
    """Give the block size of a request: at least 512 B, in steps of 512 B (round_size)."""
    return max(MIN_BLOCK, -(-nbytes // MIN_BLOCK) * MIN_BLOCK)


def segment_size(size: int) -> int:
    """Give what is asked of the driver when no cached block serves `size` (get_allocation_size)."""
    if size <= SMALL_SIZE:
        return SMALL_SEGMENT
    if size < MIN_LARGE:
        return LARGE_SEGMENT
    return -(-size // LARGE_STEP) * LARGE_STEP


class CardMemory:
    """The memory of a card, shared by this process' allocator, its libraries and everybody else; all in bytes.

    Assign `others` to let other processes grow or shrink; nothing stops them from taking more than is left, in
    which case nothing is free.
    """

    def __init__(self, total: int, others: int = 0) -> None:
        self.total = total
        self.others = others
        self.own = 0

    def info(self) -> MemoryInfo:
        """Answer as cudaMemGetInfo does."""
        return MemoryInfo(max(0, self.total - self.others - self.own), self.total)

    def take(self, size: int) -> bool:
        """Hand `size` bytes to this process, or refuse."""
        if size > self.info().free:
            return False
        self.own += size
        return True

    def give(self, size: int) -> None:
        """Take back bytes of this process."""
        self.own -= size


class Block:
    """A stretch of a segment; `before` and `after` are its neighbours there."""

    __slots__ = ("address", "after", "before", "free", "pool", "size")

    def __init__(self, address: int, size: int, pool: BlockPool) -> None:
        self.address = address
        self.size = size
        self.pool = pool
        self.before: Block | None = None
        self.after: Block | None = None
        self.free = False

    @property
    def is_split(self) -> bool:
        """Whether the block is only a part of its segment (Block::is_split)."""
        return self.before is not None or self.after is not None


class _Key(NamedTuple):
    size: int
    address: int


class BlockPool:
    """Free blocks in the order of size, then address (BlockComparatorSize)."""

    def __init__(self, *, small: bool) -> None:
        self.small = small
        self._keys: list[_Key] = []
        self._blocks: dict[int, Block] = {}

    def insert(self, block: Block) -> None:
        """Add a block that has become free."""
        block.free = True
        insort(self._keys, _Key(block.size, block.address))
        self._blocks[block.address] = block

    def remove(self, block: Block) -> None:
        """Take a block out, to hand it out, merge it or give it back."""
        block.free = False
        del self._keys[bisect_left(self._keys, _Key(block.size, block.address))]
        del self._blocks[block.address]

    def smallest_from(self, size: int) -> Block | None:
        """Give the smallest free block of at least `size` bytes."""
        index = bisect_left(self._keys, _Key(size, 0))
        return self._blocks[self._keys[index].address] if index < len(self._keys) else None

    def blocks(self) -> tuple[Block, ...]:
        """Give all free blocks, smallest first."""
        return tuple(self._blocks[key.address] for key in self._keys)


class _Pools(NamedTuple):
    small: BlockPool
    large: BlockPool

    @classmethod
    def empty(cls) -> _Pools:
        return cls(BlockPool(small=True), BlockPool(small=False))


class CachingAllocator:
    """torch's caching allocator over `card`. Deterministic: the same calls give the same bytes.

    `max_split_size` is the setting of that name in bytes, or None while every block may be split.
    """

    def __init__(self, card: CardMemory) -> None:
        self.card = card
        self.max_split_size: int | None = None
        self.retries = 0
        self._allocated = self._allocated_peak = self._reserved = self._reserved_peak = 0
        self._next_address = 0
        self._default = _Pools.empty()
        self._private: dict[int, _Pools] = {}
        self._freeable: set[int] = set()
        self._capturing: int | None = None

    def stats(self) -> AllocatorStats:
        """Give the counters as torch.cuda.memory_stats names them."""
        return AllocatorStats(self._allocated, self._reserved, self._allocated_peak, self._reserved_peak)

    def reset_peak(self) -> None:
        """Let the peaks start again from the present (resetPeakStats)."""
        self._allocated_peak, self._reserved_peak = self._allocated, self._reserved

    def malloc(self, nbytes: int) -> Block:
        """Hand out a block of at least `nbytes` (DeviceCachingAllocator::malloc).

        Raises:
            DeviceMemoryError: not even giving back the whole cache makes room.

        """
        size = round_size(nbytes)
        pools = self._default if self._capturing is None else self._private[self._capturing]
        pool = pools.small if size <= SMALL_SIZE else pools.large
        block = self._cached(pool, size) or self._fresh(pool, size)
        self._split(block, size)
        self._allocated += block.size
        self._allocated_peak = max(self._allocated_peak, self._allocated)
        return block

    def free(self, block: Block) -> None:
        """Return a block to its pool, merged with free neighbours (free_block, try_merge_blocks)."""
        self._allocated -= block.size
        for neighbour in (block.before, block.after):
            if neighbour is not None and neighbour.free:
                block.pool.remove(neighbour)
                _absorb(block, neighbour)
        block.pool.insert(block)

    def empty_cache(self) -> None:
        """Give every wholly free segment back to the driver (emptyCache, release_cached_blocks).

        Private pools keep theirs until their last graph is gone. Split segments stay whole.
        """
        freeable = [self._private[pool] for pool in sorted(self._freeable)]
        for pools in (self._default, *freeable):
            for pool in pools:
                for block in pool.blocks():
                    if not block.is_split:
                        self._release(block)

    def new_pool(self) -> int:
        """Open a private pool, as the first capture into a pool handle does (beginAllocateToPool)."""
        handle = len(self._private)
        self._private[handle] = _Pools.empty()
        return handle

    def begin_capture(self, pool: int) -> None:
        """Serve every request from the private pool until `end_capture` (beginAllocateToPool)."""
        self._capturing = pool

    def end_capture(self) -> None:
        """Serve requests from the ordinary pools again (endAllocateToPool)."""
        self._capturing = None

    def destroy_graphs(self, pool: int) -> None:
        """Let `empty_cache` give the pool's free segments back, its last graph being gone (releasePool)."""
        self._freeable.add(pool)

    def _cached(self, pool: BlockPool, size: int) -> Block | None:
        """Find the best fit among free blocks (get_free_block)."""
        block = pool.smallest_from(size)
        if block is None:
            return None
        limit = self.max_split_size
        if limit is not None and size < limit <= block.size:
            return None
        if limit is not None and size >= limit and block.size >= size + OVERSIZE_SLACK:
            return None
        pool.remove(block)
        return block

    def _fresh(self, pool: BlockPool, size: int) -> Block:
        """Ask the driver, and once more after each way of giving back cache (alloc_block and its retries)."""
        block = self._from_driver(pool, size)
        if block is None and self._release_oversize(pool, size):
            block = self._from_driver(pool, size)
        if block is None and self._capturing is None:
            self.empty_cache()
            self.retries += 1
            block = self._from_driver(pool, size)
        if block is None:
            free, total = self.card.info()
            raise DeviceMemoryError(f"out of memory: {size} B asked for, {free} B of {total} B free on the card")
        return block

    def _from_driver(self, pool: BlockPool, size: int) -> Block | None:
        segment = segment_size(size)
        if not self.card.take(segment):
            return None
        self._reserved += segment
        self._reserved_peak = max(self._reserved_peak, self._reserved)
        self._next_address += _ADDRESS_GAP
        return Block(self._next_address, segment, pool)

    def _release_oversize(self, pool: BlockPool, size: int) -> bool:
        """Give back just enough cached blocks above the split limit (release_available_cached_blocks)."""
        if self.max_split_size is None:
            return False
        wanted = max(size, self.max_split_size)
        whole = [block for block in pool.blocks() if not block.is_split and block.size >= self.max_split_size]
        fitting = next((block for block in whole if block.size >= wanted), None)
        if fitting is not None:
            self._release(fitting)
            return True
        released = 0
        while whole and released < wanted:
            block = whole.pop()
            released += block.size
            self._release(block)
        return released >= wanted

    def _release(self, block: Block) -> None:
        block.pool.remove(block)
        self._reserved -= block.size
        self.card.give(block.size)

    def _split(self, block: Block, size: int) -> None:
        """Cut the block down to `size` where the rest is worth keeping (should_split, alloc_found_block)."""
        rest = block.size - size
        if block.pool.small:
            worthwhile = rest >= MIN_BLOCK
        else:
            worthwhile = rest > SMALL_SIZE and (self.max_split_size is None or size < self.max_split_size)
        if not worthwhile:
            return
        tail = Block(block.address + size, rest, block.pool)
        tail.before, tail.after = block, block.after
        if block.after is not None:
            block.after.before = tail
        block.after, block.size = tail, size
        block.pool.insert(tail)


def _absorb(block: Block, neighbour: Block) -> None:
    if neighbour is block.before:
        block.address = neighbour.address
        block.before = neighbour.before
        if block.before is not None:
            block.before.after = block
    else:
        block.after = neighbour.after
        if block.after is not None:
            block.after.before = block
    block.size += neighbour.size
