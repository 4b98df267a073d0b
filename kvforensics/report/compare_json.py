"""The answer to `compare` as JSON, schema `kvforensics.compare/1`: one `parts` list whose intervals add up to the change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvforensics.report.json import interval_object, masked, on_one_line

if TYPE_CHECKING:
    from kvforensics.comparison import Comparison, Comparisons, PartOfChange, Subject
    from kvforensics.report.json import JsonObject
    from reconstruct.change_parts import Side

COMPARE_SCHEMA = "kvforensics.compare/1"


def render(answer: Comparisons, *, mask: bool = True) -> str:
    """Give the answer as one JSON document on one line.

    `before`, `after`, `change` and `parts` stand for the first and the last log; `comparisons` holds every log against
    the first.
    """
    found = {
        "schema": COMPARE_SCHEMA,
        "sources": [_subject(s) for s in answer.subjects],
        **_comparison(answer.changes[-1]),
        "comparisons": [_comparison(c) for c in answer.changes],
    }
    return on_one_line(masked(found) if mask else found)


def _subject(subject: Subject) -> JsonObject:
    version = subject.startup.version
    return {
        "name": subject.name,
        "lines": subject.lines,
        "startup": subject.place,
        "startups": subject.held,
        "outcome": subject.startup.outcome,
        "version": {"stated": version.stated, "low": version.low, "high": version.high},
        "dp": subject.engine.dp,
    }


def _comparison(found: Comparison) -> JsonObject:
    return {
        "why_rank": found.why_rank,
        "before": _side(found.before, found),
        "after": _side(found.after, found),
        "change": {name: interval_object(i) for name, i in found.change.items()},
        "parts": [_part(p) for p in found.parts],
    }


def _side(side: Side, found: Comparison) -> JsonObject:
    values: JsonObject = {"rank": side.rank.name if side.rank else None}
    for name in found.change:
        values[name] = interval_object(side.rank_m if name == "available_kv_cache_memory" else side.interval(name))
    return values


def _part(part: PartOfChange) -> JsonObject:
    causes = [
        {"kind": c.kind, "text": c.text, "before_lines": list(c.before), "after_lines": list(c.after)}
        for c in part.causes
    ]
    return {"name": part.name, **{name: interval_object(i) for name, i in part.shares.items()}, "causes": causes}
