"""Files that are either written whole or not at all; a device or a pipe is written to and stays what it is."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kvforensics.errors import UsageFault
from parsers.source import UnreadableInput

if TYPE_CHECKING:
    from collections.abc import Iterable


def check_writable(path: Path) -> None:
    """Refuse a place that cannot be written, before anything long is begun. Raises UsageFault."""
    if path.is_dir():
        raise UsageFault(f"--out {path}: that is a folder; name a file in it")
    if _is_stream(path):
        if not os.access(path, os.W_OK):
            raise UsageFault(f"--out {path}: it cannot be written to")
        return
    folder = _place(path).parent
    if not folder.is_dir():
        raise UsageFault(f"--out {path}: there is no folder {folder}")
    try:
        tempfile.TemporaryFile(dir=folder).close()  # what may be written is not what permissions say: /proc, full disks
    except OSError:
        raise UsageFault(f"--out {path}: the folder {folder} cannot be written") from None


def _is_stream(path: Path) -> bool:
    """Whether something is there that a file must not take the place of: a device, a pipe, an open file's name."""
    names = (path, path.parent / path.readlink()) if path.is_symlink() else (path,)
    of_a_process = any(Path(os.path.realpath(name.parent)).is_relative_to("/proc") for name in names)  # /dev/stdout
    return path.exists() and (of_a_process or not path.is_file())


def _place(path: Path) -> Path:
    """Give the file that is to be replaced: of a link, what it leads to."""
    return Path(os.path.realpath(path))


def write_whole(path: Path, text: str) -> None:
    """Put a text in a file's place in one step: a reader sees the old file or the new one.

    Raises UsageFault where the system refuses; the old file is then untouched.
    """
    write_pieces(path, [(text if text.endswith("\n") else text + "\n").encode()])


def write_pieces(path: Path, pieces: Iterable[bytes]) -> None:
    """Do the same with what comes piece by piece, of which no two are held at once.

    Raises UsageFault where the system refuses, and UnreadableInput where the pieces come from what cannot be read.
    """
    temporary, place = "", _place(path)
    try:
        if _is_stream(path):
            with path.open("ab") as file:
                file.writelines(pieces)
            return
        handle, temporary = tempfile.mkstemp(prefix=f".{place.name}.", dir=place.parent)
        with os.fdopen(handle, "wb") as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())  # noqa: PTH101  mkstemp makes files for their owner alone
        os.replace(temporary, place)  # noqa: PTH105  the same call by a longer name
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
