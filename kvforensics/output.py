"""Where an answer goes and in which form: what the commands that answer with documents share."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from kvforensics.choices import check_choice
from kvforensics.errors import ExitCode
from kvforensics.terminal import ended, write
from parsers.tuples import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import typer

    from kvforensics.report.document import Document
    from kvforensics.report.look import Look

FORMATS = ("table", "markdown", "json", "html", "svg", "jira", "slack", "csv")


class Output(NamedTuple):
    """What was asked of an answer's form. file: None for stdout. brief: a few lines instead of the whole."""

    form: str
    look: Look
    file: Path | None = None
    brief: bool = False


def output(form: str, look: Look, file: Path | None = None, *, brief: bool = False) -> Output:
    """Settle where an answer goes before anything is begun. Raises UsageFault for what cannot be written."""
    check_choice("--format", form, FORMATS)
    if brief:
        from kvforensics.report.formats import check

        check(form, 1, brief=True)
    if file is not None:
        from kvforensics.output_file import check_writable

        check_writable(file)
    return Output(form, look, file, brief)


def text_of(documents: Callable[[], Sequence[Document]], as_json: Callable[[], str], asked: Output) -> str:
    """Give an answer's text; only what its form needs is laid out."""
    if asked.form == "json":
        return as_json()
    if asked.brief:
        from kvforensics.report import brief_lines

        return brief_lines.render((document.brief for document in documents()), asked.form, asked.look)
    from kvforensics.report.document import rendered

    return rendered(documents(), asked.form, asked.look, colour=asked.file is None and sys.stdout.isatty())


def deliver(text: str, asked: Output) -> None:
    """Write an answer where it was asked for. Raises UsageFault where the file takes nothing."""
    if asked.file is None:
        write(text)
        return
    from kvforensics.output_file import write_whole

    write_whole(asked.file, text)


def answered(settle: Callable[[], Output], ask: Callable[[Output], str]) -> typer.Exit:
    """Settle the output, write what `ask` gives; give what to raise at a command's end."""
    import typer

    def said() -> int:
        asked = settle()
        deliver(ask(asked), asked)
        return ExitCode.ANSWERED

    return typer.Exit(ended(said))
