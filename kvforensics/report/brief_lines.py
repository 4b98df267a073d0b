"""Few lines for a ticket's first comment, in each form that takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvforensics.report.wording import ascii_only
from parsers.tuples import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kvforensics.report.look import Look

FORMATS = ("table", "markdown", "jira", "slack")


class BriefLine(NamedTuple):
    """One line."""

    label: str
    text: str


def render(answers: Iterable[Iterable[BriefLine]], form: str, look: Look) -> str:
    """Give the lines of each answer in one of FORMATS."""
    text = "\n\n".join("\n".join(_line(line, form) for line in lines) for lines in answers) + "\n"
    return ascii_only(text) if look.ascii_only else text


def _line(line: BriefLine, form: str) -> str:
    if form == "markdown":
        from kvforensics.report.markup_markdown import escaped

        return f"- **{line.label}**: {escaped(line.text)}"
    if form == "jira":
        from kvforensics.report.markup_jira import bold, escaped

        return f"* {bold(line.label)}: {escaped(line.text)}"
    if form == "slack":
        from kvforensics.report.markup_slack import bold, escaped

        return f"• {bold(line.label)}: {escaped(line.text)}"
    return f"{line.label:9} {line.text}"
