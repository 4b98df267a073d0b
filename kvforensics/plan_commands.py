"""The commands `plan` and `calibrate`: read options, call, hand the text to the caller's output."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations at run time
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kvforensics.errors import ExitCode, UsageFault
from kvforensics.report.look import Look
from reconstruct.releases import RELEASES

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvforensics.planning import Request

PLAN_FORMATS = ("table", "json")
NEWEST = RELEASES[-1]


class _Sizes(NamedTuple):
    """Facts as they were written, with their units."""

    total: str | None
    used: str | None
    cache: str | None
    terms: tuple[str, ...]


def register(app: typer.Typer, out: Callable[[str], None], complain: Callable[[Exception], None]) -> None:
    """Add both commands to the command line; `out` writes an answer, `complain` an error in one line."""
    _register_plan(app, out, complain)
    _register_calibrate(app, out, complain)


def _register_plan(app: typer.Typer, out: Callable[[str], None], complain: Callable[[Exception], None]) -> None:
    @app.command("plan")
    def plan_command(
        model: Annotated[
            str, typer.Argument(metavar="MODEL", help="A model's id, its config.json, or a folder with one.")
        ],
        gpu: Annotated[str, typer.Option(help="The card, such as H100-80GB.")],
        config: Annotated[
            Path | None, typer.Option(help="config.json of the model, or the folder that holds it.")
        ] = None,
        count: Annotated[int | None, typer.Option(min=1, help="Cards there are.")] = None,
        tp: Annotated[int, typer.Option("--tp", "--tensor-parallel-size", min=1)] = 1,
        pp: Annotated[int, typer.Option("--pp", "--pipeline-parallel-size", min=1)] = 1,
        dp: Annotated[int, typer.Option("--dp", "--data-parallel-size", min=1)] = 1,
        dcp: Annotated[int, typer.Option("--dcp", "--decode-context-parallel-size", min=1)] = 1,
        expert_parallel: Annotated[bool, typer.Option("--enable-expert-parallel")] = False,
        gpu_memory_utilization: Annotated[float | None, typer.Option(min=0.01, max=1.0)] = None,
        max_model_len: Annotated[int | None, typer.Option(help="-1 fits it to the memory (0.14.0 on).")] = None,
        max_num_seqs: Annotated[int | None, typer.Option(min=1)] = None,
        max_num_batched_tokens: Annotated[int | None, typer.Option(min=1)] = None,
        block_size: Annotated[int | None, typer.Option(min=1)] = None,
        dtype: Annotated[str, typer.Option()] = "auto",
        kv_cache_dtype: Annotated[str, typer.Option()] = "auto",
        quantization: Annotated[str | None, typer.Option()] = None,
        engine_version: Annotated[
            str | None, typer.Option(help="A release of vLLM; the newest known by default.")
        ] = None,
        enforce_eager: Annotated[bool, typer.Option("--enforce-eager")] = False,
        kv_cache_memory: Annotated[str | None, typer.Option(help="The pool in bytes or with a unit.")] = None,
        enable_lora: Annotated[bool, typer.Option("--enable-lora")] = False,
        pooling: Annotated[bool, typer.Option("--pooling", help="An embedding or reward model.")] = False,
        offline: Annotated[bool, typer.Option("--offline", help="Started by the LLM class, not the server.")] = False,
        total_memory: Annotated[str | None, typer.Option(help="What the driver reports: 79.19GiB or bytes.")] = None,
        used_elsewhere: Annotated[str | None, typer.Option(help="What other processes hold on each card.")] = None,
        sets: Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="State a term.")] = None,
        scan: Annotated[
            list[str] | None, typer.Option(metavar="NAME=A,B", help="Vary an option; repeat for more.")
        ] = None,
        form: Annotated[str, typer.Option("--format", help="table or json.")] = "table",
        width: Annotated[int | None, typer.Option(min=40, max=400)] = None,
        ascii_only: Annotated[bool, typer.Option("--ascii", help="No characters beyond ASCII.")] = False,
    ) -> None:
        """Predict the memory ledger of a launch before its first start, and say whether it starts."""
        from kvforensics.planning import Request

        request = Request(
            model, gpu, config, engine_version or NEWEST, count, tp, pp, dp, dcp, expert_parallel, gpu_memory_utilization,
            max_model_len, max_num_seqs, max_num_batched_tokens, block_size, dtype, kv_cache_dtype, quantization,
            enforce_eager, lora=enable_lora, pooling=pooling, offline=offline,
        )  # fmt: skip
        sizes = _Sizes(total_memory, used_elsewhere, kv_cache_memory, tuple(sets or ()))

        def ask() -> str:
            return _planned(_stated(request, sizes), scan or [], form, Look(width, ascii_only))

        raise typer.Exit(_answer(ask, out, complain))


def _register_calibrate(app: typer.Typer, out: Callable[[str], None], complain: Callable[[Exception], None]) -> None:
    @app.command("calibrate")
    def calibrate_command(
        logs: Annotated[list[Path], typer.Argument(metavar="LOG...", help="Logs, or folders of them.")],
        gpu: Annotated[str | None, typer.Option(help="The card of logs that name none.")] = None,
        configs: Annotated[Path | None, typer.Option(help="A folder of configs, named org--model.json.")] = None,
        form: Annotated[str, typer.Option("--format", help="table or markdown.")] = "table",
        width: Annotated[int | None, typer.Option(min=40, max=400)] = None,
        ascii_only: Annotated[bool, typer.Option("--ascii", help="No characters beyond ASCII.")] = False,
    ) -> None:
        """Hold predictions against logs: predicted, measured, error of each term, and the constants refitted."""

        def ask() -> str:
            from kvforensics.calibration import calibrate
            from kvforensics.report.plan_table import render_calibration

            _check_form(form, ("table", "markdown"))
            found = calibrate(logs, gpu, configs)
            return render_calibration(found, Look(width, ascii_only), markdown=form == "markdown")

        raise typer.Exit(_answer(ask, out, complain))


def _answer(ask: Callable[[], str], out: Callable[[str], None], complain: Callable[[Exception], None]) -> ExitCode:
    """Write the answer; map what it may end in to an exit code."""
    from reconstruct.cards import UnknownCard
    from reconstruct.planner.errors import BadSetting, Unsupported

    try:
        out(ask())
    except (UsageFault, BadSetting, UnknownCard) as fault:
        complain(fault)
        return ExitCode.USAGE
    except Unsupported as refusal:
        complain(refusal)
        return ExitCode.NOTHING
    return ExitCode.ANSWERED


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


def _planned(request: Request, scan: list[str], form: str, look: Look) -> str:
    from kvforensics import planning

    _check_form(form, PLAN_FORMATS)
    if form == "json":
        from kvforensics.report import plan_json

        if scan:
            return plan_json.render_scan(request, planning.scanned(request, scan))
        return plan_json.render(planning.plan(request))
    from kvforensics.report import plan_table

    if scan:
        return plan_table.render_scan(planning.scanned(request, scan), look)
    return plan_table.render(planning.plan(request), look)


def _check_form(form: str, choices: tuple[str, ...]) -> None:
    if form not in choices:
        raise UsageFault(f"--format {form}: choose one of {', '.join(choices)}")
