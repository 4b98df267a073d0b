"""The report as Slack mrkdwn: short, tables as blocks of fixed width, for it has no others."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kvforensics.report.cells import where
from kvforensics.report.page import pages
from kvforensics.report.table import capacity_text, waterfall_text
from kvforensics.report.wording import ascii_only

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kvforensics.explanation import Report
    from kvforensics.report.look import Look
    from kvforensics.report.page import EngineSection, Page

WIDTH = 90
"""Columns of the blocks: what a message shows without wrapping, and the figures' words need."""
MARKS = frozenset("*_~`")
EMOJI = re.compile(r":[\w+'-]+:")
SIGNS = {
    "error": ":red_circle:",
    "warning": ":large_orange_circle:",
    "note": ":white_circle:",
    "": ":large_green_circle:",
}


def render(report: Report, look: Look) -> str:
    """Give the report as mrkdwn. Raises UsageFault where `look` asks for a start-up that is not there."""
    shown = look._replace(width=look.width or WIDTH)
    text = "\n\n".join("\n".join(_lines(page, shown)) for page in pages(report, look)) + "\n"
    return ascii_only(text) if look.ascii_only else text


def escaped(text: str) -> str:
    """Give text in which nothing is markup: Slack knows no escape but code for what would set type."""
    entities = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    padded = f" {text} "
    sets_type = any(
        mark in MARKS and not (mark == "_" and before.isalnum() and after.isalnum())
        for before, mark, after in zip(padded, text, padded[2:], strict=False)
    )
    return f"`{entities.replace('`', chr(39))}`" if sets_type or EMOJI.search(text) else entities


def _lines(page: Page, look: Look) -> list[str]:
    found = [f"*{escaped(page.headline)}*"]
    found += [escaped(section.titled(section.key)) for section in page.engines]
    if page.verdict.answer:
        found.append(f"{SIGNS[page.verdict.severity]} {escaped(page.verdict.answer)}")
    found += [f"• {fact.label}: {escaped(fact.text)}{where(fact.lines)}" for fact in page.facts]
    found += _list("Conflicts: lines that cannot all be true", page.conflicts)
    for section in page.engines:
        found += _section(section, look)
    found += _findings(page)
    return [*found, *_list("Missing", page.missing)]


def _section(section: EngineSection, look: Look) -> list[str]:
    found = []
    for fall in section.waterfalls:
        found += [
            f"*{_plain(section.titled(fall.rank))}: where the memory went*",
            *_block(waterfall_text(fall, look)),
        ]
    notes = " ".join(section.notes)
    found += [escaped(notes)] if notes else []
    return [*found, *_block(capacity_text(section, look))] if section.capacity else found


def _plain(text: str) -> str:
    """Give text for bold type, where code cannot stand: without the characters that would end it."""
    return "".join(c for c in text if c not in "*~`").replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _block(text: str) -> list[str]:
    """Give text of fixed width; nothing in it is markup but the three marks that would end it."""
    safe = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("`", "'")
    return ["```", safe.strip("\n"), "```"]


def _findings(page: Page) -> list[str]:
    found = ["*Findings*"] if page.verdict.findings else []
    for finding in page.verdict.findings:
        found.append(
            f"{SIGNS[finding.severity]} {escaped(f'{finding.severity}: {finding.title}')}{where(finding.lines)}"
        )
        found += [f"    • {escaped(part)}" for part in finding.parts]
    return found


def _list(title: str, items: Iterable[str]) -> list[str]:
    lines = [f"• {escaped(item)}" for item in items]
    return [f"*{title}*", *lines] if lines else []
