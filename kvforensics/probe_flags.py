"""Launch flags of a probe under vLLM's names, and what each engine makes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from kvforensics.errors import UsageFault
from live_probe.launch import LaunchOptions
from live_probe.shape import DtypeName
from parsers.tuples import NamedTuple
from reconstruct.planner.errors import Unsupported

if TYPE_CHECKING:
    from parsers.launch_settings import Settings, Value

_DTYPES = {"half": "float16", "float": "float32", **{name: name for name in get_args(DtypeName)}}


class Flags(NamedTuple):
    """Flags as given; None leaves a flag to the release's default. Sizes are bytes."""

    gpu_memory_utilization: float | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    block_size: int | None = None
    dtype: str | None = None
    kv_cache_dtype: str | None = None
    quantization: str | None = None
    enforce_eager: bool | None = None
    tensor_parallel_size: int | None = None
    pipeline_parallel_size: int | None = None
    data_parallel_size: int | None = None
    decode_context_parallel_size: int | None = None
    kv_cache_memory_bytes: int | None = None
    num_gpu_blocks_override: int | None = None

    @property
    def world(self) -> int:
        """How many ranks there are."""
        return (self.tensor_parallel_size or 1) * (self.pipeline_parallel_size or 1) * (self.data_parallel_size or 1)

    @property
    def given(self) -> dict[str, Value]:
        """The flags that were given, by name."""
        return {name: value for name, value in self._asdict().items() if value is not None}

    def over(self, other: Flags) -> Flags:
        """Give these flags, and the other's where these are silent."""
        return Flags(**{**other.given, **self.given})  # type: ignore[arg-type]  # both hold these very fields


NO_FLAGS = Flags()


def flags_of(settings: Settings, utilization: float | None) -> Flags:
    """Read the flags off a log's settings; what a log leaves at `auto` stays with the engine."""
    found: dict[str, Value] = {}
    for name in Flags._fields:
        value = settings.get(name)
        if value is not None and value != "auto":
            found[name] = value
    found.pop("gpu_memory_utilization", None)
    if utilization is not None:
        found["gpu_memory_utilization"] = utilization
    if found.get("max_model_len") == -1:
        del found["max_model_len"]
    return Flags(**found)  # type: ignore[arg-type]  # by the names of the log's own settings


def torch_options(flags: Flags) -> LaunchOptions:
    """Give the torch engine's options.

    Raises UsageFault for a dtype that does not exist, Unsupported for what its decoder does not do.
    """
    dtype = None if flags.dtype in (None, "auto") else _DTYPES.get(str(flags.dtype))
    if dtype is None and flags.dtype not in (None, "auto"):
        raise UsageFault(f"--dtype {flags.dtype}: write auto, {', '.join(_DTYPES)}")
    for name in ("pipeline_parallel_size", "decode_context_parallel_size"):
        if (flags.given.get(name) or 1) != 1:
            raise Unsupported(f"the torch engine runs one tensor-parallel rank alone: use --engine vllm for {name}")
    if flags.quantization is not None:
        raise Unsupported(f"the torch engine has no {flags.quantization} weights: use --engine vllm")
    if flags.kv_cache_dtype not in (None, "auto", dtype):
        raise Unsupported(f"the torch engine has no {flags.kv_cache_dtype} cache: use --engine vllm")
    if flags.num_gpu_blocks_override is not None:
        raise Unsupported("the torch engine takes no override of the number of blocks: use --engine vllm")
    return LaunchOptions(
        gpu_memory_utilization=flags.gpu_memory_utilization,
        max_model_len=flags.max_model_len,
        max_num_batched_tokens=flags.max_num_batched_tokens,
        max_num_seqs=flags.max_num_seqs,
        dtype=dtype,
        enforce_eager=flags.enforce_eager is True,
        kv_cache_memory_bytes=flags.kv_cache_memory_bytes,
        tensor_parallel_size=flags.tensor_parallel_size or 1,
        block_size=flags.block_size,
    )


def llm_arguments(flags: Flags, model: str, load_format: str) -> dict[str, Value]:
    """Give the arguments of vLLM's LLM class: what was given, under the same names (0.8-0.33, vllm/entrypoints/llm.py)."""
    return {"model": model, "load_format": load_format, "skip_tokenizer_init": True, **flags.given}
