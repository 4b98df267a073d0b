"""The commands `whatif` and `compare`: read options, call, hand the text to the caller's output."""

from __future__ import annotations

import sys
from pathlib import Path  # noqa: TC003 - typer reads the annotations at run time
from typing import TYPE_CHECKING, Annotated

import typer

from kvforensics.errors import ExitCode, UsageFault, code_of, expected
from kvforensics.report.look import Look

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvforensics.report.whatif_document import Document
    from kvforensics.whatif import Ask
    from reconstruct.change import Change
    from reconstruct.rebuild import Given

FORMATS = ("table", "markdown", "json")


def register(app: typer.Typer, out: Callable[[str], None], complain: Callable[[Exception], None]) -> None:
    """Add both commands to the command line; `out` writes an answer, `complain` an error in one line."""
    _register_whatif(app, out, complain)
    _register_compare(app, out, complain)


def _register_whatif(app: typer.Typer, out: Callable[[str], None], complain: Callable[[Exception], None]) -> None:
    @app.command("whatif")
    def whatif_command(
        log: Annotated[str, typer.Argument(metavar="LOG", help="A log file; - reads standard input.")],
        gpu_memory_utilization: Annotated[float | None, typer.Option(min=0.01, max=1.0)] = None,
        kv_cache_dtype: Annotated[str | None, typer.Option(help="auto, fp8, bfloat16, ...")] = None,
        quantization: Annotated[str | None, typer.Option(help="Quantise weights while loading: fp8, ...")] = None,
        max_model_len: Annotated[int | None, typer.Option(min=1)] = None,
        max_num_batched_tokens: Annotated[int | None, typer.Option(min=1)] = None,
        max_num_seqs: Annotated[int | None, typer.Option(min=1)] = None,
        tensor_parallel_size: Annotated[int | None, typer.Option("--tensor-parallel-size", "--tp", min=1)] = None,
        pipeline_parallel_size: Annotated[int | None, typer.Option("--pipeline-parallel-size", "--pp", min=1)] = None,
        enforce_eager: Annotated[bool | None, typer.Option("--enforce-eager/--no-enforce-eager")] = None,
        estimate_cudagraphs: Annotated[
            str | None, typer.Option(metavar="on|off", help="VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS: charge graphs.")
        ] = None,
        engine_version: Annotated[str | None, typer.Option(help="Another release of vLLM, such as 0.27.1.")] = None,
        block_size: Annotated[int | None, typer.Option(min=1)] = None,
        kv_cache_memory: Annotated[
            str | None, typer.Option("--kv-cache-memory", "--kv-cache-memory-bytes", help="The pool: bytes or 40GiB.")
        ] = None,
        target: Annotated[
            str | None, typer.Option(help="tokens=N, max-model-len=N or concurrency=N: search the cheapest changes.")
        ] = None,
        config: Annotated[
            Path | None, typer.Option(help="config.json of the model, or the folder that holds it.")
        ] = None,
        gpu: Annotated[str | None, typer.Option(help="The card, such as H100-80GB.")] = None,
        total_memory: Annotated[str | None, typer.Option(help="What the driver reports: 79.19GiB or bytes.")] = None,
        sets: Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Add a fact.")] = None,
        startup: Annotated[str, typer.Option(help="Which start-up: its number from 1, or last.")] = "last",
        form: Annotated[str, typer.Option("--format", help="table, markdown or json.")] = "table",
        width: Annotated[int | None, typer.Option(min=40, max=400)] = None,
        ascii_only: Annotated[bool, typer.Option("--ascii", help="No characters beyond ASCII.")] = False,
    ) -> None:
        """Predict what other settings, or another release, would do to the pool of a start-up that has a log."""

        def ask() -> str:
            from reconstruct.change import Change

            change = Change(
                gpu_memory_utilization=gpu_memory_utilization, kv_cache_dtype=kv_cache_dtype, quantization=quantization,
                max_model_len=max_model_len,
                max_num_batched_tokens=max_num_batched_tokens, max_num_seqs=max_num_seqs,
                tensor_parallel_size=tensor_parallel_size, pipeline_parallel_size=pipeline_parallel_size,
                enforce_eager=enforce_eager, estimate_cudagraphs=_switch(estimate_cudagraphs),
                engine_version=engine_version, block_size=block_size, kv_cache_memory=_size(kv_cache_memory),
            )  # fmt: skip
            _check_format(form)
            from kvforensics.whatif import Ask

            question = Ask(target, config, gpu, _which(startup))
            return _what_if(log, change, question, _given(gpu, total_memory, sets or []), form, Look(width, ascii_only))

        raise typer.Exit(_answer(ask, out, complain))


