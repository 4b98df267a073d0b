"""The command `blocks`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kvforensics import options  # noqa: TC001 - typer reads the annotations at run time
from kvforensics.errors import UsageFault
from kvforensics.output import Output, answered, output, text_of
from kvforensics.report.look import Look
from reconstruct.releases import RELEASES

if TYPE_CHECKING:
    from reconstruct.planner.launch import Launch

AUTO = "auto"
METHODS_HELP = "A draft as METHOD:TOKENS, such as mtp:1 or ngram:3."


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("blocks")(blocks_command)


def blocks_command(
    model: options.Model,
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
    max_num_seqs: options.Count = None,
    max_num_batched_tokens: options.Count = None,
    block_size: options.Count = None,
    memory: Annotated[
        str | None, typer.Option(help="What one rank has for the cache: 41.73GiB (as rounded) or bytes.")
    ] = None,
    num_gpu_blocks_override: options.Count = None,
    no_hybrid: Annotated[bool, typer.Option("--disable-hybrid-kv-cache-manager")] = False,
    prefix_caching: Annotated[bool | None, typer.Option("--enable-prefix-caching/--no-enable-prefix-caching")] = None,
    draft: Annotated[str | None, typer.Option("--draft", metavar="METHOD:TOKENS", help=METHODS_HELP)] = None,
    engine_version: options.EngineVersion = None,
    device: Annotated[str, typer.Option(help="The card, which decides the attention backend.")] = "H100",
    form: options.Form = "table",
    brief: options.Brief = False,
    out: options.Out = None,
    no_redact: options.NoRedact = False,
    width: options.Width = None,
    ascii_only: options.AsciiOnly = False,
    fetch: options.Fetch = False,
) -> None:
    """Plan the KV cache of a model: its layers, groups, bytes per block, and what a memory holds."""
    batched = {} if max_num_batched_tokens is None else {"max_num_batched_tokens": max_num_batched_tokens}

    def ask(asked: Output) -> str:
        launch = _launch(
            batched,
            engine_version=engine_version or RELEASES[-1], tensor_parallel_size=tp, pipeline_parallel_size=pp,
            decode_context_parallel_size=dcp, dtype=dtype, kv_cache_dtype=kv_cache_dtype,
            max_model_len=_length(max_model_len), max_num_seqs=max_num_seqs, block_size=block_size,
            num_gpu_blocks_override=num_gpu_blocks_override, disable_hybrid_kv_cache_manager=no_hybrid,
            enable_prefix_caching=prefix_caching, speculative_config=_draft(draft), device=device,
        )  # fmt: skip
        return _planned(model, launch, memory, dp, asked, fetch=fetch)

    look = Look(width, ascii_only, redact=not no_redact)
    raise answered(lambda: output(form, look, out, brief=brief), ask)


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


def _launch(batched: dict[str, int], **settings: object) -> Launch:
    from reconstruct.planner.errors import BadSetting, Unsupported
    from reconstruct.planner.launch import Launch
    from reconstruct.planner.rules import release_of

    try:
        release_of(str(settings["engine_version"]))
        return Launch.from_mapping({**settings, **batched})
    except (BadSetting, Unsupported) as error:
        raise UsageFault(str(error)) from None


def _planned(model: str, launch: Launch, memory: str | None, dp: int, asked: Output, *, fetch: bool) -> str:
    from kvforensics.blocks import blocks
    from kvforensics.given import size
    from kvforensics.report import blocks_document, blocks_json

    found = blocks(model, launch, None if memory is None else size(memory), fetch=fetch)
    return text_of(
        lambda: (blocks_document.blocks_document(found, dp, asked.look),), lambda: blocks_json.render(found, dp), asked
    )
