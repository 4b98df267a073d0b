"""Bars: what they show is where the figure lies, to half a cell."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvforensics.report.bars import Bar, anchored_left, anchored_right, draw
from kvforensics.report.wording import Source, ascii_only, line_numbers


@pytest.mark.parametrize(
    ("bar", "drawn"),
    [
        (anchored_left(1, 1), "██████████"),
        (anchored_left(0.5, 0.5), "█████     "),
        (anchored_left(0.25, 0.25), "██▌       "),
        (anchored_left(0.25, 0.5), "██▌░░     "),
        (anchored_right(1, 0.1, 0.1), "         █"),
        (anchored_right(0.9, 0.05, 0.05), "        ▐ "),
        (anchored_right(0.9, 0.2, 0.4), "     ░░██ "),
        (anchored_left(0.0001, 0.0001), "▌         "),
        (anchored_left(0, 0), "          "),
        (anchored_left(2, 3), "██████████"),
    ],
)
def test_draw(bar: Bar, drawn: str) -> None:
    assert draw(bar, 10, ascii_only=False) == drawn


@given(st.floats(0, 2), st.floats(0, 1), st.floats(0, 1), st.integers(1, 60), st.booleans())
def test_a_bar_fills_its_cells_and_no_more(right: float, low: float, more: float, cells: int, ascii_: bool) -> None:
    for bar in (anchored_left(low, low + more), anchored_right(right, low, low + more)):
        drawn = draw(bar, cells, ascii_only=ascii_, track=".")
        assert len(drawn) == cells
        assert drawn.isascii() or not ascii_


@pytest.mark.parametrize(
    ("source", "room", "text"),
    [
        (Source("printed", (29,)), 14, "L29"),
        (Source("printed", (7, 23, 29)), 14, "L7, 23, 29"),
        (Source("derived", (7, 21, 23, 28, 29)), 14, "from L7, 21 +3"),
        (Source("derived", (1403, 1404)), 14, "from L1403 +1"),
        (Source("derived", (140312345,)), 5, "from L140312345"),
        (Source("derived"), 14, "derived"),
        (Source("config", (7,)), 14, "config L7"),
        (Source("given"), 14, "given"),
        (Source(""), 14, ""),
    ],
)
def test_source(source: Source, room: int, text: str) -> None:
    assert source.text(room) == text


@given(st.lists(st.integers(1, 10**6), min_size=1, unique=True), st.integers(10, 80))
def test_line_numbers_account_for_every_line(lines: list[int], room: int) -> None:
    """Those listed and the number behind the plus add up."""
    text = line_numbers(tuple(lines), room)
    listed, _, more = text.removeprefix("L").partition(" +")
    assert len(listed.split(", ")) + int(more or 0) == len(lines)


def test_ascii_only_spells_what_it_can() -> None:
    assert ascii_only("41.73 ±0.005 – ≥ 日") == "41.73 +-0.005 - >= \\u65e5"
