"""Lines that a terminal's width cut read as if it had not."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from parsers.candidates import PhysicalLine
from parsers.log import read_log
from parsers.prefix import begins_anew, records
from parsers.width import width_of

LOGS = sorted((Path(__file__).parents[2] / "sample_logs").glob("*.log"))
WORKER = "(Worker_TP{} pid={}) INFO 11-14 10:20:59 [gpu_worker.py:99] Available KV cache memory: 41.73 GiB"


def cut(text, width, lead=""):
    return "\n".join(lead + line[k : k + width] for line in text.split("\n") for k in range(0, len(line) or 1, width))


def said(data):
    return [[(s.kind, s.fields, s.record.speaker) for s in start.statements] for start in read_log(data).startups]


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(LOGS), st.integers(60, 220), st.sampled_from(["", "> ", "    "]))
def test_a_cut_log_says_what_it_said(path, width, lead):
    """At any width that shows: inside a word, a number, a prefix, a list of settings.

    A line that fills its last row looks as if it went on, a rest may look like a line of its own, and where few lines
    are cut, nothing tells a width.
    """
    text = path.read_text()
    lines = text.split("\n")
    assume(not any(line and len(line) % width in {0, width - 1} for line in lines))
    assume(not any(begins_anew(line[k:]) for line in lines for k in range(width, len(line), width)))
    assume(width_of(cut(text, width).split("\n"), begins_anew) == width)
    assert said(cut(text, width, lead).encode()) == said(text.encode())


def test_every_piece_is_named():
    lines = [WORKER.format(rank, 440 + rank) for rank in range(4)]
    pieces = cut("\n".join(lines), 40).split("\n")
    found = records([PhysicalLine(number, piece) for number, piece in enumerate(pieces, 7)])
    assert [(tuple(r.lines), r.text, r.speaker.pid) for r in found] == [
        ((8 + 3 * rank, 9 + 3 * rank), "Available KV cache memory: 41.73 GiB", 440 + rank) for rank in range(4)
    ]


def test_a_blank_lost_at_the_edge_comes_back():
    line = WORKER.format(0, 440)
    width = line.index(" GiB") + 1
    pieces = [piece.rstrip() for piece in cut("\n".join([line, *[line + "." * width] * 4]), width).split("\n")]
    found = records([PhysicalLine(number, piece) for number, piece in enumerate(pieces, 1)])
    assert found[0].text == "Available KV cache memory: 41.73 GiB"


@pytest.mark.parametrize("between", [[], [""], ["(Worker_TP0 pid=1) prose"]])
def test_lines_that_are_as_long_as_the_longest_by_nature_stay_apart(between):
    """Eight workers say the same, each line a line of its own."""
    lines = [line for rank in range(8) for line in (WORKER.format(rank, 440 + rank), *between)]
    found = records([PhysicalLine(number, line) for number, line in enumerate(lines, 1)])
    assert [r.speaker.pid for r in found if r.prefixed] == list(range(440, 448))
    assert {r.text for r in found if r.prefixed} == {"Available KV cache memory: 41.73 GiB"}


@pytest.mark.parametrize("texts", [[], ["a"], ["x" * 80] * 2, ["x" * 19] * 9, ["x" * 501] * 9])
def test_too_little_tells_no_width(texts):
    assert width_of(texts, lambda text: not text) == 0
