"""Files that are either written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from typing import TYPE_CHECKING

from kvforensics.errors import UsageFault
from parsers.source import UnreadableInput

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def check_writable(path: Path) -> None:
    """Refuse a place that cannot be written, before anything long is begun. Raises UsageFault."""
    if path.is_dir():
        raise UsageFault(f"--out {path}: that is a folder; name a file in it")
    if not path.absolute().parent.is_dir():
        raise UsageFault(f"--out {path}: there is no folder {path.absolute().parent}")
    if not os.access(path.absolute().parent, os.W_OK):
        raise UsageFault(f"--out {path}: the folder {path.absolute().parent} cannot be written")


def write_whole(path: Path, text: str) -> None:
    """Put a text in a file's place in one step: a reader sees the old file or the new one.

    Raises UsageFault where the system refuses; the old file is then untouched.
    """
    write_pieces(path, [(text if text.endswith("\n") else text + "\n").encode()])


def write_pieces(path: Path, pieces: Iterable[bytes]) -> None:
    """Do the same with what comes piece by piece, of which no two are held at once.

    Raises UsageFault where the system refuses, and UnreadableInput where the pieces come from what cannot be read.
    """
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.absolute().parent)
        with os.fdopen(handle, "wb") as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())  # noqa: PTH101  mkstemp makes files for their owner alone
        os.replace(temporary, path)  # noqa: PTH105  the same call by a longer name
    except UnreadableInput:
        raise
    except OSError as error:
        raise UsageFault(f"--out {path}: {error.strerror or error}") from None
    finally:
        with suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108  there is nothing left to remove after a rename


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
