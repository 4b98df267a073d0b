"""What a plan says, as plain values."""

from __future__ import annotations

from parsers.tuples import NamedTuple


class NotStated(NamedTuple):
    """A figure that this plan has no value for, and why."""

    reason: str


class GroupPlan(NamedTuple):
    """One cache group on one rank.

    kind: the layers' spec kind, or UniformTypeKVCacheSpecs for one type with several page sizes.
    layers: layer numbers, counted over all stages; pages: bytes of each one's page for one block.
    block_size: tokens that one block spans (on this rank).
    page_padding_bytes: bytes by which the pages exceed what the layers store.
    padding_bytes: bytes of a block that this group leaves unused because another group is wider.
    blocks_per_request: blocks of one request of max_model_len; grows: whether a longer request takes more.
    """

    kind: str
    layers: tuple[int, ...]
    pages: tuple[int, ...]
    block_size: int
    page_padding_bytes: int
    padding_bytes: int
    blocks_per_request: int
    grows: bool

    @property
    def padding_share(self) -> float:
        """Part of a block that this group does not fill with cache content; 1 for a group without layers here."""
        return (self.padding_bytes + self.page_padding_bytes) / (self.padding_bytes + sum(self.pages))


class RankPlan(NamedTuple):
    """One rank: its memory for the cache, the bytes of one block, the blocks it could hold, and what stays unused.

    unused_bytes is negative when num_gpu_blocks_override asks for more than the memory holds.
    """

    rank: int
    stage: int
    available_memory: int
    bytes_per_block: int
    blocks: int
    unused_bytes: int
    groups: tuple[GroupPlan, ...]


class KvPlan(NamedTuple):
    """The cache of one start.

    bytes_per_block: the divisor on the binding rank, the first of those with the fewest blocks.
    num_blocks: blocks on every rank (the fewest of any rank, or the override).
    kv_cache_tokens: the logged size in tokens, by the release's own formula; max_concurrency: requests of max_model_len
    that fit at once. block_size: the engine's own, after planning.
    request_fixed_bytes: bytes of one request that do not depend on its length, once windows are full;
    request_bytes_per_token: bytes that each further token adds on the binding rank, on average over a block.
    longest_request: the longest request that passes the start-up check.
    least_memory: bytes that the binding rank needs for the check to pass with a request of max_model_len.
    """

    engine_version: str
    bytes_per_block: int
    num_blocks: int
    kv_cache_tokens: int | NotStated
    max_concurrency: float | NotStated
    max_model_len: int
    block_size: int | NotStated
    request_fixed_bytes: int
    request_bytes_per_token: float
    longest_request: int | NotStated
    least_memory: int
    binding_rank: int
    ranks: tuple[RankPlan, ...]

    @property
    def groups(self) -> tuple[GroupPlan, ...]:
        """Groups of the binding rank."""
        return self.ranks[self.binding_rank].groups

    @property
    def blocks_per_request(self) -> tuple[int, ...]:
        """Blocks of one request of max_model_len in each group of the binding rank."""
        return tuple(group.blocks_per_request for group in self.groups)

    @property
    def padding_share(self) -> float:
        """Part of the binding rank's blocks that holds no cache content, over all its groups alike, in [0, 1)."""
        shares = [group.padding_share for group in self.groups]
        return sum(shares) / len(shares) if shares else 0.0

    @property
    def unused_bytes(self) -> int:
        """Bytes of the binding rank's memory that no block uses."""
        return self.ranks[self.binding_rank].unused_bytes
