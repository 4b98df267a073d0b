"""The entry: `explain LOG` without options goes straight to work, everything else through the command line's own parser."""

from __future__ import annotations

import gc
import os
import sys

from kvforensics.errors import ExitCode
from kvforensics.terminal import complain, open_closed_streams

SHOW_TRACEBACK = "KVFORENSICS_TRACEBACK"
"""The variable of the environment that lets tracebacks through."""

GARBAGE_THRESHOLD = 100_000
"""Young objects that may stand before cycles are looked for: almost all here live to the end, and hold no cycles."""


def main() -> None:
    """Run the command line; end with the codes of kvforensics.errors."""
    gc.set_threshold(GARBAGE_THRESHOLD)
    open_closed_streams()
    command, *words = sys.argv[1:] or ("",)
    try:
        if command == "explain" and words and not any(word.startswith("-") and word != "-" for word in words):
            from kvforensics import explaining

            code: int = explaining.run(explaining.Request(tuple(words)))
        else:
            from kvforensics import app

            code = app.run()
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    except Exception as fault:  # noqa: BLE001 - whatever it is, a user gets one line
        code = _at_fault(fault)
    gc.freeze()  # the process ends: nothing is left to be looked through for cycles
    raise SystemExit(code)


def _at_fault(fault: Exception) -> ExitCode:
    """Own up to a fault of the program in one line; the traceback is for whoever asks for it."""
    if os.environ.get(SHOW_TRACEBACK):
        raise fault
    place = f"{type(fault).__name__}: {fault}"
    complain(RuntimeError(f"a fault of its own ({place[:300]}); please report it ({SHOW_TRACEBACK}=1 shows where)"))
    return ExitCode.FAULT
