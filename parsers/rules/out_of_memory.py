"""Torch's account of a full device, in each of its forms, and the calls that tell which step of a start asked for memory.

Source of the text: torch c10/cuda/CUDACachingAllocator.cpp malloc; vLLM prints it as torch made it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.rule import Rule
from parsers.template import Printed

if TYPE_CHECKING:
    from parsers.rule import Statement

_ALL = ("0.2.7", "0.33.0")
_HEAD = (
    " out of memory. Tried to allocate {oom_tried:size}. GPU {device:text}has a total {capacity:word} of "
    "{total_memory:size} of which {oom_free:size} is free."
)
_HEAD_SAMPLE = (
    " out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 79.18 GiB of which 1.02 GiB is free."
)
_OWN = "Including non-PyTorch memory, this process has {oom_in_use:size} memory in use."
_OWN_SAMPLE = "Including non-PyTorch memory, this process has 78.16 GiB memory in use."
_SPLIT = (
    "Of the allocated memory {oom_allocated:size} is allocated by PyTorch, and {oom_unallocated:size} is reserved by "
    "PyTorch but unallocated.{advice:rest}"
)
_SPLIT_SAMPLE = (
    "Of the allocated memory 70.24 GiB is allocated by PyTorch, and 1.17 GiB is reserved by PyTorch but unallocated."
)
_PRIVATE = _SPLIT.replace(
    "PyTorch, and", "PyTorch, with {oom_private:size} allocated in private pools (e.g., CUDA Graphs), and"
)
_PRIVATE_SAMPLE = _SPLIT_SAMPLE.replace(
    "PyTorch, and", "PyTorch, with 3.44 GiB allocated in private pools (e.g., CUDA Graphs), and"
)
_OTHERS_SAMPLE = " Process 7 has 588.00 MiB memory in use. "

_FORMS = (
    (_HEAD + "{oom_others:text}" + _OWN + " " + _PRIVATE, _HEAD_SAMPLE + _OTHERS_SAMPLE + _OWN_SAMPLE + " " + _PRIVATE_SAMPLE),
    (_HEAD + "{oom_others:text}" + _OWN + " " + _SPLIT, _HEAD_SAMPLE + _OTHERS_SAMPLE + _OWN_SAMPLE + " " + _SPLIT_SAMPLE),
    (_HEAD + "{oom_others:text}" + _PRIVATE, _HEAD_SAMPLE + _OTHERS_SAMPLE + _PRIVATE_SAMPLE),
    (_HEAD + "{oom_others:text}" + _SPLIT, _HEAD_SAMPLE + _OTHERS_SAMPLE + _SPLIT_SAMPLE),
    (_HEAD + "{oom_others:rest}", _HEAD_SAMPLE + " Process 7 has 78.16 GiB memory in use."),
)  # fmt: skip
"""From the fullest to the barest: of those that read equally far, the first is taken."""

_NO_FREE = _HEAD.replace(" of which {oom_free:size} is free", "") + " "
_NO_FREE_SAMPLE = " out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 23.91 GiB. "

_OLD = " out of memory. Tried to allocate {oom_tried:size} (GPU {device:count}; {total_memory:size} total capacity; "
_OLD_SAMPLE = " out of memory. Tried to allocate 1.50 GiB (GPU 0; 79.15 GiB total capacity; "

STEPS = (
    ("load", ("load_model", "load_weights", "_load_weights")),
    (
        "profile",
        (
            "determine_available_memory", "determine_num_available_blocks", "profile_cudagraph_memory",
            "profile_num_available_blocks", "profile_run",
        ),
    ),
    (
        "kv-allocation",
        (
            "_allocate_kv_cache", "_allocate_kv_cache_tensors", "initialize_cache", "initialize_from_config",
            "initialize_kv_cache", "initialize_kv_cache_tensors",
        ),
    ),
    ("kernel-warmup", ("kernel_warmup",)),
    ("capture", ("_capture_cudagraphs", "capture_graph", "capture_model")),
    ("sampler-warmup", ("_dummy_pooler_run", "_dummy_sampler_run")),
    ("forward", ("_dummy_run",)),
)  # fmt: skip
"""Functions of vLLM's workers and runners (V0 and V1) that stand in a traceback while that step runs."""

STEP_OF = {function: step for step, functions in STEPS for function in functions}
"""The step of each function."""

RULES = (
    *(
        Rule("out_of_memory", device + form, _ALL, device + sample)
        for device in ("CUDA", "HIP", "XPU")
        for form, sample in _FORMS
    ),
    Rule("out_of_memory", "XPU" + _NO_FREE + _SPLIT, _ALL, "XPU" + _NO_FREE_SAMPLE + _SPLIT_SAMPLE),
    Rule(  # the plugin for Ascend
        "out_of_memory",
        _OLD.replace(" out", "NPU out").replace("(GPU", "(NPU") + "{oom_allocated:size} already allocated; "
        "{oom_active:size} current active; {oom_free:size} free; {oom_reserved:size} reserved in total by PyTorch",
        _ALL,
        "NPU out of memory. Tried to allocate 22.00 MiB (NPU 6; 60.97 GiB total capacity; 10.24 GiB already allocated; "
        "10.24 GiB current active; 19.79 MiB free; 10.65 GiB reserved in total by PyTorch",
    ),
    Rule(  # before torch 2.1
        "out_of_memory",
        "CUDA" + _OLD + "{oom_allocated:size} already allocated; {oom_free:size} free; {oom_reserved:size} reserved in "
        "total by PyTorch",
        _ALL,
        "CUDA" + _OLD_SAMPLE + "70.00 GiB already allocated; 1.02 GiB free; 71.00 GiB reserved in total by PyTorch",
    ),
    Rule(
        "out_of_memory",
        "CUDA" + _OLD,
        _ALL,
        "CUDA" + _OLD_SAMPLE,
    ),
    *(
        Rule(
            "frame",
            f'File "{{path:word}}/vllm/{{module:word}}.py", line {{number:count}}, in {function}',
            _ALL,
            f'File "/opt/venv/vllm/v1/worker/gpu_worker.py", line 42, in {function}',
            (f", in {function}",),
        )
        for function in sorted(STEP_OF)
    ),
)


def other_processes(statement: Statement) -> tuple[tuple[int, Printed], ...]:
    """Give (pid, memory in use) of every other process that torch's text lists; the pid may be another namespace's."""
    found = []
    for clause in (statement.text("oom_others") or "").split("Process ")[1:]:
        pid, _, rest = clause.partition(" has ")
        size, used, _ = rest.partition(" memory in use")
        if pid.isdigit() and used:
            found.append((int(pid), Printed("oom_other_in_use", size, "size")))
    return tuple(found)


def called(statement: Statement) -> str:
    """Give the step that a `frame` statement shows running."""
    return STEP_OF[statement.rule.template.rpartition(" in ")[2]]
