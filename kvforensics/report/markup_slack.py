"""Slack mrkdwn as every report writes it: tables are blocks of fixed width, for it has no others."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kvforensics.report.wording import ascii_only

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kvforensics.report.look import Look

WIDTH = 90
"""Columns of the blocks: what a message shows without wrapping, and the figures' words need."""
MARKS = frozenset("*_~`")
NAMES = re.compile(r":[\w+'-]+:|@\w")
"""What Slack would put a picture or a person for."""
SIGNS = {
    "error": ":red_circle:",
    "warning": ":large_orange_circle:",
    "note": ":white_circle:",
    "": ":large_green_circle:",
}
MOODS = {"good": f"{SIGNS['']} ", "bad": f"{SIGNS['error']} ", "open": f"{SIGNS['warning']} ", "plain": ""}
"""What stands before a document's headline."""


def whole_text(reports: Iterable[Iterable[str]], look: Look) -> str:
    """Give reports, each as its lines, as one text."""
    text = "\n\n".join("\n".join(lines) for lines in reports) + "\n"
    return ascii_only(text) if look.ascii_only else text


def escaped(text: str) -> str:
    """Give text in which nothing is markup: Slack knows no escape but code for what would set type."""
    return f"`{_entities(text.replace('`', chr(39)))}`" if _sets_type(text) else _entities(text)


def bold(text: str) -> str:
    """Give text in bold type; as code where it would set type of its own."""
    return escaped(text) if _sets_type(text) else f"*{_entities(text)}*"


def _sets_type(text: str) -> bool:
    padded = f" {text} "
    marked = any(
        mark in MARKS and not (mark == "_" and before.isalnum() and after.isalnum())
        for before, mark, after in zip(padded, text, padded[2:], strict=False)
    )
    return marked or NAMES.search(text) is not None


def block(text: str) -> list[str]:
    """Give text of fixed width; nothing in it is markup but the three marks that would end it."""
    return ["```", _entities(text.replace("`", "'")).strip("\n"), "```"]


def titled_list(title: str, items: Iterable[str]) -> list[str]:
    """Give a titled list of texts; nothing where it is empty."""
    lines = [f"• {escaped(item)}" for item in items]
    return [bold(title), *lines] if lines else []


def _entities(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