def _register_compare(app: typer.Typer, out: Callable[[str], None], complain: Callable[[Exception], None]) -> None:
    @app.command("compare")
    def compare_command(
        logs: Annotated[list[str], typer.Argument(metavar="BEFORE AFTER [MORE...]", help="Two log files or more.")],
        total_memory: Annotated[str | None, typer.Option(help="Of all logs' cards: 79.19GiB or bytes.")] = None,
        gpu: Annotated[str | None, typer.Option(help="The card of all logs, such as H100-80GB.")] = None,
        startup: Annotated[str, typer.Option(help="Which start-up of each: its number from 1, or last.")] = "last",
        form: Annotated[str, typer.Option("--format", help="table, markdown or json.")] = "table",
        width: Annotated[int | None, typer.Option(min=40, max=400)] = None,
        ascii_only: Annotated[bool, typer.Option("--ascii", help="No characters beyond ASCII.")] = False,
    ) -> None:
        """Split the change of M, blocks and tokens between start-ups over what moved it."""

        def ask() -> str:
            _check_format(form)
            given = _given(gpu, total_memory, [])
            return _compared(logs, _which(startup), given, form, Look(width, ascii_only))

        raise typer.Exit(_answer(ask, out, complain))


def _answer(ask: Callable[[], str], out: Callable[[str], None], complain: Callable[[Exception], None]) -> ExitCode:
    """Write the answer; map what it may end in to an exit code."""
    from reconstruct.planner.errors import Unsupported

    try:
        out(ask())
    except expected() as fault:
        complain(fault)
        return code_of(fault)
    except Unsupported as refusal:
        complain(refusal)
        return ExitCode.NOTHING
    return ExitCode.ANSWERED


def _what_if(log: str, change: Change, question: Ask, given: tuple[Given, ...], form: str, look: Look) -> str:
    from kvforensics.whatif import what_if

    answer = what_if(log, change, question, given)
    if form == "json":
        from kvforensics.report import whatif_json

        return whatif_json.render(answer)
    from kvforensics.report.whatif_document import whatif_document

    return _people(whatif_document(answer, look), form, look)


def _compared(logs: list[str], which: str | int, given: tuple[Given, ...], form: str, look: Look) -> str:
    from kvforensics.comparison import compare

    answer = compare(logs, which, given)
    if form == "json":
        from kvforensics.report import compare_json

        return compare_json.render(answer)
    from kvforensics.report.compare_document import compare_document

    return _people(compare_document(answer, look), form, look)


def _people(document: Document, form: str, look: Look) -> str:
    from kvforensics.report import whatif_markdown, whatif_table

    if form == "markdown":
        return whatif_markdown.render((document,), look)
    return whatif_table.render((document,), look, colour=sys.stdout.isatty())


def _check_format(form: str) -> None:
    if form not in FORMATS:
        raise UsageFault(f"--format {form}: choose one of {', '.join(FORMATS)}")


def _which(startup: str) -> str | int:
    if startup == "last":
        return startup
    if startup.isdigit() and int(startup) > 0:
        return int(startup)
    raise UsageFault(f"--startup {startup}: write last or a number from 1")


def _switch(text: str | None) -> bool | None:
    if text is None:
        return None
    if text not in {"on", "off"}:
        raise UsageFault(f"--estimate-cudagraphs {text}: write on or off")
    return text == "on"


def _size(text: str | None) -> int | None:
    if text is None:
        return None
    from kvforensics.given import size

    return int(size(text).low or 0)


def _given(gpu: str | None, total: str | None, sets: list[str]) -> tuple[Given, ...]:
    if not (gpu or total or sets):
        return ()
    from kvforensics import given

    facts = [given.setting(text) for text in sets]
    facts += [given.total_memory(total)] if total else []
    facts += [given.gpu(gpu)] if gpu else []
    return tuple(facts)
