"""A predicted start-up as a document: verdict, ledger, capacity, checks, and what would make it start; and a scan of many."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvforensics.report.brief_lines import BriefLine
from kvforensics.report.document import Document, Grid, Listing, figures_of, filled
from kvforensics.report.redaction import quoted
from kvforensics.report.sizes import UNKNOWN, gib, ratio, whole
from kvforensics.report.wording import symbol
from reconstruct.rounding import GIB

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kvforensics.planning import Plan, Request, ScanRow
    from kvforensics.report.document import Figure
    from kvforensics.report.look import Look
    from reconstruct.ledger import EngineLedger, Quantity
    from reconstruct.predict.defaults import Settled
    from reconstruct.predict.ledger import Prediction

LINES = (
    ("total_memory", "", "device memory"), ("initial_free_memory", "", "free at the start"),
    ("requested_memory", "", "requested"), ("total_consumed", "-", "consumed at rest"),
    ("model_memory", "", "of it weights"), ("non_torch_increase", "", "of it outside torch"),
    ("transient_peak_headroom", "-", "activation peak"), ("cudagraph_memory_applied", "-", "graphs, charged"),
    ("available_kv_cache_memory", "", "for the KV cache"), ("cudagraph_memory_estimate", "", "graphs, estimated"),
    ("cudagraph_memory_actual", "", "graphs, at capture"),
)  # fmt: skip
CAPACITY = ("block_size", "bytes_per_block", "num_blocks", "kv_cache_tokens", "max_model_len", "max_concurrency")
MOODS = {"starts": "good", "does not start": "bad"}


def plan_document(plan: Plan, look: Look) -> Document:
    """Lay out one plan."""
    prediction = plan.prediction
    name, facts = quoted(plan.request.model, mask=look.redact), _facts(plan, look)
    blocks: list[Grid | Listing] = [*_ledger(prediction), *_capacity(prediction), _checks(prediction, look)]
    changes = tuple((c.do, c.cost, _tokens(c.prediction)) for c in plan.changes)
    heads = ("to paste", "costs", "tokens")
    blocks.append(Grid("What would make it start, the smallest change first", heads, changes, ("tokens",)))
    reasons = tuple(quoted(reason, mask=look.redact, most=300) for reason in prediction.reasons)
    blocks.append(Listing("Why bands are wide", reasons))
    headline = f"{name} on vLLM {prediction.scenario.launch.engine_version}: {_verdict(prediction)}"
    return Document(
        headline=headline,
        mood=MOODS.get(prediction.outcome, "open"),
        facts=facts,
        blocks=filled(blocks),
        figures=tuple(_figures(prediction, name)),
        brief=_brief(plan, headline, dict(facts)),
    )


def scan_document(request: Request, rows: Sequence[ScanRow], look: Look) -> Document:
    """Lay out a scan as one table."""
    heads = [name for name, _ in rows[0].settings] if rows else []
    figures = ("W, GiB", "H, GiB", "M, GiB", "tokens", "concurrency")
    lines = tuple((*(value for _, value in row.settings), *_scanned(row, look)) for row in rows)
    held = tuple(
        figure._replace(side=", ".join(f"{name}={value}" for name, value in row.settings))
        for row in rows
        if row.prediction
        for figure in _figures(row.prediction, quoted(request.model, mask=look.redact))
    )
    return Document(
        headline=f"{quoted(request.model, mask=look.redact)} on vLLM {request.engine_version}: {len(rows)} plans",
        mood="plain",
        facts=(("card", quoted(request.gpu, mask=look.redact)),),
        blocks=(Grid("Each plan", (*heads, "outcome", *figures), lines, figures),),
        figures=held,
    )


def _facts(plan: Plan, look: Look) -> tuple[tuple[str, str], ...]:
    scenario, settled = plan.prediction.scenario, plan.prediction.settled
    launch, failing = scenario.launch, plan.prediction.failing
    sizes = [
        ("TP", launch.tensor_parallel_size),
        ("PP", launch.pipeline_parallel_size),
        ("DP", scenario.data_parallel_size),
    ]
    found = [
        ("engine", _engine(settled) if settled else ""),
        ("card", scenario.hardware.name),
        ("parallel", ", ".join(f"{name} {size}" for name, size in sizes if size > 1) or "one card"),
    ]
    if settled is not None:
        mark = dict.fromkeys(settled.defaulted, " (default)")
        told = (
            f"{settled.dtype}, KV cache {launch.kv_cache_dtype}, utilisation {settled.utilization:g}"
            f"{mark.get('gpu_memory_utilization', '')}, max_model_len {settled.max_model_len}, "
            f"max_num_seqs {settled.sequences}{mark.get('max_num_seqs', '')}, "
            f"max_num_batched_tokens {settled.batched_tokens}{mark.get('max_num_batched_tokens', '')}"
        )
        found.append(("settings", told))
    found.append(("why", failing.detail if failing else ""))
    return tuple((label, quoted(text, mask=look.redact, most=300)) for label, text in found if text)


def _engine(settled: Settled) -> str:
    return f"{settled.engine}, {settled.runner} model runner" if settled.engine == "V1" else settled.engine


def _verdict(prediction: Prediction) -> str:
    failing = prediction.failing
    return prediction.outcome + (f", {failing.verdict} at: {failing.name}" if failing else "")


def _brief(plan: Plan, headline: str, facts: dict[str, str]) -> tuple[BriefLine, ...]:
    engine = plan.prediction.engine
    pool = [(name, _shown(engine, name)) for name in ("num_blocks", "kv_cache_tokens", "max_concurrency")]
    change = plan.changes[0] if plan.changes else None
    return (
        BriefLine("plan", headline),
        BriefLine("verdict", facts.get("why") or "every check passes"),
        BriefLine("pool", ", ".join(f"{symbol(name)} {text}" for name, text in pool if text) or UNKNOWN),
        BriefLine("do", f"{change.do} ({change.cost})" if change else "nothing needs to change"),
        BriefLine("as", "; ".join(facts[label] for label in ("card", "parallel", "settings") if label in facts)),
    )


def _ledger(prediction: Prediction) -> Iterator[Grid]:
    """Give one table for each stage."""
    engine = prediction.engine
    if engine is None:
        return
    for rank, likely in zip(engine.ranks, prediction.expected, strict=True):
        rows = []
        for name, sign, label in LINES:
            quantity = rank.account.get(name)
            if quantity is not None:
                centre = f"{likely[name] / GIB:.2f}" if quantity.interval.width and name in likely else ""
                rows.append((sign + symbol(name), label, gib(quantity.interval), centre, quantity.origin))
        binds = " (binds)" if len(engine.ranks) > 1 and rank.name == engine.binding_rank else ""
        yield Grid(f"{rank.name}{binds}", ("", "", "GiB", "likely", "source"), tuple(rows), ("GiB", "likely"))


def _capacity(prediction: Prediction) -> Iterator[Grid]:
    if prediction.engine is None:
        return
    capacity = prediction.engine.capacity
    rows = [(name, _figure(q), q.origin) for name in CAPACITY if (q := capacity.get(name)) is not None]
    rows += [(m.name, UNKNOWN, m.reason) for m in capacity.missing.values() if m.name in CAPACITY]
    yield Grid("Capacity", ("", "figure", "source"), tuple(rows), ("figure",))


def _checks(prediction: Prediction, look: Look) -> Grid:
    rows = tuple((c.name, c.verdict, quoted(c.detail, mask=look.redact, most=300)) for c in prediction.checks)
    return Grid("Would it start?", ("check", "verdict", "why"), rows)


def _scanned(row: ScanRow, look: Look) -> tuple[str, ...]:
    prediction = row.prediction
    if prediction is None or prediction.engine is None:
        failing = prediction.failing if prediction else None
        return (quoted(failing.detail if failing else row.refusal, mask=look.redact, most=60), "", "", "", "", "")
    engine = prediction.engine
    rank = next((r for r in engine.ranks if r.name == engine.binding_rank), engine.ranks[0])
    terms = (
        gib(rank.account.interval(name))
        for name in ("model_memory", "transient_peak_headroom", "available_kv_cache_memory")
    )
    return (prediction.outcome, *terms, _tokens(prediction), _shown(engine, "max_concurrency"))


def _figures(prediction: Prediction, name: str) -> Iterator[Figure]:
    engine = prediction.engine
    if engine is None:
        return
    for rank in engine.ranks:
        yield from figures_of(rank.account, name, rank=rank.name)
    yield from figures_of(engine.capacity, name)


def _figure(quantity: Quantity) -> str:
    return ratio(quantity.interval) if quantity.unit == "1" else whole(quantity.interval)


def _shown(engine: EngineLedger | None, name: str) -> str:
    quantity = engine.capacity.get(name) if engine else None
    return _figure(quantity) if quantity is not None else ""


def _tokens(prediction: Prediction) -> str:
    return _shown(prediction.engine, "kv_cache_tokens") or _shown(prediction.engine, "num_blocks")
