"""Plans and calibrations as plain text.

Laid out here and not by rich, whose import would take longer than the plan itself.
"""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

from kvforensics.report.document import Grid
from kvforensics.report.plan_document import plan_document, scan_document
from kvforensics.report.wording import ascii_only
from reconstruct.rounding import GIB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvforensics.calibration import Calibration
    from kvforensics.planning import Plan, Request, ScanRow
    from kvforensics.report.document import Document
    from kvforensics.report.look import Look

NARROWEST = 20
"""Columns that sentences are given however wide the figures beside them are."""
ERROR_HEADS = ("models", "term", "figures", "median", "largest", "in band", "half band")
REFIT_HEADS = ("constant", "shipped", "these logs", "unit", "points", "outliers", "left out: median", "largest")
FIGURE_HEADS = ("start", "vLLM", "term", "low", "high", "likely", "measured", "error", "")


def render(plan: Plan, look: Look) -> str:
    """Give one plan as text."""
    return _plain(plan_document(plan, look), look)


def render_scan(request: Request, rows: Sequence[ScanRow], look: Look) -> str:
    """Give a scan as one table."""
    return _plain(scan_document(request, rows, look), look)


def _plain(document: Document, look: Look) -> str:
    """Give a document as text: columns are as wide as they need to be, sentences wrapped."""
    facts = "\n".join(_wrapped(f"{label:9} {text}", look, " " * 10) for label, text in document.facts)
    blocks = [f"{_wrapped(document.headline, look, '')}\n{facts}"]
    for block in document.blocks:
        if isinstance(block, Grid):
            blocks.append(f"{block.title}\n{aligned(block.heads, _fitted(block, look))}")
        else:
            blocks.append("\n".join([block.title, *(_wrapped(f"- {line}", look, "  ") for line in block.lines)]))
    return _finished("\n\n".join(blocks) + "\n", look)


def render_calibration(found: Calibration, look: Look, *, markdown: bool = False) -> str:
    """Give the errors by term and kind, the constants refitted, and predicted and measured for every figure.

    Markdown names models and not logs, whose names tell a reader nothing.
    """
    table = marked if markdown else aligned
    blocks = [
        _titled("Errors by term", table(ERROR_HEADS, _errors(found)), markdown=markdown),
        _titled("Constants", table(REFIT_HEADS, _refits(found)), markdown=markdown),
        _titled(
            "Every figure, bytes in GiB", table(FIGURE_HEADS, _figures(found, markdown=markdown)), markdown=markdown
        ),
    ]
    if not markdown:
        blocks.append("\n".join(_wrapped(f"not compared: {s.log}: {s.reason}", look, "  ") for s in found.skipped))
    return _finished("\n\n".join(block for block in blocks if block) + "\n", look)


def _titled(title: str, table: str, *, markdown: bool) -> str:
    return f"## {title}\n\n{table}" if markdown else f"{title}\n{table}"


def _errors(found: Calibration) -> list[list[str]]:
    """One line for each term of each kind of model, over all, and M with N from other models."""
    from kvforensics.calibration import summary

    listed = [*summary(found.rows), *summary(found.rows, by_kind=True)]
    listed += [e._replace(term="M, model left out") for e in summary(found.left_out)]
    return [
        [e.kind or "all", e.term, str(e.figures), f"{100 * e.median:.2f}%", f"{100 * e.largest:.2f}%",
         f"{e.inside} of {e.figures}", f"{100 * e.width:.1f}%"]
        for e in listed
    ]  # fmt: skip


def _refits(found: Calibration) -> list[list[str]]:
    return [
        [f.name, f"{f.shipped:.3f}", f"{f.fitted:.3f}", f.unit, str(f.points), str(f.outliers),
         f"{f.left_out_median:.3f}", f"{f.left_out_largest:.3f}"]
        for f in found.refits
    ]  # fmt: skip


def _figures(found: Calibration, *, markdown: bool) -> list[list[str]]:
    rows = []
    for r in found.rows:
        cached = next((part for part in r.model.split("/") if part.startswith("models--")), None)
        model = cached.removeprefix("models--").replace("--", "/", 1) if cached else r.model
        name = f"{model} {r.ranks}".strip() if markdown else f"{r.log[:38]} {r.rank}"
        middle = (float(r.measured.low or 0) + float(r.measured.high or 0)) / 2
        sizes = [_size(r.term, value) for value in (r.predicted.low, r.predicted.high, r.expected, middle)]
        rows.append([name, r.release, r.term, *sizes, f"{100 * r.error:+.2f}%", "" if r.inside else "outside"])
    return list(map(list, dict.fromkeys(map(tuple, rows)))) if markdown else rows


def marked(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Give rows as a Markdown table."""
    lines = [list(heads), ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def aligned(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Give rows in columns as wide as their widest cell, figures to the right."""
    table = [list(heads), *(list(row) for row in rows)]
    widths = [max(len(row[i]) for row in table) for i in range(len(heads))]
    right = [
        bool(rows) and all(not row[i] or row[i][:1] in "0123456789-+≥≤" for row in rows) for i in range(len(heads))
    ]
    lines = [
        "  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)).rstrip()
        for row in table
    ]
    return "\n".join(line for i, line in enumerate(lines) if i or line)


def _finished(text: str, look: Look) -> str:
    return ascii_only(text) if look.ascii_only else text


def _wrapped(text: str, look: Look, indent: str) -> str:
    return "\n".join(wrap(text, look.columns, subsequent_indent=indent))


def _fitted(grid: Grid, look: Look) -> list[list[str]]:
    """Give a table's rows with the last column, of sentences, wrapped into further rows."""
    lines = [grid.heads, *grid.rows]
    room = (look.columns) - sum(max(len(line[i]) for line in lines) + 2 for i in range(len(grid.heads) - 1))
    rows: list[list[str]] = []
    for *cells, last in grid.rows:
        first, *more = wrap(last, max(room, NARROWEST)) or [""]
        rows += [[*cells, first], *([""] * len(cells) + [part] for part in more)]
    return rows


def _size(term: str, value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if term in {"num_blocks", "kv_cache_tokens"} else f"{value / GIB:.2f}"
