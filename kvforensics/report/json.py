"""The report as JSON, schema `kvforensics.explain/1`. Keys are added within a version, never renamed or dropped."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kvforensics.report.redaction import machines, redact, without_rest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvforensics.explanation import Report
    from kvforensics.findings import Verdict
    from kvforensics.findings.finding import Finding
    from reconstruct.interval import Interval
    from reconstruct.ledger import Account, Conflict, EngineLedger, Quantity, StartUpLedger

EXPLAIN_SCHEMA = "kvforensics.explain/1"

CONFIG_KEYS = (
    "model", "dtype", "kv_cache_dtype", "quantization", "max_model_len", "tensor_parallel_size", "pipeline_parallel_size",
    "data_parallel_size", "decode_context_parallel_size", "gpu_memory_utilization", "enforce_eager", "max_num_seqs",
    "max_num_batched_tokens", "block_size",
)  # fmt: skip

JsonObject = dict[str, Any]
"""A JSON object on its way out; nothing reads it back."""


def interval_object(interval: Interval) -> JsonObject:
    """Give an interval's ends; an open end is null."""
    return {"low": interval.low, "high": interval.high}


def quantity_object(quantity: Quantity) -> JsonObject:
    """Give one quantity as the contract writes it."""
    found = {**interval_object(quantity.interval), "unit": quantity.unit, "origin": quantity.origin}
    if quantity.inputs:
        found["from"] = list(quantity.inputs)
    if quantity.equation:
        found["equation"] = quantity.equation
    found["lines"] = list(quantity.lines)
    return found


def _account(account: Account) -> JsonObject:
    return {
        "quantities": {name: quantity_object(q) for name, q in account.quantities.items()},
        "missing": {name: m.reason for name, m in account.missing.items()},
    }


def _engine(engine: EngineLedger, nodes: Mapping[str, str]) -> JsonObject:
    ranks = [
        {
            "name": r.name, "dp": r.dp, "pp": r.pp, "tp": r.tp, "node": nodes.get(r.node or ""),
            **_account(r.account),
            "modelled": {q.name: quantity_object(q) for q in r.unmeasured},
        }
        for r in engine.ranks
    ]  # fmt: skip
    residual = engine.residual
    return {
        "dp": engine.dp,
        "ranks": ranks,
        "capacity": {**_account(engine.capacity), "binding_rank": engine.binding_rank},
        "residual": interval_object(residual) if residual else None,
    }


def _conflict(conflict: Conflict) -> JsonObject:
    claims = [{**interval_object(c.interval), "origin": c.origin, "lines": list(c.lines)} for c in conflict.claims]
    return {"quantity": conflict.quantity, "claims": claims, "note": conflict.note}


def finding_object(finding: Finding) -> JsonObject:
    """Give one finding."""
    cost = finding.cost
    actions = [
        {"do": a.do, "expect": {e.quantity: interval_object(e.interval) for e in a.expect}, "risk": a.risk}
        for a in finding.actions
    ]
    return {
        "id": finding.id,
        "severity": finding.severity,
        "title": finding.title,
        "detail": finding.detail,
        "evidence": list(finding.evidence),
        "cost": {"bytes": interval_object(cost.bytes), "tokens": interval_object(cost.tokens)},
        "actions": actions,
    }


def startup_object(startup: StartUpLedger, verdict: Verdict | None = None, *, mask: bool = True) -> JsonObject:
    """Give one start-up, and what was found where it was examined; private details masked if asked."""
    from kvforensics.report.geometry_json import geometry_object  # it writes intervals as this module does

    version, nodes = startup.version, machines(startup, mask=mask)
    config = {key: startup.settings.get(key) for key in CONFIG_KEYS}
    geometry = geometry_object(startup.geometry) if startup.geometry else None
    return {
        "engine": "vllm",
        "version": {"stated": version.stated, "low": version.low, "high": version.high, "note": version.note},
        "generation": "/".join(dict.fromkeys(e.engine for e in startup.eras)),
        "first_line": startup.log.first_line,
        "last_line": startup.log.last_line,
        "outcome": startup.outcome,
        "config": masked(config) if mask else config,
        "engines": [_engine(e, nodes) for e in startup.engines],
        "conflicts": [_conflict(c) for c in startup.conflicts],
        "geometry": masked(geometry) if mask else geometry,
        "unread": [
            {"line": r.line, "text": (redact(without_rest(r)) if mask else r.text)[:300]} for r in startup.unread
        ],
        "findings": [finding_object(f) for f in verdict.findings] if verdict else [],
        "unsaid": [{"id": u.id, "fact": u.fact} for u in verdict.unsaid] if verdict else [],
    }


def explain_object(report: Report, *, mask: bool = True) -> JsonObject:
    """Give the whole report; private details masked if asked."""
    return {
        "schema": EXPLAIN_SCHEMA,
        "source": {"name": redact(report.name) if mask else report.name, "lines": report.lines},
        "startups": [startup_object(s, v, mask=mask) for s, v in zip(report.startups, report.verdicts, strict=True)],
    }


def render(report: Report, *, mask: bool = True) -> str:
    """Give the report as one JSON document on one line."""
    return on_one_line(explain_object(report, mask=mask))


def on_one_line(found: JsonObject) -> str:
    """Give a document on one line; quoted controls and line separators stay escapes."""
    text = json.dumps(found, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def masked(value: Any) -> Any:  # noqa: ANN401 - whatever a JSON object may hold
    """Mask private details in every text of a JSON value; its keys are the schema's own."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {key: masked(held) for key, held in value.items()}
    return [masked(held) for held in value] if isinstance(value, list | tuple) else value
