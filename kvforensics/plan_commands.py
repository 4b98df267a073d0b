"""The commands `plan` and `calibrate`."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations at run time
from typing import TYPE_CHECKING, Annotated

import typer

from kvforensics import choices, options
from kvforensics.errors import UsageFault
from kvforensics.output import Output, answered, output, text_of
from kvforensics.report.look import Look
from kvforensics.terminal import answer
from parsers.tuples import NamedTuple
from reconstruct.releases import RELEASES

if TYPE_CHECKING:
    from kvforensics.planning import Request

NEWEST = RELEASES[-1]


class _Sizes(NamedTuple):
    """Facts as they were written, with their units."""

    total: str | None
    used: str | None
    cache: str | None
    terms: tuple[str, ...]


def register(app: typer.Typer) -> None:
    """Add both commands to the command line."""
    app.command("plan")(plan_command)
    app.command("calibrate")(calibrate_command)


def plan_command(
    model: options.Model,
    gpu: Annotated[str, typer.Option(help="The card, such as H100-80GB.")],
    config: options.Config = None,
    count: Annotated[int | None, typer.Option(min=1, help="Cards there are.")] = None,
    tp: Annotated[int, typer.Option("--tp", "--tensor-parallel-size", min=1)] = 1,
    pp: Annotated[int, typer.Option("--pp", "--pipeline-parallel-size", min=1)] = 1,
    dp: Annotated[int, typer.Option("--dp", "--data-parallel-size", min=1)] = 1,
    dcp: Annotated[int, typer.Option("--dcp", "--decode-context-parallel-size", min=1)] = 1,
    expert_parallel: Annotated[bool, typer.Option("--enable-expert-parallel")] = False,
    gpu_memory_utilization: options.Utilization = None,
    max_model_len: Annotated[int | None, typer.Option(help="-1 fits it to the memory (0.14.0 on).")] = None,
    max_num_seqs: options.Count = None,
    max_num_batched_tokens: options.Count = None,
    block_size: options.Count = None,
    dtype: Annotated[str, typer.Option()] = "auto",
    kv_cache_dtype: Annotated[str, typer.Option()] = "auto",
    quantization: options.Quantization = None,
    engine_version: options.EngineVersion = None,
    enforce_eager: Annotated[bool, typer.Option("--enforce-eager")] = False,
    first_start: Annotated[
        bool | None,
        typer.Option("--first-start/--later-start", help="Graphs are compiled, or lie in the compile cache."),
    ] = None,
    kv_cache_memory: options.CacheMemory = None,
    enable_lora: Annotated[bool, typer.Option("--enable-lora")] = False,
    pooling: Annotated[bool, typer.Option("--pooling", help="An embedding or reward model.")] = False,
    offline: Annotated[bool, typer.Option("--offline", help="Started by the LLM class, not the server.")] = False,
    total_memory: options.TotalMemory = None,
    used_elsewhere: Annotated[str | None, typer.Option(help="What other processes hold on each card.")] = None,
    sets: Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="State a term.")] = None,
    scan: Annotated[list[str] | None, typer.Option(metavar="NAME=A,B", help="Vary an option; repeat for more.")] = None,
    form: options.Form = "table",
    brief: options.Brief = False,
    out: options.Out = None,
    no_redact: options.NoRedact = False,
    width: options.Width = None,
    ascii_only: options.AsciiOnly = False,
) -> None:
    """Predict the memory ledger of a launch before its first start, and say whether it starts."""
    from kvforensics.planning import Request

    request = Request(
        model, gpu, config, engine_version or NEWEST, count, tp, pp, dp, dcp, expert_parallel, gpu_memory_utilization,
        max_model_len, max_num_seqs, max_num_batched_tokens, block_size, dtype, kv_cache_dtype, quantization,
        enforce_eager, compiles=first_start, lora=enable_lora, pooling=pooling, offline=offline,
    )  # fmt: skip
    sizes = _Sizes(total_memory, used_elsewhere, kv_cache_memory, tuple(sets or ()))
    look = Look(width, ascii_only, redact=not no_redact)
    raise answered(
        lambda: output(form, look, out, brief=brief), lambda asked: _planned(_stated(request, sizes), scan or [], asked)
    )


def calibrate_command(
    logs: Annotated[list[Path], typer.Argument(metavar="LOG...", help="Logs, or folders of them.")],
    gpu: Annotated[str | None, typer.Option(help="The card of logs that name none.")] = None,
    configs: Annotated[Path | None, typer.Option(help="A folder of configs, named org--model.json.")] = None,
    form: Annotated[str, typer.Option("--format", help="table or markdown.")] = "table",
    width: options.Width = None,
    ascii_only: options.AsciiOnly = False,
) -> None:
    """Hold predictions against logs: predicted, measured, error of each term, and the constants refitted."""

    def ask() -> str:
        from kvforensics.calibration import calibrate
        from kvforensics.report.plan_table import render_calibration

        choices.check_choice("--format", form, ("table", "markdown"))
        found = calibrate(logs, gpu, configs)
        return render_calibration(found, Look(width, ascii_only), markdown=form == "markdown")

    raise answer(ask)


def _stated(request: Request, sizes: _Sizes) -> Request:
    """Add the facts that are written with units. Raises UsageFault for one that is no size."""
    if not any(sizes):
        return request
    from kvforensics.given import setting, size
    from reconstruct.predict.scenario import Fixed

    facts = tuple(Fixed(fact.name, fact.interval) for fact in map(setting, sizes.terms))
    if sizes.total:
        request = request._replace(total_memory=size(sizes.total))
    if sizes.used:
        request = request._replace(other_use=int(size(sizes.used).high or 0))
    if sizes.cache:
        request = request._replace(cache_bytes=int(size(sizes.cache).low or 0))
    return request._replace(facts=facts)


def _planned(request: Request, scan: list[str], asked: Output) -> str:
    from kvforensics import planning
    from kvforensics.report import plan_document, plan_json, plan_table

    if scan:
        if asked.brief:
            raise UsageFault("--brief: a scan has no short form; leave one of the two out")
        rows = planning.scanned(request, scan)
        if asked.form == "table":
            return plan_table.render_scan(request, rows, asked.look)
        return text_of(
            lambda: (plan_document.scan_document(request, rows, asked.look),),
            lambda: plan_json.render_scan(request, rows),
            asked,
        )
    found = planning.plan(request)
    if asked.form == "table" and not asked.brief:  # rich would take longer than the plan itself
        return plan_table.render(found, asked.look)
    return text_of(lambda: (plan_document.plan_document(found, asked.look),), lambda: plan_json.render(found), asked)
