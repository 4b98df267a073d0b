"""The commands, and those around a log alone in full. Commands are thin: read options, call, hand the text on."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Annotated, cast

import typer

from kvforensics import explaining, options
from kvforensics.errors import ExitCode, UsageFault
from kvforensics.explaining import NEVER, Request
from kvforensics.terminal import answer, complain, ended, write

if TYPE_CHECKING:
    from pathlib import Path

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
    form: options.Form = "table",
    brief: options.Brief = False,
    out: options.Out = None,
    no_redact: options.NoRedact = False,
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
    asked = Request(
        tuple(logs), form, brief, out, not no_redact, width, ascii_only, all_ranks, startup, gpu, total_memory,
        tuple(sets or ()), config, fetch, fail_on,
    )  # fmt: skip
    raise typer.Exit(explaining.run(asked))


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


def run() -> int:
    """Run what the command line asks for; give the exit code."""
    try:
        return int((app if sys.argv[1:2] == ["explain"] else whole_app())(standalone_mode=False) or 0)
    except MISUSE as error:
        return _misused(error)
    except typer.Abort:
        return ExitCode.INTERRUPTED


def _misused(error: Exception) -> ExitCode:
    """Say in one line what is wrong with the options; without any, show the help."""
    if type(error).__name__ == "NoArgsIsHelpError":
        sys.stderr.write(f"{error}\n")
        return ExitCode.USAGE
    context = getattr(error, "ctx", None)
    said = error.format_message() if hasattr(error, "format_message") else str(error)
    complain(UsageFault(f"{said.rstrip('.')}; see {context.command_path if context else 'kvforensics'} --help"))
    return ExitCode.USAGE
