"""Five lines for a ticket's first comment: what it was, what came of it, what is wrong, what to do, where it says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvforensics.findings import REASONS
from kvforensics.report.brief_lines import BriefLine
from kvforensics.report.page import pages
from kvforensics.report.wording import line_numbers

if TYPE_CHECKING:
    from kvforensics.explanation import Report
    from kvforensics.report.look import Look
    from kvforensics.report.page import Page

SOURCE_ROOM = 30
END_TOLD = REASONS | {"unexplained-failure"}
"""Findings whose title needs the line that the start ended by."""


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
        BriefLine("verdict", _verdict(page, facts)),
        BriefLine("do", _advice(page)),
        BriefLine("log", facts.get("log", "") + _evidence(page) + _others(facts)),
    )


def _verdict(page: Page, facts: dict[str, str]) -> str:
    """Give the heaviest finding with its cost, and the cause that stands before it or the line that tells it."""
    worst, section = page.verdict.first, page.verdict
    if worst is None or not section.severity:
        return section.answer or "nothing that could be judged is wrong"
    cost = f", {worst.toll} {worst.cost}" if worst.cost else ""
    cause = section.findings[0]
    before = f"; before it: {cause.title}" if cause is not worst else ""
    end = f"; ended by {facts['ended by']}" if worst.id in END_TOLD and "ended by" in facts else ""
    return section.answer + cost + before + end


def _advice(page: Page) -> str:
    """Give the first thing to do against what is wrong: against the heaviest finding, else against another.

    Where the start ended by what no other finding is about, advice against those would mislead.
    """
    first = page.verdict.first if page.verdict.severity else None
    others = page.verdict.findings if first and first.id not in END_TOLD else ()
    wrong = [first, *others]
    advice = [one for finding in wrong if finding for one in finding.advice]
    return advice[0].sentence() if advice else "nothing that the log could tell"


def _others(facts: dict[str, str]) -> str:
    return f"; {facts['start-ups']}" if "start-ups" in facts else ""


def _evidence(page: Page) -> str:
    worst = page.verdict.first if page.verdict.severity else None
    return f"; see {line_numbers(worst.lines, SOURCE_ROOM)}" if worst and worst.lines else ""
