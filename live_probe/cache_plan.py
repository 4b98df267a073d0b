"""How the engine will divide the memory that is left for the cache: computed by the caller, who has a planner."""

from __future__ import annotations

from typing import NamedTuple


class CachePlan(NamedTuple):
    """The cache of one model, release and launch, for batches of `max_num_batched_tokens`; sizes are bytes.

    pages: one block's share of each tensor of the pool, which the layers of several groups may share.
    least_memory: below it the engine refuses to start, as one request of `max_model_len` does not fit.
    """

    max_num_batched_tokens: int
    max_model_len: int
    block_size: int
    pages: tuple[int, ...]
    least_memory: int

    @property
    def bytes_per_block(self) -> int:
        """The divisor of the pool."""
        return sum(self.pages)
