"""What people hand in comes out as the same text, or as one line that says what to do."""

from __future__ import annotations

import codecs
import gzip
import io
import os
import sys
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsers.source import BOMS, CHUNK, GZIP, SAMPLE, ZSTD, BinaryInput, UnreadableInput, looks_binary, open_source

zstandard = pytest.importorskip("zstandard")

TEXT = "INFO 04-12 01:01:13 [worker.py:1] Modell lädt 模型\r\nzweite Zeile\n" * 50
UTF8 = TEXT.encode()


def read(given):
    return b"".join(open_source(given).chunks())


@pytest.mark.parametrize(
    "data",
    [
        UTF8,
        b"\xef\xbb\xbf" + UTF8,
        TEXT.encode("utf-16"),
        b"\xfe\xff" + TEXT.encode("utf-16-be"),
        TEXT.encode("utf-32"),
        gzip.compress(UTF8),
        gzip.compress(TEXT.encode("utf-16")),
        gzip.compress(UTF8[:100]) + b"\0" * 512 + gzip.compress(UTF8[100:]),
        zstandard.compress(UTF8),
        zstandard.compress(UTF8[:100]) + zstandard.compress(UTF8[100:]),
    ],
    ids=["utf-8", "utf-8-bom", "utf-16le", "utf-16be", "utf-32", "gz", "gz-utf-16", "gz-members", "zst", "zst-frames"],
)
def test_every_encoding_gives_the_same_bytes(data, tmp_path):
    path = tmp_path / "server.log"
    path.write_bytes(data)
    assert read(data) == read(path) == read(str(path)) == UTF8


def test_bad_bytes_are_kept():
    assert read(b"KV \xff\xfe cache\n") == b"KV \xff\xfe cache\n"


@given(st.lists(st.text(st.characters(min_codepoint=32, exclude_categories=["Cs", "Cc"])), max_size=6), st.booleans())
def test_lines_with_and_without_newlines_are_the_same_lines(lines, ended):
    given_lines = [line + "\n" * ended for line in lines]
    whole = "".join(f"{line}\n" for line in lines).replace("\xa0", " ").encode()
    assert read(given_lines) == read([line.encode() for line in given_lines]) == whole


@pytest.mark.parametrize("size", [1000, 1001])
def test_no_break_spaces_are_blanks_wherever_a_chunk_ends(monkeypatch, size):
    monkeypatch.setattr("parsers.source.CHUNK", size)
    text = "KV\xa0cache\xe9" * SAMPLE
    assert read(text.encode()) == text.replace("\xa0", " ").encode()


def test_lines_with_lone_surrogates_do_not_fail():
    assert read(["a bad byte: \udcff\n"]) == b"a bad byte: \xff\n"
    assert read(["half a pair: \ud800\n"]) == b"half a pair: ?\n"


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(UTF8))))
    source = open_source("-")
    assert (source.name, b"".join(source.chunks())) == ("<stdin>", UTF8)


def test_name_is_the_path_as_given(tmp_path):
    (tmp_path / "a.log").write_text("x")
    assert open_source(tmp_path / "a.log").name == str(tmp_path / "a.log")


@pytest.mark.parametrize("lost", [1, 9, 40])
def test_a_truncated_gzip_gives_what_decodes_and_says_so(lost):
    lines = "".join(f"line {i} {os.urandom(4).hex()}\n" for i in range(20_000)).encode()
    source = open_source(gzip.compress(lines)[:-lost])
    got = b"".join(source.chunks())
    assert lines.startswith(got)
    assert len(got) > 0.9 * len(lines)
    assert "ends early" in source.damage


def test_a_faulty_gzip_gives_what_stands_before_the_fault():
    lines = "".join(f"line {i} {os.urandom(4).hex()}\n" for i in range(2_000)).encode()
    packed = bytearray(gzip.compress(lines))
    packed[-8] ^= 0xFF  # the checksum
    source = open_source(bytes(packed))
    assert b"".join(source.chunks()) == lines
    assert source.damage


def test_a_whole_gzip_is_not_damaged():
    source = open_source(gzip.compress(UTF8))
    assert b"".join(source.chunks()) == UTF8
    assert source.damage is None


def test_nothing_decodable_is_unreadable():
    with pytest.raises(UnreadableInput, match="fetch it again"):
        read(b"\x1f\x8b\x08\x00broken")
    with pytest.raises(UnreadableInput, match="fetch it again"):
        read(b"\x28\xb5\x2f\xfd" + b"\xff" * 40)


def test_without_the_library_zst_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(UnreadableInput, match=r"kvforensics\[zstd\]"):
        read(zstandard.compress(UTF8))


def test_a_bomb_stays_a_trickle():
    """A megabyte of zeros per kilobyte must not be held at once."""
    bomb = gzip.compress(b"a" * (64 << 20))
    tracemalloc.start()
    largest = max(len(chunk) for chunk in open_source(bomb).chunks())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert largest <= 2 * CHUNK
    assert peak < 16 << 20


@pytest.mark.parametrize(
    ("path", "says"),
    [("/no/such.log", "no such file"), ("/", "directory"), ("a\0b", "cannot be read")],
)
def test_what_cannot_be_opened_says_what_to_do_in_one_line(path, says):
    with pytest.raises(UnreadableInput, match=says) as caught:
        open_source(path)
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_no_permission(tmp_path):
    path = tmp_path / "a.log"
    path.write_text("x")
    path.chmod(0)
    with pytest.raises(UnreadableInput, match="permission"):
        read(path)


def test_an_error_while_reading_is_unreadable(monkeypatch, tmp_path):
    path = tmp_path / "a.log"
    path.write_text("x")
    source = open_source(path)
    monkeypatch.setattr(Path, "open", lambda *_: (_ for _ in ()).throw(PermissionError(13, "Permission denied")))
    with pytest.raises(UnreadableInput, match="permission"):
        list(source.chunks())


@pytest.mark.parametrize(
    "data", [bytes(range(256)) * 40, b"\x7fELF" + bytes(3000), bytes(100), "x".encode("utf-16-le") * 99]
)
def test_binary_is_refused(data):
    assert looks_binary(data)
    with pytest.raises(BinaryInput, match="no text"):
        read(data)


@pytest.mark.parametrize(
    "data",
    [b"", UTF8, b"\0" * 5000 + UTF8, TEXT.encode("gbk", "replace"), b"\x1b[36m(Worker pid=1)\x1b[0m INFO x\r" * 9],
)
def test_text_is_not_binary(data):
    """A hole in front is what copytruncate leaves; another 8-bit encoding is still a log."""
    assert not looks_binary(data)


@given(st.binary(max_size=300))
def test_no_bytes_cause_any_other_error(data):
    try:
        assert read(data) == data or data.startswith((GZIP, ZSTD, codecs.BOM_UTF8, *(mark for mark, _ in BOMS)))
    except (UnreadableInput, BinaryInput) as error:
        assert "\n" not in str(error)
