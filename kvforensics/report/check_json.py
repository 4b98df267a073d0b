"""A check as JSON, schema `kvforensics.check/1`, with the intervals of `explain`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kvforensics.report.json import interval_object
from reconstruct.quantities import BY_NAME

if TYPE_CHECKING:
    from kvforensics.checking import Check, Comparison
    from kvforensics.report.json import JsonObject

CHECK_SCHEMA = "kvforensics.check/1"


def render(check: Check, log: str) -> str:
    """Give the check as one JSON document on one line."""
    return json.dumps(check_object(check, log), ensure_ascii=False)


def check_object(check: Check, log: str) -> JsonObject:
    """Give verdict, terms, and what differs between the starts; sizes are bytes."""
    probed = check.reading.startups[0].version
    return {
        "schema": CHECK_SCHEMA,
        "source": {"name": log, "first_line": check.startup.log.first_line, "last_line": check.startup.log.last_line},
        "probe": {
            "engine": check.reading.engine,
            "simulated": check.reading.simulated,
            "device": check.reading.card,
            "version": probed.stated or probed.low,
            "runs": len(check.reading.startups),
        },
        "verdict": check.verdict,
        "terms": [_term(term) for term in check.terms],
        "differences": [{"condition": d.condition, "text": d.text} for d in check.differences],
        "unstated": list(check.unstated),
    }


def _term(term: Comparison) -> JsonObject:
    return {
        "dp": term.dp,
        "rank": term.rank or None,
        "quantity": term.name,
        "unit": BY_NAME[term.name].unit,
        "rebuilt": interval_object(term.rebuilt) if term.rebuilt else None,
        "measured": interval_object(term.measured) if term.measured else None,
        "verdict": term.verdict,
        "gap": term.gap,
        "why": term.why,
    }
