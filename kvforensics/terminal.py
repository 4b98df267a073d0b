"""What a command says and how it ends: the one place that writes to stdout and stderr."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from kvforensics.errors import ExitCode, UsageFault, code_of, expected

if TYPE_CHECKING:
    from collections.abc import Callable

    import typer


def write(text: str) -> None:
    """Write to stdout whatever its encoding can take; where the reader has gone, what is left to say is dropped.

    The exit code then still tells of the input (typer would make it 1). Raises UsageFault where stdout takes nothing.
    """
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, errors="replace").decode(encoding))
        if not text.endswith("\n"):
            sys.stdout.write("\n")
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
    except OSError as error:
        _drop_output()
        reason = error.strerror or error
        raise UsageFault(f"the report cannot be written ({reason}); send it to another place") from None


def _drop_output() -> None:
    """Send stdout nowhere: what its buffer still holds would fail again when the interpreter ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def open_closed_streams() -> None:
    """Give a process that was started without stdout or stderr (`>&-`) somewhere to write to."""
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - open to the end
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - open to the end


def complain(error: Exception) -> None:
    """Write an error to stderr in one line."""
    line = " ".join(str(error).split()).encode(errors="backslashreplace").decode()  # a path may hold any byte
    sys.stderr.write(f"kvforensics: {line}\n")


def ended(ask: Callable[[], int]) -> int:
    """Give the exit code of what a command does; an expected error becomes its one line and its code."""
    try:
        return ask()
    except expected() as error:
        complain(error)
        return code_of(error)


def answer(ask: Callable[[], str]) -> typer.Exit:
    """Write the text that `ask` gives; give what to raise at a command's end."""
    import typer

    def said() -> int:
        write(ask())
        return ExitCode.ANSWERED

    return typer.Exit(ended(said))
