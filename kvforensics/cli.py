"""The entry: `explain LOG` without options goes straight to work, everything else through the command line's own parser."""

from __future__ import annotations

import gc
import sys

from kvforensics.errors import ExitCode
from kvforensics.terminal import open_closed_streams

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
    gc.freeze()  # the process ends: nothing is left to be looked through for cycles
    raise SystemExit(code)
