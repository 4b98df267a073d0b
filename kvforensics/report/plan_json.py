"""A predicted start-up as JSON, schema `kvforensics.plan/1`, with the quantity objects of `explain`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kvforensics.report.json import quantity_object

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvforensics.planning import Plan, Request, ScanRow
    from kvforensics.report.json import JsonObject
    from reconstruct.ledger import Account
    from reconstruct.predict.ledger import Prediction

PLAN_SCHEMA = "kvforensics.plan/1"
_EXPECTED = ("available_kv_cache_memory", "kv_cache_tokens")


def render(plan: Plan) -> str:
    """Give one plan as one JSON document on one line."""
    found: JsonObject = {"schema": PLAN_SCHEMA, **plan_object(plan.request, plan.prediction)}
    found["changes"] = [
        {"do": c.do, "cost": c.cost, "outcome": c.prediction.outcome, "expect": _expectation(c.prediction)}
        for c in plan.changes
    ]
    return json.dumps(found, ensure_ascii=False)


def render_scan(request: Request, rows: Sequence[ScanRow]) -> str:
    """Give a scan as one JSON document on one line: each row's settings, and its plan or why there is none."""
    found = []
    for row in rows:
        settings: JsonObject = {"settings": dict(row.settings)}
        if row.prediction is None:
            found.append({**settings, "unsupported": row.refusal})
        else:
            found.append({**settings, **plan_object(request, row.prediction)})
    return json.dumps({"schema": PLAN_SCHEMA, "model": request.model, "scan": found}, ensure_ascii=False)


def plan_object(request: Request, prediction: Prediction) -> JsonObject:
    """Give a prediction: verdict, settings in force, ledger, capacity, and what is not modelled."""
    failing = prediction.failing
    return {
        "model": request.model,
        "engine": "vllm",
        "version": prediction.scenario.launch.engine_version,
        "gpu": prediction.scenario.hardware.name,
        "outcome": prediction.outcome,
        "fails_at": {"check": failing.name, "verdict": failing.verdict, "detail": failing.detail} if failing else None,
        "checks": [{"check": c.name, "verdict": c.verdict, "detail": c.detail} for c in prediction.checks],
        "config": _settings(prediction),
        "engines": _engines(prediction),
        "not_modelled": list(prediction.reasons),
    }


def _settings(prediction: Prediction) -> JsonObject:
    scenario, settled = prediction.scenario, prediction.settled
    launch = scenario.launch
    found: JsonObject = {
        "dtype": launch.dtype,
        "kv_cache_dtype": launch.kv_cache_dtype,
        "quantization": scenario.quantization,
        "tensor_parallel_size": launch.tensor_parallel_size,
        "pipeline_parallel_size": launch.pipeline_parallel_size,
        "data_parallel_size": scenario.data_parallel_size,
        "decode_context_parallel_size": launch.decode_context_parallel_size,
        "enforce_eager": scenario.enforce_eager,
        "compiles": scenario.compiles,
    }
    if settled is None:
        return found
    return found | {
        "dtype": settled.dtype,
        "generation": settled.engine,
        "runner": settled.runner,
        "gpu_memory_utilization": settled.utilization,
        "max_model_len": settled.max_model_len,
        "max_num_seqs": settled.sequences,
        "max_num_batched_tokens": settled.batched_tokens,
        "cudagraphs": {"piecewise": settled.captured.piecewise, "full": settled.captured.full,
                       "largest": settled.captured.largest},
        "defaults": list(settled.defaulted),
    }  # fmt: skip


def _engines(prediction: Prediction) -> list[JsonObject]:
    engine = prediction.engine
    if engine is None:
        return []
    ranks = [
        {"name": r.name, "pp": r.pp, "tp": r.tp, "node": None, **_account(r.account), "expected": dict(likely),
         "weights": dict(parts)}
        for r, likely, parts in zip(engine.ranks, prediction.expected, prediction.parts, strict=True)
    ]  # fmt: skip
    return [{"dp": 0, "ranks": ranks, "capacity": {**_account(engine.capacity), "binding_rank": engine.binding_rank}}]


def _account(account: Account) -> JsonObject:
    return {
        "quantities": {name: quantity_object(q) for name, q in account.quantities.items()},
        "missing": {name: m.reason for name, m in account.missing.items()},
    }


def _expectation(prediction: Prediction) -> JsonObject:
    engine = prediction.engine
    if engine is None:
        return {}
    rank = next((r for r in engine.ranks if r.name == engine.binding_rank), engine.ranks[0])
    found = {}
    for name in _EXPECTED:
        quantity = rank.account.get(name) or engine.capacity.get(name)
        if quantity is not None:
            found[name] = {"low": quantity.interval.low, "high": quantity.interval.high}
    return found
