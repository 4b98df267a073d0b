"""The report as one HTML file, the waterfall drawn with CSS."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from kvforensics.report.cells import RANK_HEADS, capacity_rows, rank_rows
from kvforensics.report.geometry_section import HEADS
from kvforensics.report.markup_html import bar, cell, element, facts, main, table, text_table, titled_list, whole_page
from kvforensics.report.page import pages
from kvforensics.report.sizes import UNKNOWN
from kvforensics.report.wording import line_numbers

if TYPE_CHECKING:
    from kvforensics.explanation import Report
    from kvforensics.report.findings_section import FindingText
    from kvforensics.report.look import Look
    from kvforensics.report.page import EngineSection, Page
    from kvforensics.report.waterfall import Step, Waterfall

SOURCE_ROOM = 30


def render(report: Report, look: Look) -> str:
    """Give the whole file. Raises UsageFault where `look` asks for a start-up that is not there."""
    shown = pages(report, look)
    return whole_page(shown[0].headline, map(_page, shown), ascii_only=look.ascii_only)


def _page(page: Page) -> str:
    parts = [element("h1", page.headline, page.outcome)]
    parts += [element("p", s.titled(s.key), "key") for s in page.engines]
    if page.verdict.answer:
        parts.append(element("p", page.verdict.answer, f"verdict {page.verdict.severity or 'well'}"))
    parts.append(facts((f.label, escape(f.text) + _where(f.lines), "alarm" if f.alarm else "") for f in page.facts))
    parts += titled_list("Conflicts: lines that cannot all be true", map(escape, page.conflicts), "conflicts")
    parts += [_section(section) for section in page.engines]
    parts.append(_ranks(page))
    if page.verdict.findings:
        parts += ["<h2>Findings</h2>", *(_finding(f) for f in page.verdict.findings)]
    parts += _geometry(page)
    parts += titled_list("Missing", map(escape, page.missing))
    quotes = [f"L{quote.line} {element('code', quote.text)}" for quote in page.unread]
    parts += titled_list("Lines about memory that no rule took", [*quotes, *page.unquoted])
    return main([*parts, element("p", "; ".join(page.legend), "legend") if page.legend else ""])


def _where(lines: tuple[int, ...]) -> str:
    return f' <span class="where">{line_numbers(lines, SOURCE_ROOM)}</span>' if lines else ""


def _section(section: EngineSection) -> str:
    parts = []
    for fall in section.waterfalls:
        parts += [element("h2", f"{section.titled(fall.rank)}: where the memory went"), _waterfall(fall)]
    notes = " ".join(section.notes)
    parts.append(element("p", notes, "remark") if notes else "")
    if section.capacity:
        parts += ["<h2>Capacity</h2>", text_table(("", "", "", "source"), capacity_rows(section, SOURCE_ROOM))]
    return "\n".join(filter(None, parts))


def _waterfall(fall: Waterfall) -> str:
    heads = ("", "", "GiB", f"of {fall.scale}" if fall.scale else "", "", "source")
    return table(heads, [(step.kind, _step(step)) for step in fall.steps], ("", "", "r", "r", "", ""), "fall")


def _step(step: Step) -> list[str]:
    sign = "−" if step.kind == "taken" else ""
    track = bar(step.bar, f"{step.symbol} {step.size} GiB") if step.bar else ""
    return [
        cell(sign + step.symbol, "symbol"),
        cell(step.label),
        cell(step.size, "r unknown" if step.size == UNKNOWN else "r"),
        cell(step.share, "r"),
        f'<td class="bar">{track}</td>',
        cell(step.source.text(SOURCE_ROOM), "where"),
    ]


def _ranks(page: Page) -> str:
    rows = rank_rows(page, SOURCE_ROOM)
    return "<h2>Ranks</h2>\n" + text_table(RANK_HEADS, rows, right=(2, 3, 4)) if rows else ""


def _finding(finding: FindingText) -> str:
    parts = [f"<h3><b>{finding.severity}</b> {escape(finding.title)}{_where(finding.lines)}</h3>"]
    parts += [element("p", finding.detail)] if finding.detail else []
    parts += [element("p", f"{finding.toll} {finding.cost}", "cost")] if finding.cost else []
    advice = []
    for one in finding.advice:
        expect = f"<br>expect {escape(one.expect)}" if one.expect else ""
        risk = f"<br>{element('span', f'risk: {one.risk}', 'where')}" if one.risk else ""
        advice.append(f"<li>{escape(one.do)}{expect}{risk}</li>")
    parts += [f"<ul>{''.join(advice)}</ul>"] if advice else []
    return f'<section class="finding {finding.severity}" id="{escape(finding.id)}">{"".join(parts)}</section>'


def _geometry(page: Page) -> list[str]:
    section = page.geometry
    if section is None:
        return []
    parts = titled_list(section.title, map(escape, section.notes), "conflicts" if section.alarm else "")
    return [*parts, text_table(HEADS, section.verdicts, right=(1, 2))] if section.verdicts else parts
