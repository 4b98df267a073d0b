"""A predicted start-up as plain text: verdict, ledger, capacity, checks, and what would make it start.

Laid out here and not by rich, whose import would take longer than the plan itself.
"""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

from kvforensics.report.sizes import gib, ratio, whole
from kvforensics.report.wording import ascii_only, symbol
from reconstruct.rounding import GIB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvforensics.calibration import Calibration
    from kvforensics.planning import Plan, ScanRow
    from kvforensics.report.look import Look
    from reconstruct.ledger import EngineLedger, Quantity
    from reconstruct.predict.ledger import Prediction

WIDTH = 100
LINES = (
    ("total_memory", "", "device memory"), ("initial_free_memory", "", "free at the start"),
    ("requested_memory", "", "requested"), ("total_consumed", "-", "consumed at rest"),
    ("model_memory", "  ", "of it weights"), ("non_torch_increase", "  ", "of it outside torch"),
    ("transient_peak_headroom", "-", "activation peak"), ("cudagraph_memory_applied", "-", "graphs, charged"),
    ("available_kv_cache_memory", "=", "for the KV cache"), ("cudagraph_memory_estimate", "", "graphs, estimated"),
    ("cudagraph_memory_actual", "", "graphs, at capture"),
)  # fmt: skip
ERROR_HEADS = ("models", "term", "figures", "median", "largest", "in band", "half band")
REFIT_HEADS = ("constant", "shipped", "these logs", "unit", "points", "outliers", "left out: median", "largest")
FIGURE_HEADS = ("start", "vLLM", "term", "low", "high", "likely", "measured", "error", "")
CAPACITY = ("block_size", "bytes_per_block", "num_blocks", "kv_cache_tokens", "max_model_len", "max_concurrency")


def render(plan: Plan, look: Look) -> str:
    """Give one plan as text."""
    prediction = plan.prediction
    blocks = [_head(plan), _verdict(prediction)]
    if prediction.engine is not None:
        blocks += _ledger(prediction)
        blocks.append(_capacity(prediction))
    blocks.append(_checks(prediction))
    if plan.changes:
        rows = [[c.do, c.cost, _tokens(c.prediction)] for c in plan.changes]
        blocks.append("What would make it start, the smallest change first\n" + aligned(["", "", "tokens"], rows))
    if prediction.reasons:
        listed = "\n".join(_wrapped(f"- {reason}", look, "  ") for reason in prediction.reasons)
        blocks.append("Not modelled, so that bands are wide\n" + listed)
    return _finished("\n\n".join(blocks) + "\n", look)


def render_scan(rows: Sequence[ScanRow], look: Look) -> str:
    """Give a scan as one table."""
    if not rows:
        return ""
    heads = [name for name, _ in rows[0].settings] + ["", "W, GiB", "H, GiB", "M, GiB", "tokens", "concurrency"]
    cells = []
    for row in rows:
        chosen = [value for _, value in row.settings]
        if row.prediction is None or row.prediction.engine is None:
            failing = row.prediction.failing if row.prediction else None
            cells.append([*chosen, _clipped(failing.detail if failing else row.refusal), "", "", "", "", ""])
            continue
        engine = row.prediction.engine
        rank = next((r for r in engine.ranks if r.name == engine.binding_rank), engine.ranks[0])
        terms = [
            gib(rank.account.interval(name))
            for name in ("model_memory", "transient_peak_headroom", "available_kv_cache_memory")
        ]
        cells.append(
            [*chosen, row.prediction.outcome, *terms, _tokens(row.prediction), _shown(engine, "max_concurrency")]
        )
    return _finished(aligned(heads, cells) + "\n", look)


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
    return "\n".join(wrap(text, look.width or WIDTH, subsequent_indent=indent))


def _clipped(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def _size(term: str, value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if term in {"num_blocks", "kv_cache_tokens"} else f"{value / GIB:.2f}"


def _head(plan: Plan) -> str:
    scenario, settled = plan.prediction.scenario, plan.prediction.settled
    launch = scenario.launch
    runner = f", {settled.engine}, {settled.runner} model runner" if settled else ""
    lines = [f"{plan.request.model} on vLLM {launch.engine_version}{runner}", f"card: {scenario.hardware.name}"]
    sizes = [
        ("TP", launch.tensor_parallel_size),
        ("PP", launch.pipeline_parallel_size),
        ("DP", scenario.data_parallel_size),
    ]
    parallel = ", ".join(f"{name} {size}" for name, size in sizes if size > 1) or "one card"
    lines.append(f"parallel: {parallel}")
    if settled is not None:
        mark = dict.fromkeys(settled.defaulted, " (default)")
        lines.append(
            f"settings: {settled.dtype}, KV cache {launch.kv_cache_dtype}, utilisation {settled.utilization:g}"
            f"{mark.get('gpu_memory_utilization', '')}, max_model_len {settled.max_model_len}, "
            f"max_num_seqs {settled.sequences}{mark.get('max_num_seqs', '')}, "
            f"max_num_batched_tokens {settled.batched_tokens}{mark.get('max_num_batched_tokens', '')}"
        )
    return "\n".join(lines)


def _verdict(prediction: Prediction) -> str:
    failing = prediction.failing
    tail = f", {failing.verdict} at: {failing.name}\n{failing.detail}" if failing else f": {_tokens(prediction)} tokens"
    return f"Verdict: {prediction.outcome}{tail}"


def _ledger(prediction: Prediction) -> list[str]:
    """One table for each stage."""
    engine, found = prediction.engine, []
    if engine is None:
        return []
    for rank, likely in zip(engine.ranks, prediction.expected, strict=True):
        rows = []
        for name, sign, label in LINES:
            quantity = rank.account.get(name)
            if quantity is not None:
                centre = f"{likely[name] / GIB:.2f}" if quantity.interval.width and name in likely else ""
                rows.append([f"{sign}{symbol(name)}", label, gib(quantity.interval), centre, quantity.origin])
        binds = " (binds)" if len(engine.ranks) > 1 and rank.name == engine.binding_rank else ""
        found.append(f"{rank.name}{binds}\n" + aligned(["", "", "GiB", "likely", "source"], rows))
    return found


def _capacity(prediction: Prediction) -> str:
    engine = prediction.engine
    if engine is None:
        return ""
    rows = []
    for name in CAPACITY:
        quantity = engine.capacity.get(name)
        if quantity is not None:
            rows.append([name, _figure(quantity), quantity.origin])
    rows += [[m.name, "-", m.reason] for m in engine.capacity.missing.values() if m.name in CAPACITY]
    return aligned(["capacity", "", "source"], rows)


def _figure(quantity: Quantity) -> str:
    return ratio(quantity.interval) if quantity.unit == "1" else whole(quantity.interval)


def _shown(engine: EngineLedger, name: str) -> str:
    quantity = engine.capacity.get(name)
    return _figure(quantity) if quantity is not None else ""


def _tokens(prediction: Prediction) -> str:
    if prediction.engine is None:
        return ""
    quantity = prediction.engine.capacity.get("kv_cache_tokens") or prediction.engine.capacity.get("num_blocks")
    return _figure(quantity) if quantity is not None else ""


def _checks(prediction: Prediction) -> str:
    rows = [[check.name, check.verdict, _clipped(check.detail)] for check in prediction.checks]
    return aligned(["check", "", ""], rows)
