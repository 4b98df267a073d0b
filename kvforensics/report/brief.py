"""Five lines for a ticket's first comment: what it was, what came of it, what is wrong, what to do, where it says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvforensics.report.brief_lines import BriefLine
from kvforensics.report.page import pages
from kvforensics.report.wording import line_numbers

if TYPE_CHECKING:
    from kvforensics.explanation import Report
    from kvforensics.report.look import Look
    from kvforensics.report.page import Page

SOURCE_ROOM = 30


def briefs(report: Report, look: Look) -> tuple[tuple[BriefLine, ...], ...]:
    """Give the five lines of each start-up asked for. Raises UsageFault where there is no such start-up."""
    return tuple(_brief(page) for page in pages(report, look))


def _brief(page: Page) -> tuple[BriefLine, ...]:
    facts = {fact.label: fact.text for fact in page.facts}
    model = facts.get("model", "")
    answers = [section.titled(section.key) for section in page.engines]
    return (
        BriefLine("start-up", page.headline + (f"; {model}" if model else "")),
        BriefLine("memory", "; ".join(answers) or facts.get("ended by", "no worker has said anything of its memory")),
        BriefLine("verdict", _verdict(page)),
        BriefLine("do", _advice(page)),
        BriefLine("log", facts.get("log", "") + _evidence(page)),
    )


def _verdict(page: Page) -> str:
    """Give the worst finding with its cost, and the cause that stands before it."""
    worst, section = page.verdict.first, page.verdict
    if worst is None or not section.severity:
        return section.answer or "nothing that could be judged is wrong"
    cost = f", costs {worst.cost}" if worst.cost else ""
    cause = section.findings[0]
    before = f"; before it: {cause.title}" if cause is not worst else ""
    return section.answer + cost + before


def _advice(page: Page) -> str:
    """Give the first thing to do against what is wrong: against the worst finding, else against another."""
    wrong = [page.verdict.first, *page.verdict.findings] if page.verdict.severity else []
    advice = [one for finding in wrong if finding for one in finding.advice]
    return advice[0].sentence() if advice else "nothing that the log could tell"


def _evidence(page: Page) -> str:
    worst = page.verdict.first if page.verdict.severity else None
    return f"; see {line_numbers(worst.lines, SOURCE_ROOM)}" if worst and worst.lines else ""
