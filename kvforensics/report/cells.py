"""A page's tables as plain cells: what the marked-up forms of a report (Markdown, Jira, Slack, HTML) share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvforensics.report.bars import draw
from kvforensics.report.wording import line_numbers

if TYPE_CHECKING:
    from kvforensics.report.look import Look
    from kvforensics.report.page import EngineSection, Page
    from kvforensics.report.waterfall import Waterfall

SOURCE_ROOM = 24
"""Characters for the lines that a figure came from, unless a form has more room."""
BAR_CELLS = 20
BAR = 4
"""The column of a waterfall's row that holds its bar, where there is a scale."""
CAPACITY_HEADS = ("capacity", "", "", "source")
RANK_HEADS = ("rank", "node", "W, GiB", "M, GiB", "blocks", "", "source")


def where(lines: tuple[int, ...]) -> str:
    """Give the lines behind a statement in brackets; nothing for none."""
    return f" ({line_numbers(lines, SOURCE_ROOM)})" if lines else ""


def capacity_rows(section: EngineSection, room: int = SOURCE_ROOM) -> list[tuple[str, ...]]:
    """Give the rows under CAPACITY_HEADS."""
    return [(f.symbol, f.meaning, f.value, f.source.text(room)) for f in section.capacity]


def rank_rows(page: Page, room: int = SOURCE_ROOM) -> list[tuple[str, ...]]:
    """Give the rows under RANK_HEADS."""
    return [
        (r.name, r.node, r.weights, r.available, r.blocks, "binds" if r.binds else "", r.source.text(room))
        for r in page.ranks
    ]


def waterfall_heads(fall: Waterfall) -> list[str]:
    """Give a waterfall's heads; shares and bars have columns only where there is a scale."""
    return ["", "", "GiB", *([f"of {fall.scale}", ""] if fall.scale else []), "source"]


def waterfall_rows(fall: Waterfall, look: Look) -> list[list[str]]:
    """Give a waterfall's rows; the bar, in column BAR, is a drawing and no words."""
    dot = "." if look.ascii_only else "·"
    rows = []
    for step in fall.steps:
        sign = "-" if step.kind == "taken" else ""
        label = f"of it {step.label}" if step.kind == "part" else step.label
        row = [sign + step.symbol, label, step.size]
        if fall.scale:
            bar = draw(step.bar, BAR_CELLS, ascii_only=look.ascii_only, track=dot) if step.bar else ""
            row += [step.share, bar]
        rows.append([*row, step.source.text(SOURCE_ROOM)])
    return rows
