"""From whatever holds a log to bounded chunks of UTF-8 bytes: files, pipes, compressed streams, UTF-16."""

from __future__ import annotations

import codecs
import contextlib
import io
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from parsers.tuples import NamedTuple

if TYPE_CHECKING:
    import zlib

Input = str | Path | bytes | Iterable[str] | Iterable[bytes]
"""What `open_source` takes: a path, `-` for standard input, the bytes themselves, or lines."""

CHUNK = 1 << 20
"""Bytes asked for at a time; what decompression gives is cut to this size too, so a bomb stays a trickle."""

SAMPLE = 1 << 16
"""Bytes that decide whether the input is text."""

STEP = 1 << 16
"""Compressed bytes per call: what one call gives is lost if it ends in a fault, unless retried byte by byte."""

GZIP_WINDOW = 31
"""zlib's own code for the largest window behind a gzip header."""

GZIP = b"\x1f\x8b"
ZSTD = b"\x28\xb5\x2f\xfd"
BOMS = (
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose little-endian mark begins it
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
LONGEST_MARK = 4
NO_BREAK = "\xa0".encode()
MAX_ODD_SHARE = 0.3
"""Share of control and undecodable characters above which bytes are no log.

A log in another 8-bit encoding stays below: its prefixes, figures and paths are ASCII.
"""

_CONTROL = bytes({*range(32), 127} - set(b"\t\n\r\b\f\x1b"))


class UnreadableInput(OSError):
    """The input is missing, is no file, or cannot be read; the message is one line that says what to do."""


class BinaryInput(ValueError):
    """The input can be read but is no text; the message is one line that says what to do."""


class Source:
    """One input, read once from its beginning.

    Attributes:
        name: what to call the input in reports.
        damage: what went wrong with a compressed stream after some of it had decoded, None while nothing did; known for
            sure only once `chunks` is exhausted.

    """

    def __init__(self, name: str, given: Input) -> None:
        self.name = name
        self.damage: str | None = None
        self._given = given

    def chunks(self) -> Iterator[bytes]:
        """Give the text as UTF-8 of any chunking, bad bytes kept, byte-order mark dropped.

        Raises:
            UnreadableInput: the bytes cannot be had, or no byte of a compressed stream decodes.
            BinaryInput: they are no text.

        """
        try:
            yield from self._text()
        except UnreadableInput:
            raise
        except OSError as error:
            raise _unreadable(self.name, error) from error

    def _text(self) -> Iterator[bytes]:
        raw = _with_head(self._raw(), LONGEST_MARK)
        head = next(raw, b"")
        whole = _chain(head, raw)
        if head.startswith(GZIP):
            whole = self._gunzipped(whole)
        elif head.startswith(ZSTD):
            whole = self._unzstd(whole)
        sampled = _with_head(_decoded(_with_head(whole, LONGEST_MARK)), SAMPLE)
        sample = next(sampled, b"")
        if looks_binary(sample):
            raise BinaryInput(f"{self.name}: this is no text; pass the log itself, as text, .gz or .zst")
        whole = _chain(sample, sampled)
        yield from _with_blanks(whole) if NO_BREAK in sample else whole

    def _raw(self) -> Iterator[bytes]:
        given = self._given
        if isinstance(given, bytes):
            yield from _cut(given)
        elif isinstance(given, str) and given == "-":
            if sys.stdin is None:
                raise UnreadableInput("<stdin>: standard input is closed; pass a path or pipe the log in")
            yield from _read(sys.stdin.buffer)
        elif isinstance(given, str | Path):
            with Path(given).open("rb") as file:
                yield from _read(file)
        else:
            yield from _lines(given)

    def _gunzipped(self, raw: Iterator[bytes]) -> Iterator[bytes]:
        """Decompress member after member; what follows a fault is lost, what came before stands."""
        gave = open_member = False
        for piece in _inflated(raw):
            gave = gave or bool(piece.text)
            open_member = piece.open_member
            if piece.fault:
                self._spoil("gzip", piece.fault, gave=gave)
            yield piece.text
        if open_member and not self.damage:
            self._spoil("gzip", "the stream ends early", gave=gave)

    def _unzstd(self, raw: Iterator[bytes]) -> Iterator[bytes]:
        try:
            import zstandard
        except ImportError as error:
            raise UnreadableInput(
                f"{self.name}: .zst needs the extra zstd; pip install 'kvforensics[zstd]', or decompress it first"
            ) from error
        gave = False
        try:
            reader = zstandard.ZstdDecompressor().stream_reader(
                cast("BinaryIO", _Pipe(raw)), read_size=CHUNK, read_across_frames=True
            )
            while out := reader.read(CHUNK):
                gave = True
                yield out
        except zstandard.ZstdError as error:
            self._spoil("zstd", str(error), gave=gave)

    def _spoil(self, kind: str, reason: str, *, gave: bool) -> None:
        if not gave:
            raise UnreadableInput(f"{self.name}: no byte of this {kind} stream decodes ({reason}); fetch it again")
        self.damage = f"{kind}: {reason}; what decoded before was read"


def open_source(source: Input) -> Source:
    """Give the source of an input after checking that it is there.

    Raises:
        UnreadableInput: the path is missing, a directory, or not permitted.

    """
    if isinstance(source, bytes):
        return Source("<bytes>", source)
    if isinstance(source, str) and source == "-":
        return Source("<stdin>", source)
    if not isinstance(source, str | Path):
        return Source("<lines>", source)
    name = str(source)
    if not name:
        raise UnreadableInput("'': an empty path names no file; pass the log's path, or - to read standard input")
    try:
        mode = Path(source).stat().st_mode
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise _unreadable(name, error) from error
    if stat.S_ISDIR(mode):
        raise UnreadableInput(f"{name}: this is a directory; pass the log file inside it")
    return Source(name, source)


def looks_binary(sample: bytes) -> bool:
    """Whether the first bytes of an input, already decompressed and decoded, are no text.

    Zeros in front do not count: a log truncated under its writer begins with a hole.
    """
    if not sample:
        return False
    body = sample.lstrip(b"\0")
    if not body:
        return True
    odd = len(body) - len(body.translate(None, _CONTROL))
    if not body.isascii():
        odd += body.decode(errors="replace").count("\ufffd")
    return odd > MAX_ODD_SHARE * len(body)


def _unreadable(name: str, error: Exception) -> UnreadableInput:
    if isinstance(error, FileNotFoundError):
        return UnreadableInput(f"{name}: no such file; check the path, or pass - to read standard input")
    if isinstance(error, PermissionError):
        return UnreadableInput(f"{name}: no permission to read it; check its owner and mode")
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
    return UnreadableInput(f"{name}: cannot be read ({reason}); copy it to a local file first")


def _read(file: BinaryIO) -> Iterator[bytes]:
    while chunk := file.read(CHUNK):
        yield chunk


def _cut(data: bytes, size: int = CHUNK) -> Iterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


def _lines(lines: Iterable[str] | Iterable[bytes]) -> Iterator[bytes]:
    """Join lines to chunks; a line may come with its newline or without, the last too."""
    held: list[bytes] = []
    size = 0
    for line in lines:
        data = line if isinstance(line, bytes) else _encoded(line)
        held.append(data if data.endswith(b"\n") else data + b"\n")
        size += len(data) + 1
        if size >= CHUNK:
            yield from _cut(b"".join(held))
            held, size = [], 0
    yield from _cut(b"".join(held))


def _encoded(line: str) -> bytes:
    try:
        return line.encode(errors="surrogateescape")  # the bad bytes of a file that was opened to keep them
    except UnicodeEncodeError:
        return line.encode(errors="replace")


def _with_head(pieces: Iterator[bytes], size: int) -> Iterator[bytes]:
    """Rechunk so that the first piece has at least `size` bytes, if there are as many."""
    head = b""
    for piece in pieces:
        head += piece
        if len(head) >= size:
            break
    if head:
        yield head
    yield from pieces


def _chain(head: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    if head:
        yield head
    yield from rest


def _with_blanks(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Put blanks for the no-break spaces that pages and chats paste: what lines are searched for has plain ones."""
    held = b""
    for piece in pieces:
        text = held + piece
        held = NO_BREAK[:1] if text.endswith(NO_BREAK[:1]) else b""
        yield text[: len(text) - len(held)].replace(NO_BREAK, b" ")
    yield held


def _decoded(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Turn UTF-16 and UTF-32 with a byte-order mark into UTF-8; anything else passes, less a UTF-8 mark."""
    head = next(pieces, b"")
    encoding = next((name for mark, name in BOMS if head.startswith(mark)), None)
    if encoding is None:
        yield from _chain(head.removeprefix(codecs.BOM_UTF8), pieces)
        return
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    for piece in _chain(head, pieces):
        yield decoder.decode(piece).encode(errors="surrogatepass")
    yield decoder.decode(b"", final=True).encode()


class _Inflated(NamedTuple):
    text: bytes
    fault: str = ""
    open_member: bool = False


def _inflated(raw: Iterator[bytes]) -> Iterator[_Inflated]:
    """Decompress gzip members one after the other; the first fault is the last item."""
    import zlib

    member = zlib.decompressobj(GZIP_WINDOW)
    begun = False
    for left in (piece for chunk in raw for piece in _cut(chunk, STEP)):
        rest = left
        while rest := rest if begun else rest.lstrip(b"\0"):  # tapes pad with zeros between members
            before = member.copy()
            try:
                out = member.decompress(rest, CHUNK)
            except zlib.error as error:
                yield _Inflated(_salvaged(before, rest), str(error), open_member=True)
                return
            begun = not member.eof
            if member.eof:
                rest, member = member.unused_data, zlib.decompressobj(GZIP_WINDOW)
            else:
                rest = member.unconsumed_tail
            yield _Inflated(out, open_member=begun)
    yield _Inflated(member.flush() if begun else b"", open_member=begun)


def _salvaged(member: zlib._Decompress, piece: bytes) -> bytes:
    """Decompress byte by byte up to the fault: a larger step would lose what the faulty call had decoded."""
    import zlib

    out = bytearray()
    with contextlib.suppress(zlib.error):
        for i in range(len(piece)):
            out += member.decompress(piece[i : i + 1], CHUNK)
    return bytes(out)


class _Pipe(io.RawIOBase):
    """The reading end of an iterator of bytes, for libraries that want a file."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return b""
            self._rest = piece
        out, self._rest = (self._rest, b"") if size < 0 else (self._rest[:size], self._rest[size:])
        return out
