"""Which renderer writes which form; each is imported when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from kvforensics.errors import UsageFault
from kvforensics.report import brief_lines

if TYPE_CHECKING:
    from kvforensics.explanation import Report
    from kvforensics.report.look import Look

ALONE = ("html", "svg")
"""Forms of which one file holds one log."""


def check(form: str, logs: int, *, brief: bool) -> None:
    """Refuse what no file can hold, before a log is read. Raises UsageFault."""
    if brief and form not in brief_lines.FORMATS:
        raise UsageFault(f"--brief: not with --format {form}; choose one of {', '.join(brief_lines.FORMATS)}")
    if form in ALONE and logs > 1:
        raise UsageFault(f"--format {form}: one file holds one log; call it once for each of the {logs}")


def render(report: Report, form: str, look: Look) -> str:
    """Write a report in one of the forms that are neither table, Markdown nor JSON.

    Raises UsageFault where `look` asks for a start-up that is not there.
    """
    return str(import_module(f"kvforensics.report.{form}").render(report, look))


def render_brief(report: Report, form: str, look: Look) -> str:
    """Write five lines for each start-up. Raises UsageFault where `look` asks for one that is not there."""
    from kvforensics.report.brief import briefs

    return brief_lines.render(briefs(report, look), form, look)
