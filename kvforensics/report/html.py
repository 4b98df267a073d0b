"""The report as one HTML file: no script, nothing fetched, the waterfall drawn with CSS, every text escaped."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from kvforensics.report.cells import RANK_HEADS, capacity_rows, rank_rows
from kvforensics.report.geometry_section import HEADS
from kvforensics.report.html_style import STYLE
from kvforensics.report.page import pages
from kvforensics.report.sizes import UNKNOWN
from kvforensics.report.wording import line_numbers

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kvforensics.explanation import Report
    from kvforensics.report.bars import Bar
    from kvforensics.report.findings_section import FindingText
    from kvforensics.report.look import Look
    from kvforensics.report.page import EngineSection, Page
    from kvforensics.report.waterfall import Step, Waterfall

SOURCE_ROOM = 30
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""What the file may load: nothing but its own style, whatever a log smuggled in."""


def render(report: Report, look: Look) -> str:
    """Give the whole file. Raises UsageFault where `look` asks for a start-up that is not there."""
    shown = pages(report, look)
    body = "\n".join(_page(page) for page in shown)
    text = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(shown[0].headline)}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )
    # A character reference says in HTML what a backslash says in the other forms.
    return text.encode("ascii", "xmlcharrefreplace").decode() if look.ascii_only else text


def _page(page: Page) -> str:
    parts = [f'<h1 class="{escape(page.outcome)}">{escape(page.headline)}</h1>']
    parts += [f'<p class="key">{escape(s.titled(s.key))}</p>' for s in page.engines]
    if page.verdict.answer:
        parts.append(f'<p class="verdict {page.verdict.severity or "well"}">{escape(page.verdict.answer)}</p>')
    parts.append(_facts(page))
    parts += _list("Conflicts: lines that cannot all be true", map(escape, page.conflicts), "conflicts")
    parts += [_section(section) for section in page.engines]
    parts.append(_ranks(page))
    if page.verdict.findings:
        parts += ["<h2>Findings</h2>", *(_finding(f) for f in page.verdict.findings)]
    parts.append(_geometry(page))
    parts += _list("Missing", map(escape, page.missing))
    quotes = [f"L{quote.line} <code>{escape(quote.text)}</code>" for quote in page.unread]
    parts += _list("Lines about memory that no rule took", [*quotes, *page.unquoted])
    if page.legend:
        parts.append(f'<p class="legend">{escape("; ".join(page.legend))}</p>')
    return "<main>\n" + "\n".join(filter(None, parts)) + "\n</main>"


def _facts(page: Page) -> str:
    rows = []
    for fact in page.facts:
        where = f' <span class="where">{line_numbers(fact.lines, SOURCE_ROOM)}</span>' if fact.lines else ""
        alarm = ' class="alarm"' if fact.alarm else ""
        rows.append(f"<dt>{escape(fact.label)}</dt><dd{alarm}>{escape(fact.text)}{where}</dd>")
    return "\n".join(["<dl>", *rows, "</dl>"])


def _section(section: EngineSection) -> str:
    parts = []
    for fall in section.waterfalls:
        parts.append(f"<h2>{escape(section.titled(fall.rank))}: where the memory went</h2>")
        parts.append(_waterfall(fall))
    notes = " ".join(section.notes)
    parts.append(f'<p class="remark">{escape(notes)}</p>' if notes else "")
    if section.capacity:
        rows = capacity_rows(section, SOURCE_ROOM)
        parts += ["<h2>Capacity</h2>", _table(("", "", "", "source"), rows)]
    return "\n".join(filter(None, parts))


def _waterfall(fall: Waterfall) -> str:
    scale = f"of {fall.scale}" if fall.scale else ""
    heads = (
        f'<tr><th></th><th></th><th class="r">GiB</th><th class="r">{escape(scale)}</th><th></th><th>source</th></tr>'
    )
    rows = "\n".join(_step(step) for step in fall.steps)
    return f'<div class="scroll"><table class="fall">\n<thead>{heads}</thead>\n<tbody>\n{rows}\n</tbody></table></div>'


def _step(step: Step) -> str:
    sign = "−" if step.kind == "taken" else ""
    unknown = " unknown" if step.size == UNKNOWN else ""
    track = _bar(step.bar, f"{step.symbol} {step.size} GiB") if step.bar else ""
    return (
        f'<tr class="{step.kind}"><td class="symbol">{sign}{escape(step.symbol)}</td><td>{escape(step.label)}</td>'
        f'<td class="r{unknown}">{escape(step.size)}</td><td class="r">{escape(step.share)}</td>'
        f'<td class="bar">{track}</td><td class="where">{escape(step.source.text(SOURCE_ROOM))}</td></tr>'
    )


def _bar(bar: Bar, label: str) -> str:
    spans = "".join(
        f'<i class="{name}" style="left:{100 * start:.3f}%;width:{100 * (end - start):.3f}%"></i>'
        for name, (start, end) in (("open", bar.open), ("sure", bar.sure))
        if end > start
    )
    return f'<div class="track" role="img" aria-label="{escape(label)}">{spans}</div>'


def _ranks(page: Page) -> str:
    rows = rank_rows(page, SOURCE_ROOM)
    return "<h2>Ranks</h2>\n" + _table(RANK_HEADS, rows, right=(2, 3, 4)) if rows else ""


def _finding(finding: FindingText) -> str:
    where = f' <span class="where">{line_numbers(finding.lines, SOURCE_ROOM)}</span>' if finding.lines else ""
    parts = [f"<h3><b>{finding.severity}</b> {escape(finding.title)}{where}</h3>"]
    parts += [f"<p>{escape(finding.detail)}</p>"] if finding.detail else []
    parts += [f'<p class="cost">costs {escape(finding.cost)}</p>'] if finding.cost else []
    advice = []
    for one in finding.advice:
        expect = f"<br>expect {escape(one.expect)}" if one.expect else ""
        risk = f'<br><span class="where">risk: {escape(one.risk)}</span>' if one.risk else ""
        advice.append(f"<li>{escape(one.do)}{expect}{risk}</li>")
    parts += [f"<ul>{''.join(advice)}</ul>"] if advice else []
    return f'<section class="finding {finding.severity}" id="{escape(finding.id)}">{"".join(parts)}</section>'


def _geometry(page: Page) -> str:
    section = page.geometry
    if section is None:
        return ""
    parts = _list(section.title, map(escape, section.notes), "conflicts" if section.alarm else "")
    if section.verdicts:
        parts.append(_table(HEADS, section.verdicts, right=(1, 2)))
    return "\n".join(parts)


def _list(title: str, items: Iterable[str], name: str = "") -> list[str]:
    """Give a titled list of what is HTML already; nothing where it is empty."""
    lines = "\n".join(f"<li>{item}</li>" for item in items)
    mark = f' class="{name}"' if name else ""
    return [f"<h2{mark}>{escape(title)}</h2>", f"<ul>\n{lines}\n</ul>"] if lines else []


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[int] = ()) -> str:
    flush = [' class="r"' if i in right else "" for i in range(len(heads))]
    head = "".join(f"<th{f}>{escape(h)}</th>" for h, f in zip(heads, flush, strict=True))
    body = "\n".join(
        "<tr>" + "".join(f"<td{f}>{escape(c)}</td>" for c, f in zip(row, flush, strict=True)) + "</tr>" for row in rows
    )
    return f'<div class="scroll"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>'
