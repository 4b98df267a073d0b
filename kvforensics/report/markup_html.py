"""HTML as every report writes it: one file without script that fetches nothing, every text escaped."""

from __future__ import annotations

from html import escape
from itertools import repeat
from typing import TYPE_CHECKING

from kvforensics.report.html_style import STYLE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from kvforensics.report.bars import Bar

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""What the file may load: nothing but its own style, whatever a log smuggled in."""


def whole_page(title: str, mains: Iterable[str], *, ascii_only: bool) -> str:
    """Give the whole file around the parts that `main` gave; a character reference says what ASCII cannot."""
    body = "\n".join(mains)
    text = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )
    return text.encode("ascii", "xmlcharrefreplace").decode() if ascii_only else text


def main(parts: Iterable[str], name: str = "") -> str:
    """Give one report's part of the page, of a class if named; empty parts are dropped."""
    return f"<main{_class(name)}>\n" + "\n".join(filter(None, parts)) + "\n</main>"


def element(tag: str, text: str, name: str = "") -> str:
    """Give an element that holds a text, of a class if named."""
    return f"<{tag}{_class(name)}>{escape(text)}</{tag}>"


def facts(rows: Iterable[tuple[str, str, str]]) -> str:
    """Give a list of labels with what stands beside them, HTML already, and its class."""
    listed = (f"{element('dt', label)}<dd{_class(name)}>{html}</dd>" for label, html, name in rows)
    return "\n".join(["<dl>", *listed, "</dl>"])


def titled_list(title: str, items: Iterable[str], name: str = "") -> list[str]:
    """Give a titled list of what is HTML already; nothing where it is empty."""
    rows = "\n".join(f"<li>{item}</li>" for item in items)
    return [element("h2", title, name), f"<ul>\n{rows}\n</ul>"] if rows else []


def text_table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, right: Collection[int] = ()) -> str:
    """Give a table of texts; the columns `right` are flush right."""
    names = ["r" if i in right else "" for i in range(len(heads))]
    return table(heads, (("", list(map(cell, row, names))) for row in rows), names)


def table(heads: Sequence[str], rows: Iterable[tuple[str, Sequence[str]]], names: Sequence[str], name: str = "") -> str:
    """Give a table: the classes of its heads are `names`, its rows a class and cells as `cell` gives them."""
    head = "".join(map(element, repeat("th"), heads, names))
    body = "\n".join(f"<tr{_class(kind)}>{''.join(cells)}</tr>" for kind, cells in rows)
    opened = f'<div class="scroll"><table{_class(name)}>\n<thead><tr>{head}</tr></thead>'
    return f"{opened}\n<tbody>\n{body}\n</tbody></table></div>"


def cell(text: str, name: str = "") -> str:
    """Give a table's cell that holds a text."""
    return element("td", text, name)


def bar(drawn: Bar, label: str) -> str:
    """Draw a bar; `label` says it to who cannot see it."""
    spans = "".join(
        f'<i class="{name}" style="left:{100 * start:.3f}%;width:{100 * (end - start):.3f}%"></i>'
        for name, (start, end) in (("open", drawn.open), ("sure", drawn.sure))
        if end > start
    )
    return f'<div class="track" role="img" aria-label="{escape(label)}">{spans}</div>'


def _class(name: str) -> str:
    return f' class="{escape(name)}"' if name else ""
