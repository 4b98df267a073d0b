"""The answer to `whatif` as JSON, schema `kvforensics.whatif/1`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvforensics.report.json import interval_object, masked, on_one_line
from reconstruct.quantities import BY_NAME

if TYPE_CHECKING:
    from kvforensics.report.json import JsonObject
    from kvforensics.whatif import WhatIf
    from reconstruct.change import Effect, TermChange
    from reconstruct.whatif_target import Search, Way

WHATIF_SCHEMA = "kvforensics.whatif/1"


def render(answer: WhatIf, *, mask: bool = True) -> str:
    """Give one answer as one JSON document on one line, private details masked if asked."""
    found = whatif_object(answer)
    return on_one_line(masked(found) if mask else found)


def whatif_object(answer: WhatIf) -> JsonObject:
    """Give one answer."""
    found: JsonObject = {
        "schema": WHATIF_SCHEMA,
        "source": {"name": answer.name, "lines": answer.lines},
        "startup": answer.place,
        "startups": answer.held,
        **effect_object(answer.effect),
    }
    if answer.search is not None:
        found["target"] = _search(answer.search)
    return found


def effect_object(effect: Effect) -> JsonObject:
    """Give one effect: what is changed, each term today and then, checks, and what is left out."""
    return {
        "change": effect.change.named,
        "flags": list(effect.change.flags),
        "dp": effect.dp,
        "rank": effect.rank,
        "version": {"before": effect.version_before, "after": effect.version_after},
        "outcome": effect.outcome,
        "terms": [_term(t) for t in effect.terms],
        "checks": [{"check": c.name, "verdict": c.verdict, "detail": c.detail} for c in effect.checks],
        "notes": list(effect.notes),
        "left_out": list(effect.left_out),
    }


def _term(term: TermChange) -> JsonObject:
    return {
        "name": term.name,
        "unit": BY_NAME[term.name].unit,
        "before": interval_object(term.before),
        "after": interval_object(term.after),
        "change": interval_object(term.change),
        "kind": term.kind,
        "why": term.why,
    }


def _search(search: Search) -> JsonObject:
    return {
        "name": search.target.name,
        "value": search.target.value,
        "already": search.already,
        "single": _way(search.single) if search.single else None,
        "pair": _way(search.pair) if search.pair else None,
        "singles": [_way(w) for w in search.singles],
        "pairs": [_way(w) for w in search.pairs],
    }


def _way(way: Way) -> JsonObject:
    names = ("available_kv_cache_memory", "num_blocks", "kv_cache_tokens", "max_concurrency")
    return {
        "flags": list(way.change.flags),
        "verdict": way.verdict,
        "price": way.price,
        "costs": list(way.costs),
        "outcome": way.effect.outcome,
        "expect": {name: interval_object(way.effect.after(name)) for name in names},
    }
