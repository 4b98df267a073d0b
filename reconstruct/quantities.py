"""The ledger's quantities: names as vLLM's attributes, symbols for reports, units, scopes and sure bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.interval import ANYTHING, AT_LEAST_ZERO, Interval

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reconstruct.relations import Term


class QuantityKind(NamedTuple):
    """One quantity of the ledger."""

    name: str
    symbol: str
    unit: str
    """`B`, `tokens`, `blocks` or `1`."""
    scope: str
    """`rank` or `engine`."""
    meaning: str
    bound: Interval = ANYTHING
    """What holds without any evidence."""


RANK = (
    QuantityKind("total_memory", "T", "B", "rank", "device memory the driver reports", AT_LEAST_ZERO),
    QuantityKind("external_weight_memory", "E", "B", "rank", "weights held by another process", AT_LEAST_ZERO),
    QuantityKind("requested_memory", "R", "B", "rank", "the budget: T x u, less E"),
    QuantityKind("initial_free_memory", "F", "B", "rank", "free at the baseline snapshot", AT_LEAST_ZERO),
    QuantityKind("model_memory", "W", "B", "rank", "weights", AT_LEAST_ZERO),
    QuantityKind("torch_peak_increase", "P", "B", "rank", "profiled activation peak", AT_LEAST_ZERO),
    QuantityKind("non_torch_increase", "N", "B", "rank", "NCCL, cuBLAS, backend buffers"),
    QuantityKind("total_consumed", "C", "B", "rank", "consumed before the pool, at rest"),
    QuantityKind("transient_peak_headroom", "H", "B", "rank", "headroom for the activation peak", AT_LEAST_ZERO),
    QuantityKind("non_kv_cache_memory", "C+H", "B", "rank", "taken from R before graphs"),
    QuantityKind("cudagraph_memory_estimate", "G_est", "B", "rank", "CUDA graphs, estimated"),
    QuantityKind("cudagraph_memory_applied", "G", "B", "rank", "CUDA graphs, charged to the budget"),
    QuantityKind("cudagraph_memory_actual", "G_act", "B", "rank", "CUDA graphs, measured at capture"),
    QuantityKind("available_kv_cache_memory", "M", "B", "rank", "available for the KV cache"),
)
ENGINE = (
    QuantityKind("gpu_memory_utilization", "u", "1", "engine", "fraction of T asked for", Interval(0.0, None)),
    QuantityKind("kv_pool_memory", "M'", "B", "engine", "what the planner divided on the binding rank"),
    QuantityKind("block_size", "block_size", "tokens", "engine", "tokens in a block"),
    QuantityKind("bytes_per_block", "bytes_per_block", "B", "engine", "the planner's divisor", Interval(1, None)),
    QuantityKind("num_blocks", "num_blocks", "blocks", "engine", "blocks in the pool", AT_LEAST_ZERO),
    QuantityKind("kv_cache_bytes", "KV", "B", "engine", "num_blocks x bytes_per_block", AT_LEAST_ZERO),
    QuantityKind("unused_kv_memory", "M'-KV", "B", "engine", "the remainder that fills no block"),
    QuantityKind("kv_cache_tokens", "tokens", "tokens", "engine", "the token count that the log prints", AT_LEAST_ZERO),
    QuantityKind("max_model_len", "max_model_len", "tokens", "engine", "longest request"),
    QuantityKind("max_concurrency", "concurrency", "1", "engine", "full-length requests that fit", Interval(0.0, None)),
)
AUXILIARY = (
    # Printed figures that are no ledger term themselves but tie terms together; they stay out of reports.
    QuantityKind("peak_activation_memory", "", "B", "rank", "the usage line's peak activation"),
    QuantityKind("kv_cache_memory_to_requested", "", "B", "rank", "first --kv-cache-memory suggestion"),
    QuantityKind("kv_cache_memory_to_gpu", "", "B", "rank", "second --kv-cache-memory suggestion"),
    QuantityKind("free_after_profiling", "", "B", "rank", "free after the profile run", AT_LEAST_ZERO),
    QuantityKind("free_within_requested", "", "B", "rank", "the same, within the budget"),
    QuantityKind("utilization_budget", "", "B", "rank", "R before external weights"),
    QuantityKind("mm_ipc_reservation", "", "B", "rank", "multimodal IPC reservation", AT_LEAST_ZERO),
    QuantityKind("rank_pool_memory", "", "B", "rank", "M after reservations, or the explicit pool"),
    QuantityKind("explicit_pool", "", "B", "rank", "the pool asked for in bytes", AT_LEAST_ZERO),
    QuantityKind("graph_share", "", "1", "rank", "G_est / T by the utilisation line"),
    QuantityKind("suggestion_buffer", "", "B", "rank", "the 150 MiB the suggestions leave free"),
    QuantityKind("checked_kv_cache_memory", "", "B", "engine", "the pool as the one-request check saw it"),
    QuantityKind("needed_kv_cache_memory", "", "B", "engine", "what one full-length request needs", AT_LEAST_ZERO),
    QuantityKind("storable_tokens", "", "tokens", "engine", "what the length check compares", AT_LEAST_ZERO),
    QuantityKind("block_tokens", "", "tokens", "engine", "blocks x block size", AT_LEAST_ZERO),
    QuantityKind("computed_num_blocks", "", "blocks", "engine", "blocks before an override"),
    QuantityKind("blocks_per_request", "", "blocks", "engine", "blocks of one full-length request"),
)

BY_NAME = {kind.name: kind for kind in RANK + ENGINE + AUXILIARY}
REPORTED = frozenset(kind.name for kind in RANK + ENGINE)


def sure_bounds(terms: Iterable[Term]) -> dict[Term, Interval]:
    """Give what holds of each unknown without any evidence, where anything does."""
    return {t: BY_NAME[t.name].bound for t in terms if BY_NAME[t.name].bound != ANYTHING}
