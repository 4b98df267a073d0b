"""The texts with which a start-up ends: the engine's own errors and torch's."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.render.numbers_as_printed import GIB, MIB, fixed, rounded, torch_size
from tests.render.parts import Failure, Rank
from tests.render.words import DOCS

if TYPE_CHECKING:
    from tests.render.truth import Truth

RAISE = "Try increasing `gpu_memory_utilization`"
OOM_FREE = 65 * MIB + 393216
"""What is left on a card that just ran out."""


class Refusal(NamedTuple):
    """An exception: its class as a traceback names it, its text, and the function it is raised in."""

    kind: str
    text: str
    place: str
    file: str


def refusal(truth: Truth, index: int) -> Refusal:
    """The exception that the worker or engine of rank `index` raises."""
    rank = truth.ranks[index]
    failure = truth.failure
    if failure in (Failure.FREE_BELOW_DESIRED, Failure.EXTERNAL_ABOVE_DESIRED):
        return Refusal("ValueError", desired(truth, rank, index), "request_memory", "v1/worker/utils.py")
    if failure is Failure.NO_KV_MEMORY:
        place = "raise_if_cache_size_invalid" if truth.v0 else "check_enough_kv_cache_memory"
        return Refusal("ValueError", no_memory(truth), place, "v1/core/kv_cache_utils.py")
    if failure is Failure.REQUEST_TOO_LONG:
        return Refusal("ValueError", too_long(truth), "check_enough_kv_cache_memory", "v1/core/kv_cache_utils.py")
    if failure is Failure.UNRELATED:
        text = f"Expected to find model weights at {truth.model}, but the folder is empty."
        return Refusal("RuntimeError", text, "load_weights", "model_executor/model_loader/loader.py")
    return out_of_memory(truth, index)


def desired(truth: Truth, rank: Rank, index: int) -> str:
    """F below R at the first check (0.9.1+ init_device; 0.14.0+ request_memory names the device)."""
    device = f"device cuda:{index % (truth.world * truth.dp)} " if truth.since("0.14.0") else "device "
    external = rank.external_weight_memory if truth.since("0.32.0") else 0
    budget = truth.requested_float(rank)
    if external and budget <= 0:
        return (
            f"Externally held weights on {device}({rounded(external)}/{rounded(rank.total_memory)} GiB) exceed the "
            f"desired GPU memory utilization ({truth.gpu_memory_utilization}, {rounded(budget + external)} GiB). "
            "Increase GPU memory utilization or reduce GPU memory used by other processes."
        )
    what = (
        "the engine's budget after excluding external process's weights"
        if external
        else "desired GPU memory utilization"
    )
    return (
        f"Free memory on {device}({rounded(rank.initial_free_memory)}/{rounded(rank.total_memory)} GiB) on startup is "
        f"less than {what} ({truth.gpu_memory_utilization}, {rounded(budget)} GiB). Decrease GPU memory utilization or "
        "reduce GPU memory used by other processes."
    )


def no_memory(truth: Truth) -> str:
    text = f"No available memory for the cache blocks. {RAISE} when initializing the engine"
    if truth.v0 or not truth.since("0.13.0"):
        return f"{text}."
    if not truth.since("0.22.0"):
        return f"{text}. {DOCS}"
    return f"{text} (this flag also controls CPU memory reservation on the CPU backend, despite its name). {DOCS}"


def too_long(truth: Truth) -> str:
    """One request of full length does not fit; V0 speaks of tokens, V1 of GiB."""
    if truth.auto_fit:
        return (
            "Cannot auto-fit max_model_len: not enough GPU memory available to serve even a single token. "
            "Try increasing `gpu_memory_utilization`."
        )
    length = truth.max_model_len
    if truth.v0:
        blocks = truth.capacity(0).num_blocks
        stored = truth.block_size * (blocks // truth.pp if truth.since("0.8.0") else blocks)
        return (
            f"The model's max seq len ({length}) is larger than the maximum number of tokens that can be stored in KV "
            f"cache ({stored}). {RAISE} or decreasing `max_model_len` when initializing the engine."
        )
    rank = first_that_cannot(truth)
    needed = truth.blocks_per_request(length) * truth.checked_block_bytes(rank)
    memory = truth.check_memory(rank)
    show = rounded if truth.since("0.14.0") else fixed
    unit = "GiB" if truth.since("0.8.4") else "GB"
    whose = "model's" if truth.since("0.22.0") else "models's"
    return (
        f"To serve at least one request with the {whose} max seq len ({length}), ({show(needed)} {unit} KV cache is "
        f"needed, which is larger than the available KV cache memory ({show(memory)} {unit}).{_advice(truth, rank)}"
    )


def first_that_cannot(truth: Truth) -> Rank:
    """The rank the check stumbles over; in 0.14-0.16 the poorest of an engine speaks for all.

    A length that fits itself is refused where not one token fits, though what no token takes may: a window's spare block.
    """
    needed = truth.blocks_per_request(truth.max_model_len)

    def fails(rank: Rank) -> bool:
        if truth.auto_fit:
            return truth.longest(rank) <= 0
        return needed * truth.checked_block_bytes(rank) > truth.check_memory(rank)

    first = next(index for index, rank in enumerate(truth.ranks) if fails(rank))
    if not truth.between("0.14.0", "0.17.0"):
        return truth.ranks[first]
    return min((truth.ranks[i] for i in truth.of_engine(truth.scope(first).dp)), key=truth.check_memory)


def _advice(truth: Truth, rank: Rank) -> str:
    """The estimate and the advice; spaces between them differ by release, and 0.8.4-0.9.0 lost the estimate."""
    cpu = " (which also controls CPU memory on the CPU backend)" if truth.since("0.22.0") else ""
    tail = f"{RAISE}{cpu} or decreasing `max_model_len` when initializing the engine."
    if not truth.since("0.8.4"):
        return f" {tail}"
    if not truth.since("0.9.1"):
        return f"  {tail}"
    estimate = truth.longest(rank)
    sentence = f"Based on the available memory, the estimated maximum model length is {estimate}." if estimate else ""
    if not truth.since("0.14.0"):
        return f" {sentence} {tail}" + (f" {DOCS}" if truth.since("0.13.0") else "")
    return f" {sentence}{' ' if sentence else ''}{tail} {DOCS}"


def out_of_memory(truth: Truth, index: int) -> Refusal:
    """Torch's account of a full card; the wording follows the torch that the release shipped with."""
    rank = truth.ranks[index]
    tried = {Failure.OOM_LOADING: 112 * MIB, Failure.OOM_PROFILING: 1536 * MIB}.get(truth.failure, 298 * MIB)
    neighbours = max(0, rank.total_memory - rank.initial_free_memory - GIB)
    own = rank.total_memory - OOM_FREE - neighbours
    torch_own = own - 512 * MIB
    text = (
        f"CUDA out of memory. Tried to allocate {torch_size(tried)}. {_device(truth, index)}"
        f"{torch_size(rank.total_memory)} of which {torch_size(OOM_FREE)} is free. "
        + (f"Process 2892987 has {torch_size(neighbours)} memory in use. " if neighbours else "")
        + f"Including non-PyTorch memory, this process has {torch_size(own)} memory in use. Of the allocated memory "
        f"{torch_size(torch_own)} is allocated by PyTorch, {_private(truth)}and {torch_size(43 * MIB)} is reserved by "
        "PyTorch but unallocated. If reserved but unallocated memory is large try setting "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory "
        "Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
    )
    kind = "torch.OutOfMemoryError" if truth.since("0.6.4") else "torch.cuda.OutOfMemoryError"
    if truth.failure is Failure.OOM_SAMPLER:
        wrapped = (
            f"CUDA out of memory occurred when warming up sampler with {truth.max_num_seqs} dummy requests. Please try "
            "lowering `max_num_seqs` or `gpu_memory_utilization` when initializing the engine."
        )
        return Refusal("RuntimeError", wrapped, "_dummy_sampler_run", "v1/worker/gpu_model_runner.py")
    return Refusal(kind, text, "_dummy_run", "v1/worker/gpu_model_runner.py")


def _device(truth: Truth, index: int) -> str:
    """Torch 2.1 misspells capacity, torch 2.3 forgets the index."""
    if not truth.since("0.4.0"):
        return f"GPU {index} has a total capacty of "
    if truth.between("0.4.2", "0.5.4"):
        return "GPU  has a total capacity of "
    return f"GPU {index} has a total capacity of "


def _private(truth: Truth) -> str:
    if truth.failure is Failure.OOM_CAPTURE and truth.since("0.6.4"):
        return f"with {torch_size(74 * MIB)} allocated in private pools (e.g., CUDA Graphs), "
    return ""
