"""Launch settings of the torch engine, under vLLM's names, and the defaults a release gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from live_probe.eras import capture_sizes, default_runner, era_of, release_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from live_probe.cache_plan import CachePlan
    from live_probe.eras import Runner
    from live_probe.shape import DecoderShape, DtypeName

GIB = 1 << 30
_SMALL, _LARGE, _HUGE = 2048, 8192, 16384
"""Default batches in tokens, by the card."""


class LaunchError(ValueError):
    """Settings that no engine would start with."""


class LaunchOptions(NamedTuple):
    """What the user chose; None leaves it to the release's default."""

    gpu_memory_utilization: float | None = None
    max_model_len: int | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    block_size: int | None = None
    dtype: DtypeName | None = None
    enforce_eager: bool = False
    kv_cache_memory_bytes: int | None = None
    cudagraph_capture_sizes: tuple[int, ...] | None = None
    estimate_cudagraphs: bool | None = None
    tensor_parallel_size: int = 1


class LaunchSettings(NamedTuple):
    """Settings with every default resolved. `capture_sizes` is empty where no graph is captured.

    `kv_cache_memory_bytes` is 0 unless the pool was given outright. `cache`: how the pool will be divided.
    """

    version: str
    runner: Runner
    gpu_memory_utilization: float
    max_num_batched_tokens: int
    max_num_seqs: int
    dtype: DtypeName
    capture_sizes: tuple[int, ...]
    charge_graphs: bool
    kv_cache_memory_bytes: int
    cache: CachePlan

    @property
    def max_model_len(self) -> int:
        """Tokens of the longest request."""
        return self.cache.max_model_len

    @property
    def block_size(self) -> int:
        """Tokens of a block, as the engine states it."""
        return self.cache.block_size


def resolve(
    options: LaunchOptions,
    version: str,
    shape: DecoderShape,
    plans: Sequence[CachePlan],
    device_name: str,
    total_memory: int,
) -> LaunchSettings:
    """Fill in what `vllm serve` of that release would take on that card; of `plans`, the one of its batch counts.

    `total_memory` is 0 where the card is not read yet. More requests than tokens in a batch are refused by every release
    (0.8-0.33, vllm/config: SchedulerConfig).

    Raises:
        LaunchError: a setting is out of its range, or no plan was made for batches of that size.
        UnsupportedVersionError: the release's sequence is not known.

    """
    era = era_of(version)
    utilization = (
        era.gpu_memory_utilization if options.gpu_memory_utilization is None else options.gpu_memory_utilization
    )
    if not 0 < utilization <= 1:
        raise LaunchError(f"gpu_memory_utilization is {utilization}: give a fraction of the card, such as 0.9")
    tokens, seqs = batch_defaults(version, device_name, total_memory)
    tokens = options.max_num_batched_tokens or _capped(tokens, options, version)
    seqs = options.max_num_seqs or min(seqs, tokens)
    known = options.max_num_batched_tokens or total_memory  # a card that is not read yet tells no default
    if known and seqs > tokens:
        raise LaunchError(f"max_num_seqs {seqs} is more than max_num_batched_tokens {tokens}: lower or raise one")
    sizes = options.cudagraph_capture_sizes or capture_sizes(era, seqs, tokens)
    return LaunchSettings(
        version=version,
        runner=default_runner(version, shape.architectures, experts=shape.experts is not None),
        gpu_memory_utilization=utilization,
        max_num_batched_tokens=tokens,
        max_num_seqs=seqs,
        dtype=options.dtype or shape.dtype,
        capture_sizes=() if options.enforce_eager else tuple(sorted(sizes, reverse=True)),
        charge_graphs=era.graphs_charged if options.estimate_cudagraphs is None else options.estimate_cudagraphs,
        kv_cache_memory_bytes=options.kv_cache_memory_bytes or 0,
        cache=_plan_of(plans, tokens),
    )


def _plan_of(plans: Sequence[CachePlan], tokens: int) -> CachePlan:
    for plan in plans:
        if plan.max_num_batched_tokens == tokens:
            return plan
    raise LaunchError(f"no cache was planned for batches of {tokens} tokens")


def batches(options: LaunchOptions, version: str) -> tuple[int, ...]:
    """Give every max_num_batched_tokens that these options can come to, whatever the card."""
    if options.max_num_batched_tokens:
        return (options.max_num_batched_tokens,)
    return tuple(dict.fromkeys(_capped(tokens, options, version) for tokens in (_SMALL, _LARGE, _HUGE)))


def _capped(tokens: int, options: LaunchOptions, version: str) -> int:
    """Give a default batch, which holds no more than all sequences of full length where both are given (0.11.1 on)."""
    if release_of(version) < (0, 11, 1) or not options.max_num_seqs or (options.max_model_len or 0) <= 0:
        return tokens
    return min(tokens, options.max_num_seqs * (options.max_model_len or 0))


def batch_defaults(version: str, device_name: str, total_memory: int) -> tuple[int, int]:
    """Give max_num_batched_tokens and max_num_seqs of `vllm serve` on that card.

    vLLM 0.8-0.33, vllm/engine/arg_utils.py: EngineArgs.get_batch_defaults (before, _set_default_args_v1). A100s
    count as small from 0.9.0 on, GB10 from 0.33.0; the tier from 160 GiB from 0.28.0.
    """
    release = release_of(version)
    name = device_name.lower()
    if total_memory >= 160 * GIB and release >= (0, 28):
        return _HUGE, 1024
    small = ("a100" in name and release >= (0, 9)) or ("gb10" in name and release >= (0, 33))
    if total_memory >= 70 * GIB and not small:
        return _LARGE, 1024
    return _SMALL, 256
