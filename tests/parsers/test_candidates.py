"""Clusters hold the marked lines and their neighbours, wherever the chunks' borders fall."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers import candidates
from parsers.candidates import Clusters, _Search, clusters

MARKS = (b"KV cache size", b"took ", b"size: x")

pieces = st.sampled_from(
    [b"\n", b"\n\n", b"a", b"KV cache ", b"size", b"took ", b": x", b"\r", b"\xff", b"\x0c", "\u2028".encode()]
)
logs = st.lists(pieces, max_size=60).map(b"".join)
windows = st.integers(0, 4)


def expected(log, before, after):
    """The plain way: split everything, mark, spread, group."""
    lines = log.split(b"\n")
    lines = lines[:-1] if lines[-1] == b"" else lines
    hits = {i for i, line in enumerate(lines) if any(mark in line for mark in MARKS)}
    wanted = sorted({j for i in hits for j in range(max(0, i - before), min(len(lines), i + after + 1))})
    groups = []
    for j in wanted:
        item = (j + 1, lines[j].decode(errors="replace"), j in hits, False)
        if groups and groups[-1][-1][0] == j:
            groups[-1].append(item)
        else:
            groups.append([item])
    return groups, len(lines)


def found(chunks, before, after, block):
    passing = Clusters(chunks, _Search(MARKS), before, after, block=block)
    return [[tuple(line) for line in cluster.lines] for cluster in passing], passing.lines


def chunked(log, cuts):
    edges = [0, *sorted(cut for cut in cuts if cut < len(log)), len(log)]
    return [log[a:b] for a, b in itertools.pairwise(edges)]


@settings(max_examples=400)
@given(logs, windows, windows, st.lists(st.integers(0, 200), max_size=8), st.integers(1, 40))
def test_any_chunking_gives_what_splitting_gives(log, before, after, cuts, block):
    """Marks across chunk borders, windows across blocks, merged runs, numbers and the count: as if split at once."""
    assert found(chunked(log, cuts), before, after, block) == expected(log, before, after)


@given(st.binary(max_size=400), st.integers(1, 64))
def test_lines_are_newlines_plus_an_unended_rest(data, block):
    _, lines = found([data], 2, 2, block)
    assert lines == data.count(b"\n") + (data != b"" and not data.endswith(b"\n"))


@settings(max_examples=150)
@given(logs, st.lists(st.integers(0, 200), max_size=8), st.integers(1, 40))
def test_overlong_lines_keep_their_head_their_number_and_their_hit(log, cuts, block):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "MAX_TEXT", 5)
        got, lines = found(chunked(log, cuts), 1, 1, block)
    plain, count = expected(log, 1, 1)
    assert lines == count
    whole = log.split(b"\n")
    cut = [
        [(n, whole[n - 1][:5].decode(errors="replace"), hit, len(whole[n - 1]) > 5) for n, _, hit, _ in c]
        for c in plain
    ]
    assert got == cut


def test_a_line_of_megabytes_is_cut_and_its_late_mark_counts():
    line = b"x" * (3 << 20) + b"KV cache size" + b"y" * (2 << 20)
    (cluster,) = clusters([b"before\n", line, b"\nafter\n"], MARKS)
    before, long, after = cluster.lines
    assert (before.number, before.hit, after.number, after.text) == (1, False, 3, "after")
    assert (long.hit, long.cut, len(long.text)) == (True, True, candidates.MAX_TEXT)


def test_a_cluster_is_cut_before_it_grows_without_bound(monkeypatch):
    monkeypatch.setattr(candidates, "MAX_CLUSTER_LINES", 10)
    got = [cluster.lines for cluster in clusters([b"took 1\n" * 35], MARKS)]
    assert [line.number for lines in got for line in lines] == list(range(1, 36))
    assert max(map(len, got)) <= 10


FADING = (b"KV cache ", b"a", b"took a")


def expected_hits(log, limit):
    """The plain way: a fading mark counts the line that it begins first on, and wears out."""
    left = dict.fromkeys(FADING, limit)
    hits = []
    for number, line in enumerate(log.split(b"\n"), 1):
        alive = [*MARKS, *(mark for mark in FADING if left[mark] > 0)]
        # leftmost, and of those that begin at the same place the first listed
        first = min(((line.find(m), alive.index(m), m) for m in alive if m in line), default=None)
        if first:
            hits.append(number)
            if first[2] in left:
                left[first[2]] -= 1
    return hits


@settings(max_examples=400)
@given(logs, st.integers(1, 4), st.lists(st.integers(0, 200), max_size=8), st.integers(1, 40))
def test_fading_marks_wear_out_at_the_same_line_however_chunked_and_hide_no_lasting_mark(log, limit, cuts, block):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "FADES_AFTER", limit)
        passing = Clusters(chunked(log, cuts), _Search(MARKS, FADING), 0, 0, block=block)
        assert [line.number for c in passing for line in c.lines] == expected_hits(log, limit)


@pytest.mark.parametrize("marks", [[], [b""], [b"a\nb"]])
def test_useless_marks_are_refused(marks):
    with pytest.raises(ValueError, match="at least one"):
        list(clusters([b"x"], marks))
