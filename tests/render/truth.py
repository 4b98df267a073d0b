"""One start-up as it really is: every byte known, and what the engine of that release makes of it.

This is the second source that the product is tested against, so nothing here imports it. Sources are named by release,
file under `vllm/` and function.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from tests.render.numbers_as_printed import GIB, MIB
from tests.render.parts import INJECTABLE, Capacity, Failure, Group, Rank, Scope, Stage
from tests.render.releases import between, since

SAFETY_BUFFER = 150 * MIB
"""What the suggestion holds back (0.10.2+ v1/worker/gpu_worker.py compile_or_warm_up_model)."""


def ceil_div(value: int, by: int) -> int:
    """Ceiling division."""
    return -(-value // by)


@dataclass(frozen=True, slots=True)
class Truth:
    """A whole start-up. Ranks stand in the order dp outer, pp, tp inner."""

    version: str
    """The release whose wording and arithmetic this is."""
    ranks: tuple[Rank, ...]
    gpu_memory_utilization: float
    stated: str | None = None
    """What the build calls itself, where that is not `version`."""
    engine: Literal["V0", "V1"] = "V1"
    model: str = "Qwen/Qwen2.5-7B-Instruct"
    architecture: str = "Qwen2ForCausalLM"
    dtype: str = "bfloat16"
    kv_cache_dtype: str = "auto"
    quantization: str | None = None
    moe: bool = False
    tp: int = 1
    pp: int = 1
    dp: int = 1
    dcp: int = 1
    nodes: int = 1
    ray: bool = False
    block_size: int = 16
    groups: tuple[Group, ...] = ()
    full_model_len: int = 8192
    length_given: bool = True
    """Whether it was asked for, or is the model's own."""
    auto_fit: bool = False
    max_num_batched_tokens: int = 8192
    max_num_seqs: int = 256
    num_blocks_override: int | None = None
    kv_cache_memory_bytes: int | None = None
    startup_plan: bool = False
    mm_reservation: int = 0
    enforce_eager: bool = False
    graph_sizes: tuple[int, int] = (51, 51)
    estimate_switch: bool | None = None
    v2_runner: bool = False
    swap_space: int = 4 * GIB
    injected: Failure = Failure.NONE
    cut_at: float = 0.5
    log_level: Literal["INFO", "DEBUG"] = "INFO"
    colour: bool = False
    start: int = 0
    interleave: int | None = None

    def __post_init__(self) -> None:
        if len(self.ranks) != self.tp * self.pp * self.dp:
            raise ValueError("ranks must be tp * pp * dp many")
        if self.auto_fit and self.dp > 1:
            raise ValueError("auto-fit gives each engine its own length: one engine only")
        if self.injected not in INJECTABLE:
            raise ValueError(f"{self.injected} follows from the numbers: choose them so")

    # -- shape ------------------------------------------------------------------------------------------------------

    @property
    def v0(self) -> bool:
        return self.engine == "V0"

    @property
    def world(self) -> int:
        """Ranks of one engine."""
        return self.tp * self.pp

    @property
    def shown_version(self) -> str:
        return self.stated or self.version

    def since(self, first: str) -> bool:
        return since(self.version, first)

    def between(self, first: str, before: str) -> bool:
        return between(self.version, first, before)

    def of_engine(self, dp: int) -> range:
        return range(dp * self.world, (dp + 1) * self.world)

    def scope(self, index: int) -> Scope:
        dp, rest = divmod(index, self.world)
        return Scope(dp, *divmod(rest, self.tp))

    @property
    def all_groups(self) -> tuple[Group, ...]:
        return self.groups or (Group("full", self.block_size),)

    # -- one rank's ledger ------------------------------------------------------------------------------------------

    @property
    def default_utilization(self) -> float:
        """0.92 from 0.20.0 on, 0.9 before (config/cache.py CacheConfig)."""
        return 0.92 if self.since("0.20.0") else 0.9

    def requested_float(self, rank: Rank) -> float:
        """R: `T * u` as it is; 0.14.0+ rounds up, 0.32.0+ takes E off (v1/worker/utils.py request_memory)."""
        asked = rank.total_memory * self.gpu_memory_utilization
        if not self.v0 and self.since("0.14.0"):
            return float(math.ceil(asked) - (rank.external_weight_memory if self.since("0.32.0") else 0))
        return asked

    def requested(self, rank: Rank) -> int:
        return math.floor(self.requested_float(rank))

    @property
    def charges_neighbours(self) -> bool:
        """Whether other processes' memory is charged: V1 up to 0.9.0, V0 0.2.x and 0.6.4 take no baseline."""
        if self.v0:
            return not self.since("0.3.0") or self.between("0.6.4", "0.6.5")
        return not self.since("0.9.1")

    def non_torch(self, rank: Rank) -> int:
        """N as that release charges it (0.8.5 v1/worker/gpu_worker.py determine_available_memory)."""
        if not self.charges_neighbours:
            return rank.non_torch_increase
        neighbours = rank.total_memory - rank.initial_free_memory
        return max(0, neighbours + rank.non_torch_increase)

    @property
    def by_consumption(self) -> bool:
        """From 0.27.0 the ledger takes free-memory differences plus headroom (utils/mem_utils.py memory_profiling)."""
        return not self.v0 and self.since("0.27.0")

    def consumed(self, rank: Rank) -> int:
        return rank.total_consumed if self.by_consumption else rank.model_memory + self.non_torch(rank)

    def headroom(self, rank: Rank) -> int:
        return rank.transient_peak_headroom if self.by_consumption else rank.torch_peak_increase

    def non_kv(self, rank: Rank) -> int:
        return self.consumed(rank) + self.headroom(rank)

    @property
    def estimates_graphs(self) -> bool:
        """Graph estimates exist from 0.18.0; the V2 runner's is 0 up to 0.28 (profile_cudagraph_memory)."""
        if self.v0 or not self.since("0.18.0") or self.enforce_eager or self.profiles_nothing:
            return False
        return not self.v2_runner or self.since("0.29.0")

    @property
    def charges_graphs(self) -> bool:
        """VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS: off by default in 0.18-0.19, on from 0.20.0."""
        return self.since("0.20.0") if self.estimate_switch is None else self.estimate_switch

    def graph_estimate(self, rank: Rank) -> int:
        """The larger first capture plus every further graph (0.19.1 gpu_model_runner.py profile_cudagraph_memory)."""
        if not self.estimates_graphs:
            return 0
        first, total = [], 0
        caps = rank.captures
        parts = ((caps.piecewise_first, caps.piecewise_next), (caps.full_first, caps.full_next))
        for (one, further), count in zip(parts, self.graph_sizes, strict=True):
            if count:
                first.append(one)
                total += max(further, MIB) * (count - 1)
        return max(first) + total if first else 0

    def graphs_applied(self, rank: Rank) -> int:
        return self.graph_estimate(rank) if self.charges_graphs else 0

    def available_float(self, rank: Rank) -> float:
        """M before the engine's `int()`."""
        return self.requested_float(rank) - self.non_kv(rank) - self.graphs_applied(rank)

    def available(self, rank: Rank) -> int:
        """M; `int()` cuts towards zero, V0 floors by `//`."""
        exact = self.available_float(rank)
        return math.floor(exact) if self.v0 else int(exact)

    @property
    def profiles_nothing(self) -> bool:
        """Explicit `--kv-cache-memory` skips profiling (0.10.2+); V0 has no such flag."""
        return not self.v0 and self.kv_cache_memory_bytes is not None

    def pool(self, rank: Rank) -> int:
        """M': what the planner divides."""
        whole = self.available(rank) if self.kv_cache_memory_bytes is None else self.kv_cache_memory_bytes
        return whole - (self.mm_reservation if self.since("0.25.0") else 0)

    @property
    def load_format(self) -> str:
        """Only one loader maps weights that another process holds (0.32.0+ model_executor/model_loader/weight_cache)."""
        return "ipc_cache" if any(rank.external_weight_memory for rank in self.ranks) else "auto"

    @property
    def asked_length(self) -> int | None:
        """`--max-model-len`: -1 leaves it to what fits."""
        return -1 if self.auto_fit else self.full_model_len if self.length_given else None

    @property
    def raw_frame_budget(self) -> int:
        """The part of the multimodal reservation that is asked for in `mm_ipc_gpu_memory_gb`; decoders take the rest."""
        return self.mm_reservation // 2

    def free_after(self, rank: Rank) -> int:
        """Free memory after profiling; torch's cache is held there too before 0.27 (MemorySnapshot.measure)."""
        if self.by_consumption:
            return rank.initial_free_memory - rank.total_consumed
        held = rank.model_memory + rank.reserved_slack
        return rank.initial_free_memory - rank.non_torch_increase - held

    def suggested(self, rank: Rank) -> tuple[int, int]:
        """The two `--kv-cache-memory` figures: into R, into F. Graphs count twice in 0.18 and 0.27+ when charged."""
        taken = self.consumed(rank) + self.printed_peak(rank) + rank.cudagraph_actual + SAFETY_BUFFER
        return self.requested(rank) - taken, rank.initial_free_memory - taken

    def printed_peak(self, rank: Rank) -> int:
        """What the usage line calls peak activation."""
        doubled = self.between("0.18.0", "0.19.0") or self.since("0.27.0")
        return self.headroom(rank) + (self.graphs_applied(rank) if doubled else 0)

    # -- the planner ------------------------------------------------------------------------------------------------

    def blocks_per_request(self, length: int) -> int:
        """Blocks of one request of `length` tokens, over all groups (v1/kv_cache_interface.py)."""
        return sum(self._group_blocks(group, length) for group in self.all_groups)

    def _group_blocks(self, group: Group, length: int) -> int:
        if group.kind == "mamba":
            return 1
        if group.kind == "sliding":
            batches = max(2, self.pp) if self.since("0.26.0") else 1
            span = min(group.window - 1 + batches * self.max_num_batched_tokens, length)
            return ceil_div(span, group.block_size) + 1
        return ceil_div(ceil_div(length, self.dcp), group.block_size)

    def check_memory(self, rank: Rank) -> int:
        """What the one-request check compares: an override replaces it from 0.20.1, less the null block from 0.29."""
        memory = self.pool(rank)
        if self.num_blocks_override is not None and self.since("0.20.1"):
            memory = self.num_blocks_override * rank.bytes_per_block
        return memory - (rank.bytes_per_block if self.since("0.29.0") else 0)

    def checked_block_bytes(self, rank: Rank) -> int:
        """What a block takes in the check and in auto-fit: one worker's bytes, in 0.14-0.16 those of all stages.

        Source: 0.14.1 v1/core/kv_cache_utils.py get_kv_cache_configs, which asks with the groups of the whole model.
        """
        if not self.between("0.14.0", "0.17.0"):
            return rank.bytes_per_block
        index = next(i for i, other in enumerate(self.ranks) if other is rank)
        mates = self.of_engine(self.scope(index).dp)
        return sum(self.ranks[i].bytes_per_block for i in mates if self.scope(i).tp == 0)

    def longest(self, rank: Rank) -> int:
        """The longest request that fits, by the engine's own bisection over lengths up to the model's."""
        memory, low, high = self.check_memory(rank), 0, self.full_model_len
        while low < high:
            middle = (low + high + 1) // 2
            fits = self.blocks_per_request(middle) * self.checked_block_bytes(rank) <= memory
            low, high = (middle, high) if fits else (low, middle - 1)
        return low

    @property
    def max_model_len(self) -> int:
        """After auto-fit, the shortest of every rank (0.14.0+ kv_cache_utils.py _auto_fit_max_model_len)."""
        if not self.auto_fit:
            return self.full_model_len
        return min(self.longest(rank) for rank in self.ranks)

    @property
    def shares_poorest_pool(self) -> bool:
        """V1 up to 0.8.1 plans every worker with the smallest pool (0.8.0 v1/core/kv_cache_utils.py get_kv_cache_configs)."""
        return not self.v0 and not self.since("0.8.2")

    def own_blocks(self, index: int) -> int:
        """One worker's own count; up to 0.8.1 V1 shares the poorest pool and the most layers (get_kv_cache_configs)."""
        rank = self.ranks[index]
        if self.shares_poorest_pool:
            mates = [self.ranks[i] for i in self.of_engine(self.scope(index).dp)]
            pool, bytes_per_block = min(map(self.pool, mates)), max(mate.bytes_per_block for mate in mates)
            return max(pool // bytes_per_block, 0)
        if self.v0:  # the float is divided, not the floored memory
            return max(int(self.available_float(rank) // rank.bytes_per_block), 0)
        return max(self.pool(rank) // rank.bytes_per_block, 0)

    def overridden(self, blocks: int) -> int:
        """0.9.1 prints the override and keeps its own count (v1/core/kv_cache_utils.py)."""
        ignored = self.num_blocks_override is None or (not self.v0 and self.between("0.9.1", "0.9.2"))
        return blocks if ignored else int(self.num_blocks_override or 0)

    def tokens(self, blocks: int) -> int:
        """The printed capacity in tokens; V0 prints none, and blocks x block size stands in."""
        if self.v0 or not self.since("0.9.1"):
            return blocks * self.block_size
        if not self.since("0.20.1"):
            smallest = min(group.block_size for group in self.all_groups)
            return blocks // len(self.all_groups) * smallest * self.dcp
        return int(self.concurrency(blocks) * self.max_model_len)

    def concurrency(self, blocks: int) -> float:
        if self.v0 or not self.since("0.9.1"):
            return blocks * self.block_size / self.max_model_len
        return blocks / self.blocks_per_request(self.max_model_len)

    def capacity(self, dp: int) -> Capacity:
        """The planner's answer for one engine; of ranks with equally few blocks the one with the smallest pool binds."""
        counts = {index: self.own_blocks(index) for index in self.of_engine(dp)}
        binding = min(counts, key=lambda index: (counts[index], self.pool(self.ranks[index])))
        blocks = self.overridden(counts[binding])
        rank = self.ranks[binding]
        return Capacity(
            blocks, binding, self.pool(rank), rank.bytes_per_block, self.tokens(blocks), self.concurrency(blocks)
        )

    # -- how it ends ------------------------------------------------------------------------------------------------

    @property
    def failure(self) -> Failure:
        """The first thing that stops this start-up, by its own arithmetic or by injection."""
        checks = (
            (Failure.EXTERNAL_ABOVE_DESIRED, self._external_too_large),
            (Failure.FREE_BELOW_DESIRED, self._free_too_small),
            *((kind, lambda: False) for kind in (Failure.OOM_LOADING, Failure.UNRELATED, Failure.OOM_PROFILING)),
            (Failure.NO_KV_MEMORY, self._no_memory),
            (Failure.REQUEST_TOO_LONG, self._too_long),
        )
        for kind, happens in checks:
            if self.injected == kind or happens():
                return kind
        return self.injected

    def _external_too_large(self) -> bool:
        return self.since("0.32.0") and any(self.requested(rank) <= 0 for rank in self.ranks)

    def _free_too_small(self) -> bool:
        checked = not self.v0 and self.since("0.9.1")
        return checked and any(rank.initial_free_memory < self.requested_float(rank) for rank in self.ranks)

    def _no_memory(self) -> bool:
        if self.v0:
            return self.overridden(min(self.own_blocks(i) for i in range(len(self.ranks)))) <= 0
        if self.auto_fit or (self.num_blocks_override is not None and self.since("0.20.1")):
            return False
        return any(self.check_memory(rank) <= 0 for rank in self.ranks)

    def _too_long(self) -> bool:
        if self.v0:
            blocks = self.capacity(0).num_blocks
            whole = blocks // self.pp if self.since("0.8.0") else blocks
            return self.since("0.2.0") and self.max_model_len > whole * self.block_size
        if self.auto_fit:
            return self.max_model_len <= 0
        needed = self.blocks_per_request(self.max_model_len)
        return any(needed * self.checked_block_bytes(rank) > self.check_memory(rank) for rank in self.ranks)

    @property
    def reached(self) -> Stage:
        """Which steps were passed before the end."""
        order = list(Failure)
        at = order.index(self.failure)
        if self.failure in (Failure.NONE, Failure.CUT):
            return Stage(True, True, True, True, True)
        if self.failure is Failure.UNRELATED:
            return Stage(True, False, False, False, False)
        return Stage(
            device=True,
            load=at > order.index(Failure.OOM_LOADING),
            profile=at > order.index(Failure.OOM_PROFILING),
            plan=at > order.index(Failure.REQUEST_TOO_LONG),
            capture=self.failure is Failure.OOM_SAMPLER,
        )

    @property
    def outcome(self) -> str:
        """`ready`, `failed` or `unfinished`."""
        return {Failure.NONE: "ready", Failure.CUT: "unfinished"}.get(self.failure, "failed")

    def expected(self) -> dict[tuple[Scope, str], int | float]:
        """Every quantity that existed when the start-up ended, by scope and name."""
        from tests.render.ledger import expected  # the ledger is written in terms of Truth

        return expected(self)
