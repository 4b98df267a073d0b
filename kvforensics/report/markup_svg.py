"""Pictures of a terminal's coloured text, drawn by rich."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from kvforensics.report.look import Look

WIDTH = 100
"""Columns unless asked otherwise: bars and sources have room, and a ticket shows the picture without scrolling."""
FRAME = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: {char_height}px;
line-height: {line_height}px; font-variant-east-asian: full-width; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: system-ui, sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
"""The frame that rich fills; unlike rich's own it names no font to fetch, so that opening the picture tells nobody."""


def drawn(coloured: str, look: Look) -> str:
    """Give ANSI-coloured text of `look.width` columns as a picture."""
    text = Text.from_ansi(coloured, no_wrap=True)
    console = Console(file=io.StringIO(), record=True, width=look.width, force_terminal=True, legacy_windows=False)
    console.print(text, crop=False)
    return console.export_svg(title="kvforensics", code_format=FRAME, unique_id="kvforensics")
