"""The command `blocks`: read options, call, hand the text to the caller's output."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from kvforensics.errors import ExitCode, UsageFault
from kvforensics.report.look import Look
from reconstruct.releases import RELEASES

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvforensics.blocks import Blocks
    from reconstruct.planner.launch import Launch

FORMATS = ("table", "markdown", "json")
AUTO = "auto"
METHODS_HELP = "A draft as METHOD:TOKENS, such as mtp:1 or ngram:3."


def register(app: typer.Typer, out: Callable[[str], None], complain: Callable[[Exception], None]) -> None:
    """Add the command to the command line; `out` writes an answer, `complain` an error in one line."""

    @app.command("blocks")
    def blocks_command(
        model: Annotated[
            str, typer.Argument(metavar="MODEL", help="A model's id, its config.json, or a folder with one.")
        ],
        tp: Annotated[int, typer.Option("--tp", "--tensor-parallel-size", min=1)] = 1,
        pp: Annotated[int, typer.Option("--pp", "--pipeline-parallel-size", min=1)] = 1,
        dp: Annotated[
            int, typer.Option("--dp", "--data-parallel-size", min=1, help="Engines; each has a cache of its own.")
        ] = 1,
        dcp: Annotated[int, typer.Option("--dcp", "--decode-context-parallel-size", min=1)] = 1,
        kv_cache_dtype: Annotated[str, typer.Option(help="auto, fp8, bfloat16, ...")] = AUTO,
        dtype: Annotated[str, typer.Option(help="The model's: auto, bfloat16, float16, float32.")] = AUTO,
        max_model_len: Annotated[
            str | None, typer.Option(help="Tokens; auto fits it to the memory (0.14.0 on). The model's own if unset.")
        ] = None,
        max_num_seqs: Annotated[int | None, typer.Option(min=1)] = None,
        max_num_batched_tokens: Annotated[int | None, typer.Option(min=1)] = None,
        block_size: Annotated[int | None, typer.Option(min=1)] = None,
        memory: Annotated[
            str | None, typer.Option(help="What one rank has for the cache: 41.73GiB (as rounded) or bytes.")
        ] = None,
        num_gpu_blocks_override: Annotated[int | None, typer.Option(min=1)] = None,
        no_hybrid: Annotated[bool, typer.Option("--disable-hybrid-kv-cache-manager")] = False,
        prefix_caching: Annotated[
            bool | None, typer.Option("--enable-prefix-caching/--no-enable-prefix-caching")
        ] = None,
        draft: Annotated[str | None, typer.Option("--draft", metavar="METHOD:TOKENS", help=METHODS_HELP)] = None,
        engine_version: Annotated[
            str | None, typer.Option(help="A release of vLLM; the newest known by default.")
        ] = None,
        device: Annotated[str, typer.Option(help="The card, which decides the attention backend.")] = "H100",
        form: Annotated[str, typer.Option("--format", help="table, markdown or json.")] = "table",
        width: Annotated[int | None, typer.Option(min=40, max=400)] = None,
        ascii_only: Annotated[bool, typer.Option("--ascii", help="No characters beyond ASCII.")] = False,
        fetch: Annotated[bool, typer.Option("--fetch", help="Ask the Hugging Face hub for a config.")] = False,
    ) -> None:
        """Plan the KV cache of a model: its layers, groups, bytes per block, and what a memory holds."""

        def ask() -> str:
            if form not in FORMATS:
                raise UsageFault(f"--format {form}: choose one of {', '.join(FORMATS)}")
            settings: dict[str, object] = {
                "engine_version": engine_version or RELEASES[-1],
                "tensor_parallel_size": tp,
                "pipeline_parallel_size": pp,
                "decode_context_parallel_size": dcp,
                "dtype": dtype,
                "kv_cache_dtype": kv_cache_dtype,
                "max_model_len": _length(max_model_len),
                "max_num_seqs": max_num_seqs,
                "block_size": block_size,
                "num_gpu_blocks_override": num_gpu_blocks_override,
                "disable_hybrid_kv_cache_manager": no_hybrid,
                "enable_prefix_caching": prefix_caching,
                "speculative_config": _draft(draft),
                "device": device,
            }
            if max_num_batched_tokens is not None:
                settings["max_num_batched_tokens"] = max_num_batched_tokens
            return _answer(model, _launch(settings), memory, dp, form, Look(width, ascii_only), fetch=fetch)

        raise typer.Exit(_code(ask, out, complain))


def _code(ask: Callable[[], str], out: Callable[[str], None], complain: Callable[[Exception], None]) -> ExitCode:
    """Write the answer; map what it may end in to an exit code."""
    from reconstruct.planner.errors import Unsupported

    try:
        out(ask())
    except UsageFault as fault:
        complain(fault)
        return ExitCode.USAGE
    except Unsupported as refusal:
        complain(refusal)
        return ExitCode.NOTHING
    return ExitCode.ANSWERED


def _length(text: str | None) -> int | None:
    """Read --max-model-len: tokens, with k or K as vLLM takes them, or auto."""
    from reconstruct.planner.launch import AUTO_FIT

    if text is None:
        return None
    if text in {AUTO, str(AUTO_FIT)}:
        return AUTO_FIT
    unit = {"k": 1000, "K": 1024, "m": 1000**2, "M": 1024**2}.get(text[-1:], 1)
    digits = text if unit == 1 else text[:-1]
    if not digits.isdecimal() or not int(digits):
        raise UsageFault(f"--max-model-len {text}: write tokens (32768, 32k) or auto")
    return int(digits) * unit


def _draft(text: str | None) -> dict[str, object] | None:
    if text is None:
        return None
    method, _, tokens = text.partition(":")
    if not method or not (tokens or "1").isdecimal() or tokens == "0":
        raise UsageFault(f"--draft {text}: write METHOD:TOKENS, such as mtp:1")
    return {"method": method, "num_speculative_tokens": int(tokens or 1)}


def _launch(settings: dict[str, object]) -> Launch:
    from reconstruct.planner.errors import BadSetting, Unsupported
    from reconstruct.planner.launch import Launch
    from reconstruct.planner.rules import release_of

    try:
        release_of(str(settings["engine_version"]))
        return Launch.from_mapping(settings)
    except (BadSetting, Unsupported) as error:
        raise UsageFault(str(error)) from None


def _answer(model: str, launch: Launch, memory: str | None, dp: int, form: str, look: Look, *, fetch: bool) -> str:
    from kvforensics.blocks import blocks
    from kvforensics.given import size

    found = blocks(model, launch, None if memory is None else size(memory), fetch=fetch)
    if form == "json":
        from kvforensics.report.blocks_json import render

        return render(found, dp)
    return _people(found, dp, form, look)


def _people(found: Blocks, dp: int, form: str, look: Look) -> str:
    from kvforensics.report import whatif_markdown, whatif_table
    from kvforensics.report.blocks_document import blocks_document

    document = blocks_document(found, dp)
    if form == "markdown":
        return whatif_markdown.render((document,), look)
    return whatif_table.render((document,), look, colour=sys.stdout.isatty())
