"""Jira wiki markup as every report writes it: nothing foreign is markup."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kvforensics.report.wording import ascii_only

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kvforensics.report.look import Look

ALWAYS = frozenset("{}[]|*^~!#")
"""Characters that start markup wherever they stand; `_`, `-` and `+` do at a word's edge only, `??` twice."""
EDGES = frozenset("_-+")
ICON = re.compile(r"\((?=(?:[xyi!/?+-]|on|off|\*[rgby]?|flag|flagoff)\))|[:;](?=[()DPp])")
"""Where one of Jira's icons begins."""
BACKSLASH = "&#92;"
"""Two backslashes would break the line, and one escapes what follows."""
MACRO_LIKE = re.compile(r"\?(?=\?)")
COLOURS = {"error": "red", "warning": "orange", "note": "gray", "": "green"}


def whole_text(reports: Iterable[Iterable[str]], look: Look) -> str:
    """Give reports, each as its blocks, as one text; empty blocks are dropped."""
    text = "\n\n----\n\n".join("\n\n".join(filter(None, blocks)) for blocks in reports) + "\n"
    return ascii_only(text) if look.ascii_only else text


def escaped(text: str) -> str:
    """Give text in which nothing is markup, inside a table cell too."""
    padded = f" {text} "
    found = []
    for i, (before, mark, after) in enumerate(zip(padded, text, padded[2:], strict=False)):
        edge = mark in EDGES and not (before.isalnum() and after.isalnum())
        starts = ICON.match(text, i) or MACRO_LIKE.match(text, i)
        found.append(BACKSLASH if mark == "\\" else f"\\{mark}" if mark in ALWAYS or edge or starts else mark)
    return "".join(found)


def bold(text: str) -> str:
    """Give a text in bold type."""
    return f"*{escaped(text)}*"


def coloured(text: str, severity: str) -> str:
    """Give a text in bold type and the colour of a severity."""
    return f"{{color:{COLOURS[severity]}}}{bold(text)}{{color}}"


def code(text: str) -> str:
    """Give a text in type of one width."""
    return f"{{{{{escaped(text)}}}}}"


def titled_list(title: str, items: Iterable[str]) -> list[str]:
    """Give a titled list of what is wiki markup already; nothing where it is empty."""
    text = bullets(items)
    return [bold(title), text] if text else []


def bullets(items: Iterable[str]) -> str:
    """Give a list of what is wiki markup already."""
    return "\n".join(f"* {item}" for item in items)


def text_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Give a table of texts."""
    return "\n".join([row_of(map(escaped, heads), "||"), *(row_of(map(escaped, row), "|") for row in rows)])


def row_of(cells: Iterable[str], mark: str) -> str:
    """Give a row; an empty cell holds a blank, else it would merge with the next."""
    return mark + mark.join(cell or " " for cell in cells) + mark
