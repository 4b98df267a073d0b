"""The few lines worth reading out of a log of any size, with their neighbours.

A gigabyte of request lines holds some hundred lines about memory. Literals that those lines must hold are searched for
in the raw bytes; only around a hit are borders looked for, bytes decoded and lines cut. Everything else is counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ahocorasick_rs import BytesAhoCorasick, Implementation, MatchKind

from parsers.tuples import NamedTuple
from parsers.width import may_be_cut

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

BLOCK = 1 << 20
"""Bytes searched at a time."""

MAX_TEXT = 1 << 18
"""Bytes of one line that become text; what stands behind them counts for the search only."""

MAX_CLUSTER_LINES = 4096
MAX_CLUSTER_BYTES = 1 << 22

MAX_CUT_LINES = 1 << 16
"""Lines that are all read where a terminal may have cut them: marks are cut too, and no paste is longer."""

FADES_AFTER = 64
"""Lines after which a fading mark no longer counts."""


class PhysicalLine(NamedTuple):
    """One line as `sed -n` counts: what stands between two newlines."""

    number: int
    text: str
    """Decoded, bad bytes replaced, without its newline."""
    hit: bool = False
    """Whether a mark stands on it; else it is here as a neighbour."""
    cut: bool = False
    """Whether the text was cut at `MAX_TEXT` bytes."""


class Cluster(NamedTuple):
    """Consecutive lines around one or more hits."""

    lines: tuple[PhysicalLine, ...]


class _Raw(NamedTuple):
    number: int
    data: bytes
    cut: bool = False


class Clusters:
    """An iterator of clusters; `lines` counts the lines seen, so after the last cluster all of the input's.

    A line that no newline ends counts if it holds a byte. Memory stays bounded by a few blocks and one cluster.
    """

    def __init__(self, chunks: Iterable[bytes], search: _Search, before: int, after: int, block: int = BLOCK) -> None:
        self.lines = 0
        self._before, self._after = before, after
        self._ready: list[Cluster] = []
        self._run: list[PhysicalLine] = []
        self._run_bytes = 0
        self._due = 0  # neighbours still wanted after the last hit
        self._context: list[_Raw] = []  # the last lines seen, for a hit's neighbours before it
        self._search = search
        self._cut = False  # whether a terminal may have cut the lines, and the marks on them
        self._clusters = self._pass(chunks, block)

    def __iter__(self) -> Iterator[Cluster]:
        return self

    def __next__(self) -> Cluster:
        return next(self._clusters)

    def _pass(self, chunks: Iterable[bytes], block: int) -> Iterator[Cluster]:
        for item in _whole_lines(_blocks(chunks, block), self._search):
            if isinstance(item, bytes):
                self._take_block(item)
            else:
                self._take_overlong(item)
            yield from self._done()
        self._flush()
        yield from self._done()

    def _done(self) -> list[Cluster]:
        done, self._ready = self._ready, []
        return done

    def _take_block(self, block: bytes) -> None:
        """Read whole lines, each with its newline."""
        at = 0  # offset of the line numbered self.lines + 1
        if not self.lines:
            self._cut = may_be_cut([len(line) for line in block.decode(errors="replace").split("\n")])
        every = self._cut and self.lines < MAX_CUT_LINES
        for start, end in _every_line(block) if every else self._search.lines(block):
            self._skip(block, at, start)
            self._hit(_raw(self.lines + 1, block, start, end))
            at = end + 1
        self._skip(block, at, len(block))

    def _take_overlong(self, line: _Overlong) -> None:
        raw = _Raw(self.lines + 1, line.head, cut=True)
        if line.hit:
            self._hit(raw)
        else:
            self._pass_over([raw], 1)

    def _skip(self, block: bytes, start: int, end: int) -> None:
        """Pass over whole lines without a hit, keeping those that neighbour one."""
        if start == end:
            return
        count = block.count(b"\n", start, end)
        kept = []
        first, at = self.lines + 1, start
        for number in range(first, first + min(self._due, count)):
            stop = block.find(b"\n", at)
            kept.append(_raw(number, block, at, stop))
            at = stop + 1
        last: list[_Raw] = []
        stop, number = end - 1, self.lines + count
        while len(last) < self._before and stop >= at:
            begin = block.rfind(b"\n", at, stop) + 1 or at
            last.append(_raw(number, block, begin, stop))
            stop, number = begin - 1, number - 1
        self._pass_over(kept + last[::-1], count)

    def _pass_over(self, edge: list[_Raw], count: int) -> None:
        """Count lines without a hit; `edge` are the first that are due and the last that may neighbour the next hit."""
        due = self._due
        for raw in edge[:due]:
            self._add(raw, hit=False)
        self._due = max(0, due - count)
        self.lines += count
        self._remember(edge)

    def _hit(self, raw: _Raw) -> None:
        context = [c for c in self._context if not self._run or c.number > self._run[-1].number]
        first = context[0].number if context else raw.number
        if self._run and first > self._run[-1].number + 1:
            self._flush()
        for neighbour in context:
            self._add(neighbour, hit=False)
        self._add(raw, hit=True)
        self._due = self._after
        self.lines += 1
        self._remember([raw])

    def _remember(self, lines: list[_Raw]) -> None:
        self._context = (self._context + lines)[-self._before :] if self._before else []

    def _add(self, raw: _Raw, *, hit: bool) -> None:
        if len(self._run) >= MAX_CLUSTER_LINES or self._run_bytes >= MAX_CLUSTER_BYTES:
            self._ready.append(Cluster(tuple(self._run[:-1])))
            self._run = self._run[-1:]  # the last line stays, so that what follows it still merges
            self._run_bytes = 0
        self._run.append(PhysicalLine(raw.number, raw.data.decode(errors="replace"), hit, raw.cut))
        self._run_bytes += len(raw.data)

    def _flush(self) -> None:
        if self._run:
            self._ready.append(Cluster(tuple(self._run)))
        self._run, self._run_bytes, self._due = [], 0, 0


class _Search:
    """Finds the lines of a block that hold a mark, and lets fading marks wear out.

    With `words`, a line with a mark counts only if one of them stands on it too: few short marks are searched for fast, and
    only the lines they point at are searched for the many words that really matter.
    """

    def __init__(self, marks: Sequence[bytes], fading: Sequence[bytes] = (), words: Sequence[bytes] = ()) -> None:
        self._marks = [*dict.fromkeys(marks), *(m for m in dict.fromkeys(fading) if m not in marks)]
        if not marks or any(not m or b"\n" in m for m in self._marks):
            raise ValueError("marks hold at least one byte and no newline; pass at least one")
        self._left = {mark: FADES_AFTER for mark in fading if mark not in marks}
        self.longest = max(map(len, (*self._marks, *words)))
        every = list(dict.fromkeys((*words, *fading)))
        # searched on few lines: an automaton that is quick to build, not one that is quick to run
        self._words = (
            BytesAhoCorasick(every, implementation=Implementation.NoncontiguousNFA).find_matches_as_indexes
            if words
            else None
        )
        self._find = _finder(self._marks)

    def any(self, data: bytes) -> bool:
        """Whether what is searched for stands in a part of a line."""
        return bool(self._find(data)) and self._counts(data)

    def _counts(self, line: bytes) -> bool:
        return self._words is None or bool(self._words(line))

    def lines(self, block: bytes) -> Iterator[tuple[int, int]]:
        """Give where each line with a mark begins and ends, in order."""
        at = 0
        worn = True
        while worn:
            worn = False
            base = at
            for index, offset, _ in self._find(block[base:] if base else block):
                hit = base + offset
                if hit < at:
                    continue  # another mark on the line just given
                start, end = block.rfind(b"\n", at, hit) + 1 or at, block.find(b"\n", hit)
                at = end + 1
                if not self._counts(block[start:end]):
                    continue
                yield start, end
                worn = self._wears_out(self._marks[index])
                if worn:
                    break  # the rest is searched without it, for it may hide another mark that it overlaps

    def _wears_out(self, mark: bytes) -> bool:
        if mark not in self._left:
            return False
        self._left[mark] -= 1
        if self._left[mark] > 0:
            return False
        del self._left[mark]
        self._marks.remove(mark)
        self._find = _finder(self._marks)
        return True


def _every_line(block: bytes) -> Iterator[tuple[int, int]]:
    at = 0
    while at < len(block):
        end = block.find(b"\n", at)
        yield at, end
        at = end + 1


def _finder(marks: list[bytes]) -> Callable[[bytes], list[tuple[int, int, int]]]:
    # Leftmost semantics, though any would do for finding lines: only they bring the library's SIMD search into play, the
    # faster one while the marks are few.
    return BytesAhoCorasick(
        marks, matchkind=MatchKind.LeftmostFirst, implementation=Implementation.DFA
    ).find_matches_as_indexes


class _Overlong:
    """A line longer than any text wanted of it: its head, and whether a mark stands anywhere on it."""

    def __init__(self, search: _Search, begin: bytes) -> None:
        self.head = begin[:MAX_TEXT]
        self.hit = search.any(begin)
        self._search = search
        self._edge = begin[-search.longest :]

    def feed(self, data: bytes) -> None:
        if not self.hit:
            self.hit = self._search.any(self._edge + data)
            self._edge = (self._edge + data)[-self._search.longest :]


def clusters(
    chunks: Iterable[bytes],
    marks: Sequence[bytes],
    before: int = 4,
    after: int = 8,
    fading: Sequence[bytes] = (),
    words: Sequence[bytes] = (),
) -> Clusters:
    """Give the lines that hold any mark, with `before` and `after` neighbours; runs that touch are one cluster.

    With `words`, a line must hold one of them beside a mark; the marks then are fragments that every word-bearing line has.

    `fading` marks count on the first `FADES_AFTER` lines that they make a hit of, then no more: they are for what a busy
    log repeats without end and what matters only once, or as a sample. A cluster is cut when it grows beyond
    `MAX_CLUSTER_LINES` or `MAX_CLUSTER_BYTES`; each line stands in one cluster.

    Raises:
        ValueError: no marks, an empty one, or one with a newline in it.

    """
    return Clusters(chunks, _Search(marks, fading, words), before, after)


def _whole_lines(blocks: Iterator[bytes], search: _Search) -> Iterator[bytes | _Overlong]:
    """Move block borders to line ends; a line that would not fit in memory comes as a thing of its own."""
    tail = b""
    overlong: _Overlong | None = None
    for given in blocks:
        data = given
        if overlong:
            end = data.find(b"\n")
            overlong.feed(data if end < 0 else data[:end])
            if end < 0:
                continue
            yield overlong
            overlong, data = None, data[end + 1 :]
        end = data.rfind(b"\n") + 1
        if end:
            yield tail + data[:end]
        tail = data[end:] if end else tail + data
        if len(tail) > MAX_TEXT:
            overlong, tail = _Overlong(search, tail), b""
    if overlong:
        yield overlong
    elif tail:
        yield tail + b"\n"


def _blocks(chunks: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Gather small chunks and cut large ones, so that the cost per block does not depend on the source."""
    held: list[bytes] = []
    length = 0
    for chunk in chunks:
        for start in range(0, len(chunk), size):
            held.append(chunk[start : start + size])
            length += len(held[-1])
            if length >= size:
                yield b"".join(held)
                held, length = [], 0
    if held:
        yield b"".join(held)


def _raw(number: int, block: bytes, start: int, end: int) -> _Raw:
    cut = end - start > MAX_TEXT
    return _Raw(number, block[start : start + MAX_TEXT if cut else end], cut)
