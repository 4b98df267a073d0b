"""The command line, and the commands around a log alone. Commands are thin: read options, call, hand the text on."""

from __future__ import annotations

import functools
import gc
import sys
from typing import TYPE_CHECKING, Annotated, cast

import typer

from kvforensics import options
from kvforensics.errors import ExitCode, UsageFault, code_of, expected
from kvforensics.report.look import Look
from kvforensics.terminal import answer, complain, ended, open_closed_streams, write

if TYPE_CHECKING:
    from pathlib import Path

    from kvforensics.explanation import Report
    from reconstruct.rebuild import Given

app = typer.Typer(
    name="kvforensics",
    help="Rebuild the KV-cache memory ledger behind a vLLM start-up log.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

MISUSE = cast("type[Exception]", typer.BadParameter.__mro__[1])
"""click's UsageError: releases of typer differ in whose copy of click they raise."""

FORMATS = ("table", "markdown", "json", "html", "svg", "jira", "slack", "csv")
NEVER = "never"
GARBAGE_THRESHOLD = 100_000
"""Young objects that may stand before cycles are looked for: almost all here live to the end, and hold no cycles."""


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    if version:
        from kvforensics import __version__

        write(__version__)
        raise typer.Exit
    if context.invoked_subcommand is None:
        raise typer.Exit


@app.command()
def explain(
    logs: Annotated[list[str], typer.Argument(metavar="LOG...", help=options.LOG_HELP)],
    form: Annotated[str, typer.Option("--format", help=f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]}.")] = "table",
    brief: Annotated[bool, typer.Option("--brief", help="Five lines for a ticket's first comment.")] = False,
    out: options.Out = None,
    no_redact: Annotated[
        bool, typer.Option("--no-redact", help="Keep the names, addresses and keys that are masked in what is quoted.")
    ] = False,
    width: options.Width = None,
    ascii_only: options.AsciiOnly = False,
    all_ranks: Annotated[
        bool, typer.Option("--all-ranks", help="A waterfall for every rank, not only the binding one.")
    ] = False,
    startup: Annotated[str, typer.Option(help="Which start-up: its number from 1, last or all.")] = "last",
    gpu: options.Gpu = None,
    total_memory: options.TotalMemory = None,
    sets: options.Sets = None,
    config: options.Config = None,
    fetch: options.Fetch = False,
    fail_on: Annotated[
        str, typer.Option(help="End with code 1 at a finding this bad: error, warning, note or never.")
    ] = NEVER,
) -> None:
    """Rebuild the ledger of each start-up in LOG and show where the memory went."""
    try:
        options.check_choice("--format", form, FORMATS)
        options.check_choice("--fail-on", fail_on, (*_severities(), NEVER))
        given = options.facts_given(gpu, total_memory, sets)
        look = Look(
            width, ascii_only, all_ranks, options.chosen_startup(startup, ("last", "all")), redact=not no_redact
        )
        _check_output(form, out, len(logs), brief=brief)
    except UsageFault as error:
        complain(error)
        raise typer.Exit(ExitCode.USAGE) from None
    worst = ExitCode.ANSWERED
    texts: list[str] = []
    for log in logs:
        try:
            report = _report(log, given, config, fetch=fetch)
            text = _brief(report, form, look) if brief else _rendered(report, form, look, colour=_coloured(out))
            if out:
                texts.append(text)
            else:
                write(text)
            worst = max(worst, _found(report, fail_on))
        except expected() as error:
            complain(error)
            worst = max(worst, code_of(error))
    if out and texts:
        worst = max(worst, _written(out, texts))
    raise typer.Exit(worst)


def _check_output(form: str, out: Path | None, logs: int, *, brief: bool) -> None:
    """Refuse what cannot be written before anything is read. Raises UsageFault."""
    if brief or form not in {"table", "markdown", "json"}:
        from kvforensics.report import formats

        formats.check(form, logs, brief=brief)
    if out:
        from kvforensics.output_file import check_writable

        check_writable(out)


def _coloured(out: Path | None) -> bool:
    return out is None and sys.stdout.isatty()


def _written(out: Path, texts: list[str]) -> ExitCode:
    """Put the reports into one file; say in one line why it cannot be written."""
    from kvforensics.output_file import write_whole

    try:
        write_whole(out, "\n".join(text.removesuffix("\n") for text in texts))
    except UsageFault as error:
        complain(error)
        return ExitCode.USAGE
    return ExitCode.ANSWERED


def _severities() -> tuple[str, ...]:
    from kvforensics.findings.finding import SEVERITIES

    return SEVERITIES


def _found(report: Report, fail_on: str) -> ExitCode:
    """Give FOUND where a finding is at least as bad as asked."""
    if fail_on == NEVER:
        return ExitCode.ANSWERED
    bad = _severities()[: _severities().index(fail_on) + 1]
    hit = any(f.severity in bad for verdict in report.verdicts for f in verdict.findings)
    return ExitCode.FOUND if hit else ExitCode.ANSWERED


def _report(log: str, given: tuple[Given, ...], config: Path | None, *, fetch: bool) -> Report:
    from kvforensics.explanation import explain as rebuild
    from reconstruct.planner.config_sources import UnreadableConfig

    try:
        return rebuild(log, given, config, fetch=fetch)
    except UnreadableConfig as error:
        raise UsageFault(f"--config: {error}") from None


def _brief(report: Report, form: str, look: Look) -> str:
    from kvforensics.report.formats import render_brief

    return render_brief(report, form, look)


def _rendered(report: Report, form: str, look: Look, *, colour: bool) -> str:
    if form == "json":
        from kvforensics.report.json import render

        return render(report, mask=look.redact)
    if form == "markdown":
        from kvforensics.report.markdown import render as markdown

        return markdown(report, look)
    if form != "table":
        from kvforensics.report.formats import render as other

        return other(report, form, look)
    from kvforensics.report.table import render as table

    return table(report, look, colour=colour)


@app.command()
def redact(
    log: options.Log,
    out: options.Out = None,
) -> None:
    """Write a copy of LOG to share: no keys, users or machines in it, every line in its place, explained alike."""
    raise typer.Exit(ended(lambda: _redacted(log, out)))


def _redacted(log: str, out: Path | None) -> ExitCode:
    from kvforensics.output_file import check_writable, write_pieces
    from kvforensics.redacting import shareable
    from parsers.source import open_source

    if out:
        check_writable(out)
    source = open_source(log)
    if out:
        write_pieces(out, shareable(source.chunks()))
    else:
        sys.stdout.flush()
        for piece in shareable(source.chunks()):
            sys.stdout.buffer.write(piece)
    if source.damage:
        complain(ValueError(f"{source.name}: {source.damage}"))
    return ExitCode.ANSWERED


@app.command()
def findings(
    identifier: Annotated[str | None, typer.Argument(metavar="[ID]", help="One finding; without it, all.")] = None,
) -> None:
    """List what the tool can find wrong, or describe one finding."""
    from kvforensics.findings import documentation

    raise answer(lambda: documentation.page(identifier) if identifier else documentation.listing())


@app.command()
def lines(
    engine_version: Annotated[str | None, typer.Option(help="Only what this release prints, such as 0.19.1.")] = None,
) -> None:
    """List the log lines that are understood, and the releases that print them."""
    from kvforensics.findings import documentation

    raise answer(lambda: documentation.line_kinds(engine_version))


@functools.cache
def whole_app() -> typer.Typer:
    """Give the application with every command; `explain` alone starts without them, for it must be quick."""
    from kvforensics import blocks_commands, change_commands, plan_commands, probe_commands

    for commands in (blocks_commands, change_commands, plan_commands, probe_commands):
        commands.register(app)
    return app


def main() -> None:
    """Run the command line; end with the codes of kvforensics.errors."""
    gc.set_threshold(GARBAGE_THRESHOLD)
    open_closed_streams()
    try:
        code = (app if sys.argv[1:2] == ["explain"] else whole_app())(standalone_mode=False)
    except MISUSE as error:
        code = _misused(error)
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    raise SystemExit(code)


def _misused(error: Exception) -> ExitCode:
    """Say in one line what is wrong with the options; without any, show the help."""
    if type(error).__name__ == "NoArgsIsHelpError":
        sys.stderr.write(f"{error}\n")
        return ExitCode.USAGE
    context = getattr(error, "ctx", None)
    said = error.format_message() if hasattr(error, "format_message") else str(error)
    complain(UsageFault(f"{said.rstrip('.')}; see {context.command_path if context else 'kvforensics'} --help"))
    return ExitCode.USAGE
