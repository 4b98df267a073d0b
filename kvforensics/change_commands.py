"""The commands `whatif` and `compare`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kvforensics import choices, options
from kvforensics.output import Output, answered, output, text_of
from kvforensics.report.look import Look

if TYPE_CHECKING:
    from kvforensics.whatif import Ask
    from reconstruct.change import Change
    from reconstruct.facts import Given


def register(app: typer.Typer) -> None:
    """Add both commands to the command line."""
    app.command("whatif")(whatif_command)
    app.command("compare")(compare_command)


def whatif_command(
    log: options.Log,
    gpu_memory_utilization: options.Utilization = None,
    kv_cache_dtype: options.CacheDtype = None,
    quantization: options.Quantization = None,
    max_model_len: options.Count = None,
    max_num_batched_tokens: options.Count = None,
    max_num_seqs: options.Count = None,
    tensor_parallel_size: options.TensorParallel = None,
    pipeline_parallel_size: options.PipelineParallel = None,
    enforce_eager: options.EagerSwitch = None,
    estimate_cudagraphs: Annotated[
        str | None, typer.Option(metavar="on|off", help="VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS: charge graphs.")
    ] = None,
    engine_version: Annotated[str | None, typer.Option(help="Another release of vLLM, such as 0.27.1.")] = None,
    block_size: options.Count = None,
    kv_cache_memory: options.CacheMemory = None,
    target: Annotated[
        str | None, typer.Option(help="tokens=N, max-model-len=N or concurrency=N: search the cheapest changes.")
    ] = None,
    config: options.Config = None,
    gpu: options.Gpu = None,
    total_memory: options.TotalMemory = None,
    sets: options.Sets = None,
    startup: options.StartUp = "last",
    form: options.Form = "table",
    brief: options.Brief = False,
    out: options.Out = None,
    no_redact: options.NoRedact = False,
    width: options.Width = None,
    ascii_only: options.AsciiOnly = False,
) -> None:
    """Predict what other settings, or another release, would do to the pool of a start-up that has a log."""

    def ask(asked: Output) -> str:
        from kvforensics.whatif import Ask
        from reconstruct.change import Change

        change = Change(
            gpu_memory_utilization=gpu_memory_utilization, kv_cache_dtype=kv_cache_dtype, quantization=quantization,
            max_model_len=max_model_len,
            max_num_batched_tokens=max_num_batched_tokens, max_num_seqs=max_num_seqs,
            tensor_parallel_size=tensor_parallel_size, pipeline_parallel_size=pipeline_parallel_size,
            enforce_eager=enforce_eager, estimate_cudagraphs=_switch(estimate_cudagraphs),
            engine_version=engine_version, block_size=block_size, kv_cache_memory=choices.size_in_bytes(kv_cache_memory),
        )  # fmt: skip
        question = Ask(target, config, gpu, choices.chosen_startup(startup))
        return _what_if(log, change, question, choices.facts_given(gpu, total_memory, sets), asked)

    look = Look(width, ascii_only, redact=not no_redact)
    raise answered(lambda: output(form, look, out, brief=brief), ask)


def compare_command(
    logs: Annotated[list[str], typer.Argument(metavar="BEFORE AFTER [MORE...]", help="Two log files or more.")],
    total_memory: options.TotalMemory = None,
    gpu: options.Gpu = None,
    startup: options.StartUp = "last",
    form: options.Form = "table",
    brief: options.Brief = False,
    out: options.Out = None,
    no_redact: options.NoRedact = False,
    width: options.Width = None,
    ascii_only: options.AsciiOnly = False,
) -> None:
    """Split the change of M, blocks and tokens between start-ups over what moved it."""

    def ask(asked: Output) -> str:
        given = choices.facts_given(gpu, total_memory, None)
        return _compared(logs, choices.chosen_startup(startup), given, asked)

    look = Look(width, ascii_only, redact=not no_redact)
    raise answered(lambda: output(form, look, out, brief=brief), ask)


def _what_if(log: str, change: Change, question: Ask, given: tuple[Given, ...], asked: Output) -> str:
    from kvforensics.report import whatif_document, whatif_json
    from kvforensics.whatif import what_if

    found = what_if(log, change, question, given)
    return text_of(
        lambda: (whatif_document.whatif_document(found, asked.look),),
        lambda: whatif_json.render(found, mask=asked.look.redact),
        asked,
    )


def _compared(logs: list[str], which: str | int, given: tuple[Given, ...], asked: Output) -> str:
    from kvforensics.comparison import compare
    from kvforensics.report import compare_document, compare_json

    found = compare(logs, which, given)
    return text_of(
        lambda: (compare_document.compare_document(found, asked.look),),
        lambda: compare_json.render(found, mask=asked.look.redact),
        asked,
    )


def _switch(text: str | None) -> bool | None:
    if text is None:
        return None
    choices.check_choice("--estimate-cudagraphs", text, ("on", "off"))
    return text == "on"
