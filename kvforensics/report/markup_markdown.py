"""GitHub-flavoured Markdown as every report writes it: readable as plain text too, no HTML, nothing foreign is markup."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvforensics.report.wording import ascii_only

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from kvforensics.report.look import Look

SPECIAL = frozenset("\\`*[]<|~&$")
"""Characters that start markup; an underscore does at a word's edge only."""


def whole_text(reports: Iterable[Iterable[str]], look: Look) -> str:
    """Give reports, each as its blocks, as one text; empty blocks are dropped."""
    text = "\n\n---\n\n".join("\n\n".join(filter(None, blocks)) for blocks in reports) + "\n"
    return ascii_only(text) if look.ascii_only else text


def bullets(lines: Iterable[str]) -> str:
    """Give a list of what is Markdown already."""
    return "\n".join(f"- {line}" for line in lines)


def titled_list(title: str, lines: Iterable[str]) -> list[str]:
    """Give a titled list of what is Markdown already; nothing where it is empty."""
    text = bullets(lines)
    return [f"**{escaped(title)}**", text] if text else []


def text_table(heads: Sequence[str], rows: Iterable[Sequence[str]], look: Look, *, right: Collection[str] = ()) -> str:
    """Give a table of texts; columns under the heads `right` are flush right."""
    return table(heads, [[escaped(cell) for cell in row] for row in rows], look, right=right)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], look: Look, *, right: Collection[str] = ()) -> str:
    """Give a table of what is Markdown already; its columns line up as plain text too."""
    if look.ascii_only:
        rows = [[ascii_only(cell) for cell in row] for row in rows]
    widths = [max(3, len(head), *(len(row[i]) for row in rows)) for i, head in enumerate(heads)]
    flush = [head in right for head in heads]
    rule = [f"{'-' * (w - 1)}:" if r else "-" * w for w, r in zip(widths, flush, strict=True)]
    lines = [_row(heads, widths, flush), f"| {' | '.join(rule)} |", *(_row(row, widths, flush) for row in rows)]
    return "\n".join(lines)


def _row(cells: Sequence[str], widths: Sequence[int], flush: Sequence[bool]) -> str:
    padded = [c.rjust(w) if r else c.ljust(w) for c, w, r in zip(cells, widths, flush, strict=True)]
    return f"| {' | '.join(padded)} |"


def escaped(text: str) -> str:
    """Give text in which nothing is markup, inside a table cell too, and nobody is called by name."""
    padded = f" {text} "
    found = []
    for before, mark, after in zip(padded, text, padded[2:], strict=False):
        inside_word = before.isalnum() and after.isalnum()
        special = mark in SPECIAL or (mark == "_" and not inside_word)
        found.append("`@`" if mark == "@" and after.isalnum() else f"\\{mark}" if special else mark)
    return "".join(found)


def code(text: str) -> str:
    """Give text as inline code, whatever backticks it holds; not for table cells, where a pipe would end it."""
    ticks = "`"
    while ticks in text:
        ticks += "`"
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{pad}{text}{pad}{ticks}"
