"""Whole reports of hand-built ledgers, compared with the text written out in expected/."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.cells import cell_len

from kvforensics.errors import UsageFault
from kvforensics.report import markdown, table
from kvforensics.report.look import Look
from parsers.record import Record
from tests.kvforensics.report import ledgers

if TYPE_CHECKING:
    from kvforensics.explanation import Report

EXPECTED = Path(__file__).parent / "expected"
REPORTS = {
    "whole": ledgers.whole,
    "pipeline": ledgers.pipeline,
    "old_engine": ledgers.old_engine,
    "crash_loop": ledgers.crash_loop,
    "contradicted": ledgers.contradicted,
}
LOOKS = {
    "80": Look(80),
    "120": Look(120),
    "48": Look(48),
    "ascii": Look(80, ascii_only=True),
    "all": Look(100, all_ranks=True, startup="all"),
}
CASES = [
    ("whole", "80"), ("whole", "120"), ("whole", "48"), ("whole", "ascii"), ("pipeline", "80"), ("pipeline", "all"),
    ("old_engine", "80"), ("crash_loop", "80"), ("crash_loop", "all"), ("contradicted", "80"), ("contradicted", "ascii"),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "look"), CASES)
def test_table(shape: str, look: str) -> None:
    expected = (EXPECTED / f"{shape}-{look}.txt").read_text(encoding="utf-8")
    assert table.render(REPORTS[shape](), LOOKS[look], colour=False) == expected


@pytest.mark.parametrize("shape", REPORTS)
@pytest.mark.parametrize("look", ["80", "ascii"])
def test_markdown(shape: str, look: str) -> None:
    name = shape if look == "80" else f"{shape}-{look}"
    if look == "ascii" and shape != "whole":
        assert markdown.render(REPORTS[shape](), LOOKS[look]).isascii()
        return
    expected = (EXPECTED / f"{name}.md").read_text(encoding="utf-8")
    assert markdown.render(REPORTS[shape](), LOOKS[look]) == expected


@pytest.mark.parametrize("shape", REPORTS)
@pytest.mark.parametrize("width", [40, 51, 60, 72, 80, 99, 100, 120, 200])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_tables_fit_their_width_without_escapes(shape: str, width: int, ascii_only: bool) -> None:
    text = table.render(REPORTS[shape](), Look(width, ascii_only, all_ranks=True, startup="all"), colour=False)
    assert max(cell_len(line) for line in text.splitlines()) <= width
    assert "\x1b" not in text
    assert text.isascii() or not ascii_only


def test_colour_changes_nothing_but_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its escapes the coloured text is the plain one."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = table.render(ledgers.whole(), Look(80), colour=True)
    bare = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert coloured != bare
    assert [line.rstrip() for line in bare.splitlines()] == table.render(
        ledgers.whole(), Look(80), colour=False
    ).splitlines()


def test_both_reports_hold_every_figure() -> None:
    """What the table says of a figure stands in the Markdown too, and the other way round."""
    report = ledgers.whole()
    figures = re.compile(r"\d[\d,.]* ±[\d.]+|\d[\d,]{4,}|L\d+")
    plain = set(figures.findall(table.render(report, Look(200), colour=False)))
    assert plain == set(figures.findall(markdown.render(report, Look())))


HOSTILE = "[bold]x[/bold] :smile: <b>|`\x1b[31m\x9b2J\u202e /home/alice/k hf_abcdefghijklmnop"


def hostile() -> Report:
    report = ledgers.pipeline()
    ledger = report.startups[0]._replace(
        unread=(Record(1, HOSTILE),), settings=ledgers.settings(1, model=HOSTILE, dtype=HOSTILE)
    )
    return report._replace(startups=(ledger,), damage=HOSTILE, name=HOSTILE)


def test_foreign_text_is_neither_markup_nor_control_nor_secret() -> None:
    text = table.render(hostile(), Look(120), colour=False)
    assert "[bold]x[/bold] :smile: <b>|`" in text
    for shown in (text, markdown.render(hostile(), Look())):
        assert all(c.isprintable() or c == "\n" for c in shown)
        assert "alice" not in shown
        assert "hf_abc" not in shown
    assert "alice" in table.render(hostile(), Look(200, redact=False), colour=False)


def test_foreign_text_cannot_leave_its_code_span() -> None:
    """Each quoted text stands between as many backticks as no run inside has."""
    for line in markdown.render(hostile(), Look()).splitlines():
        if "smile" in line:
            assert re.search(r"(?<!`)(``+) ?[^\n]*:smile:[^\n]* ?\1(?!`)", line)


@pytest.mark.parametrize("number", [0, 3, 99])
def test_a_start_up_that_is_not_there(number: int) -> None:
    for render in (lambda r, k: table.render(r, k, colour=False), markdown.render):
        with pytest.raises(UsageFault, match=rf"--startup {number}: crash.log holds 2 start-ups; write 1 to 2"):
            render(ledgers.crash_loop(), Look(80, startup=number))


def test_one_start_up_is_chosen_by_number() -> None:
    text = table.render(ledgers.crash_loop(), Look(80, startup=1), colour=False)
    assert "this is 1 of 2" in text
    assert "lines 1-4" in text
