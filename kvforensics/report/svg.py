"""The table as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvforensics.report import table
from kvforensics.report.markup_svg import WIDTH, drawn

if TYPE_CHECKING:
    from kvforensics.explanation import Report
    from kvforensics.report.look import Look


def render(report: Report, look: Look) -> str:
    """Give the picture. Raises UsageFault where `look` asks for a start-up that is not there."""
    shown = look._replace(width=look.width or WIDTH)
    return drawn(table.render(report, shown, colour=True), shown)
