"""A probe that is told to end (a plain `kill`, a closed terminal, a job's time limit) ends as by Ctrl-C.

Its ledger so far is written, and no process is left.
"""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kvforensics.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
_BY_SIGNAL = 128


@contextmanager
def stopped_as_by_ctrl_c() -> Iterator[Callable[[int], int]]:
    """Cover a command; gives what makes its exit code that of the signal which ended it, by the shell's convention.

    A signal that the caller ignores (nohup) stays ignored.
    """
    received: list[int] = []

    def interrupt(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in _SIGNALS}
    heard = [number for number in _SIGNALS if before[number] != signal.SIG_IGN]
    for number in heard:
        signal.signal(number, interrupt)
    try:
        yield lambda code: _BY_SIGNAL + received[0] if received and code == ExitCode.INTERRUPTED else code
    finally:
        for number in heard:
            signal.signal(number, before[number])


@contextmanager
def unhurried() -> Iterator[None]:
    """Cover the writing of an answer: one signal to end does not lose what was measured; a second one is heeded."""
    waiting: list[int] = []

    def wait(number: int, _frame: FrameType | None) -> None:
        if waiting:
            raise KeyboardInterrupt
        waiting.append(number)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, *_SIGNALS)}
    heard = [number for number, handler in before.items() if handler != signal.SIG_IGN]
    for number in heard:
        signal.signal(number, wait)
    try:
        yield
    finally:
        for number in heard:
            signal.signal(number, before[number])
