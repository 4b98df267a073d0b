"""Launch settings of the torch engine, under vLLM's names, and the defaults a release gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from live_probe.eras import capture_sizes, default_runner, era_of, release_of

if TYPE_CHECKING:
    from live_probe.eras import Runner
    from live_probe.shape import DecoderShape, DtypeName

GIB = 1 << 30


class LaunchError(ValueError):
    """Settings that no engine would start with."""


class LaunchOptions(NamedTuple):
    """What the user chose; None leaves it to the release's default."""

    gpu_memory_utilization: float | None = None
    max_model_len: int | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    block_size: int = 16
    dtype: DtypeName | None = None
    enforce_eager: bool = False
    kv_cache_memory_bytes: int | None = None
    cudagraph_capture_sizes: tuple[int, ...] | None = None
    estimate_cudagraphs: bool | None = None
    tensor_parallel_size: int = 1


class LaunchSettings(NamedTuple):
    """Settings with every default resolved. `capture_sizes` is empty where no graph is captured.

    `kv_cache_memory_bytes` is 0 unless the pool was given outright.
    """

    version: str
    runner: Runner
    gpu_memory_utilization: float
    max_model_len: int
    max_num_batched_tokens: int
    max_num_seqs: int
    block_size: int
    dtype: DtypeName
    capture_sizes: tuple[int, ...]
    charge_graphs: bool
    kv_cache_memory_bytes: int


def resolve(
    options: LaunchOptions, version: str, shape: DecoderShape, device_name: str, total_memory: int
) -> LaunchSettings:
    """Fill in what `vllm serve` of that release would take on that card.

    Raises:
        LaunchError: a setting is out of its range.
        UnsupportedVersionError: the release's sequence is not known.

    """
    era = era_of(version)
    utilization = (
        era.gpu_memory_utilization if options.gpu_memory_utilization is None else options.gpu_memory_utilization
    )
    if not 0 < utilization <= 1:
        raise LaunchError(f"gpu_memory_utilization is {utilization}: give a fraction of the card, such as 0.9")
    tokens, seqs = batch_defaults(version, device_name, total_memory)
    tokens = options.max_num_batched_tokens or tokens
    seqs = options.max_num_seqs or min(seqs, tokens)
    sizes = options.cudagraph_capture_sizes or capture_sizes(era, seqs, tokens)
    return LaunchSettings(
        version=version,
        runner=default_runner(version, shape.architectures),
        gpu_memory_utilization=utilization,
        max_model_len=options.max_model_len or shape.max_positions,
        max_num_batched_tokens=tokens,
        max_num_seqs=seqs,
        block_size=options.block_size,
        dtype=options.dtype or shape.dtype,
        capture_sizes=() if options.enforce_eager else tuple(sorted(sizes, reverse=True)),
        charge_graphs=era.graphs_charged if options.estimate_cudagraphs is None else options.estimate_cudagraphs,
        kv_cache_memory_bytes=options.kv_cache_memory_bytes or 0,
    )


def batch_defaults(version: str, device_name: str, total_memory: int) -> tuple[int, int]:
    """Give max_num_batched_tokens and max_num_seqs of `vllm serve` on that card.

    vLLM 0.8-0.33, vllm/engine/arg_utils.py: EngineArgs.get_batch_defaults (before, _set_default_args_v1). A100s
    count as small from 0.9.0 on, GB10 from 0.33.0; the tier from 160 GiB from 0.28.0.
    """
    release = release_of(version)
    name = device_name.lower()
    if total_memory >= 160 * GIB and release >= (0, 28):
        return 16384, 1024
    small = ("a100" in name and release >= (0, 9)) or ("gb10" in name and release >= (0, 33))
    if total_memory >= 70 * GIB and not small:
        return 8192, 1024
    return 2048, 256
