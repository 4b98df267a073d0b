"""`kvforensics explain`: logs in, reports out. Knows nothing of typer: its import adds a fifth to a run."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from kvforensics.choices import check_choice, chosen_startup, facts_given
from kvforensics.errors import ExitCode, UsageFault, code_of, expected
from kvforensics.output import FORMATS
from kvforensics.report.look import Look
from kvforensics.terminal import complain, write
from parsers.tuples import NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

    from kvforensics.explanation import Report
    from reconstruct.facts import Given

NEVER = "never"


class Request(NamedTuple):
    """What was asked for, in the command line's own words."""

    logs: tuple[str, ...]
    form: str = "table"
    brief: bool = False
    out: Path | None = None
    redact: bool = True
    width: int | None = None
    ascii_only: bool = False
    all_ranks: bool = False
    startup: str = "last"
    gpu: str | None = None
    total_memory: str | None = None
    sets: tuple[str, ...] = ()
    config: Path | None = None
    fetch: bool = False
    fail_on: str = NEVER


def run(asked: Request) -> ExitCode:
    """Write the report of each log, or the line that says why there is none; give the worst code."""
    try:
        check_choice("--format", asked.form, FORMATS)
        check_choice("--fail-on", asked.fail_on, (*_severities(), NEVER))
        given = facts_given(asked.gpu, asked.total_memory, asked.sets)
        startup = chosen_startup(asked.startup, ("last", "all"))
        look = Look(asked.width, asked.ascii_only, asked.all_ranks, startup, redact=asked.redact)
        _check_output(asked)
    except UsageFault as error:
        complain(error)
        return ExitCode.USAGE
    worst = ExitCode.ANSWERED
    texts: list[str] = []
    for log in asked.logs:
        try:
            report = _report(log, given, asked)
            text = _rendered(report, asked, look)
            if asked.out:
                texts.append(text)
            else:
                write(text)
            worst = max(worst, _found(report, asked.fail_on))
        except expected() as error:
            complain(error)
            worst = max(worst, code_of(error))
    return max(worst, _written(asked.out, texts)) if asked.out and texts else worst


def _check_output(asked: Request) -> None:
    """Refuse what cannot be written before anything is read. Raises UsageFault."""
    if asked.brief or asked.form not in {"table", "markdown", "json"}:
        from kvforensics.report import formats

        formats.check(asked.form, len(asked.logs), brief=asked.brief)
    if asked.out:
        from kvforensics.output_file import check_writable

        check_writable(asked.out)


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


def _report(log: str, given: tuple[Given, ...], asked: Request) -> Report:
    from kvforensics.explanation import explain
    from reconstruct.planner.config_sources import UnreadableConfig

    try:
        return explain(log, given, asked.config, fetch=asked.fetch)
    except UnreadableConfig as error:
        raise UsageFault(f"--config: {error}") from None


def _rendered(report: Report, asked: Request, look: Look) -> str:
    if asked.brief:
        from kvforensics.report.formats import render_brief

        return render_brief(report, asked.form, look)
    if asked.form == "json":
        from kvforensics.report.json import render

        return render(report, mask=look.redact)
    if asked.form == "markdown":
        from kvforensics.report.markdown import render as markdown

        return markdown(report, look)
    if asked.form != "table":
        from kvforensics.report.formats import render as other

        return other(report, asked.form, look)
    from kvforensics.report.table import render as table

    return table(report, look, colour=asked.out is None and sys.stdout.isatty())
