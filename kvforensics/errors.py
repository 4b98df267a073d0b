"""What a command may end in, and the exit code of each: the one place that maps errors to codes."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes; the same for every command."""

    ANSWERED = 0
    FOUND = 1
    """A finding at or above --fail-on; a term outside in `check`; a start that died in `probe`."""
    USAGE = 2
    """Bad usage, or an input that is missing, a directory or unreadable."""
    NOTHING = 3
    """Nothing to answer: no start-up that the tool knows, or a question beyond it."""
    FAULT = 70
    """A fault of the program itself, as sysexits.h counts it."""
    INTERRUPTED = 130
    """Ctrl-C, as shells count it: 128 and the signal's number."""


class UsageFault(ValueError):
    """An option's value makes no sense; the message says which and what would."""


def expected() -> tuple[type[Exception], ...]:
    """Give the errors that a command may end in; everything else is a fault of the program."""
    from kvforensics.explanation import NothingToExplain
    from parsers.source import BinaryInput
    from reconstruct.planner.errors import Unsupported

    return (*_usage(), BinaryInput, NothingToExplain, Unsupported)


def code_of(error: Exception) -> ExitCode:
    """Give the exit code of an expected error."""
    return ExitCode.USAGE if isinstance(error, _usage()) else ExitCode.NOTHING


def _usage() -> tuple[type[Exception], ...]:
    from parsers.source import UnreadableInput
    from reconstruct.cards import UnknownCard
    from reconstruct.planner.errors import BadSetting

    return (UsageFault, UnreadableInput, BadSetting, UnknownCard)
