"""The answer to `whatif` as a document."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvforensics.report.brief_lines import BriefLine
from kvforensics.report.document import Document, Figure, Grid, Listing, filled
from kvforensics.report.redaction import quoted
from kvforensics.report.side_bars import side_by_side
from kvforensics.report.sizes import UNKNOWN, amount, step
from kvforensics.report.wording import symbol
from reconstruct.quantities import BY_NAME
from reconstruct.whatif_target import MAYBE, SURE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvforensics.report.look import Look
    from kvforensics.whatif import WhatIf
    from reconstruct.change import Effect, TermChange
    from reconstruct.whatif_target import Search, Way

MOODS = {"starts": "good", "does not start": "bad"}
KINDS = {
    "exact": "exact: arithmetic",
    "modelled": "modelled: estimated, with the model's stated error",
    "unchanged": "unchanged: as this start measured it",
    "unknown": "unknown: left out",
}
"""What each mark of a term means, in a legend's order."""
WAYS_SHOWN = 6
"""Ways listed that may reach a target, or reach it at a higher price."""
SIDES = ("today", "then")
KEY = ("kv_pool_memory", "kv_cache_tokens", "max_concurrency")
"""What the short answer tells of the pool."""
TITLES = {SURE: "surely", MAYBE: "may"}


def whatif_document(answer: WhatIf, look: Look) -> Document:
    """Lay out one answer."""
    effect = answer.effect
    blocks: list[Grid | Listing] = []
    if effect.change.named or answer.search is None:
        blocks += _effect_blocks(effect, look)
    if answer.search is not None:
        blocks += _search_blocks(answer.search)
    legend = tuple(KINDS[k] for k in KINDS if any(t.kind == k for t in effect.terms)) if effect.change.named else ()
    asks, answers, mood = _headline(answer, look)
    facts = _facts(answer, look)
    return Document(
        headline=f"{asks} {answers}",
        mood=mood,
        facts=facts,
        blocks=filled(blocks),
        notes=("; ".join(legend),) if legend else (),
        figures=tuple(_figures(answer, look)),
        brief=_brief(answer, BriefLine(asks.lower(), answers), dict(facts), look),
    )


def _headline(answer: WhatIf, look: Look) -> tuple[str, str, str]:
    """Give what is asked, the answer, and its mood: a target alone is answered by the way to it."""
    effect, search = answer.effect, answer.search
    if search is None or effect.change.named:
        asked = quoted(" ".join(effect.change.flags) or "nothing changes", mask=look.redact)
        return "What if", f"{asked}: {effect.outcome}", MOODS.get(effect.outcome, "open")
    way = search.single or search.pair
    found = "reached already" if search.already == SURE else _paste(way) if way else "no change surely reaches it"
    return "Target", f"{_target(search)}: {found}", "good" if way or search.already == SURE else "open"


def _target(search: Search) -> str:
    value = search.target.value
    return (
        f"{search.target.name}={value:g}"
        if search.target.name == "concurrency"
        else f"{search.target.name}={int(value)}"
    )


def _figures(answer: WhatIf, look: Look) -> Iterator[Figure]:
    name, rank = (quoted(text, mask=look.redact) for text in (answer.name, answer.effect.rank))
    for t in answer.effect.terms:
        for side, interval in (("today", t.before), ("then", t.after), ("change", t.change)):
            origin = "" if side == "today" else t.kind
            yield Figure(name, side, rank, "", t.name, interval, BY_NAME[t.name].unit, origin)


def _brief(answer: WhatIf, first: BriefLine, facts: dict[str, str], look: Look) -> tuple[BriefLine, ...]:
    effect = answer.effect
    failing = next((c for c in effect.checks if c.verdict not in {"passes", "unknown"}), None)
    detail = (
        f"{failing.name} {failing.verdict}: {quoted(failing.detail, mask=look.redact, most=300)}" if failing else ""
    )
    found = effect.change.named and answer.search is None
    do = " ".join(effect.change.flags) if found else "; ".join(_found(answer.search)) if answer.search else ""
    return (
        first,
        BriefLine("memory", "; ".join(_moved(effect, name) for name in KEY if effect.term(name)) or UNKNOWN),
        BriefLine("start", detail or effect.outcome),
        BriefLine("do", do or "nothing was asked for"),
        BriefLine("log", ", ".join(filter(None, (facts["log"], f"vLLM {facts['vLLM']}", facts.get("model"))))),
    )


def _moved(effect: Effect, name: str) -> str:
    term = effect.term(name)
    if term is None:
        return ""
    unit = " GiB" if BY_NAME[name].unit == "B" else ""
    if term.kind == "unchanged":
        return f"{symbol(name)} {amount(name, term.before)}{unit} as today"
    return f"{symbol(name)} {amount(name, term.before)}{unit} today, then {amount(name, term.after)}{unit}"


def _facts(answer: WhatIf, look: Look) -> tuple[tuple[str, str], ...]:
    startup, effect = answer.startup, answer.effect
    lines = f"lines {startup.log.first_line}-{startup.log.last_line} of {answer.lines}"
    place = f", start-up {answer.place} of {answer.held}" if answer.held > 1 else ""
    rank = quoted(effect.rank, mask=look.redact)
    engines = f"engine DP{effect.dp}, the one with the fewest blocks; " if len(startup.engines) > 1 else ""
    version = effect.version_before
    if effect.version_after != version:
        version = f"{version} to {effect.version_after}"
    model = startup.settings.text("model")
    found = (
        ("log", f"{quoted(answer.name, mask=look.redact)}, {lines}{place}"),
        ("model", quoted(model, mask=look.redact) if model else ""),
        ("vLLM", quoted(version, mask=False)),
        ("rank", f"{engines}{rank}" if rank else ""),
    )
    return tuple((label, text) for label, text in found if text)


def _effect_blocks(effect: Effect, look: Look) -> list[Grid | Listing]:
    def told(text: str) -> str:
        return quoted(text, mask=look.redact, most=300)

    rows = tuple(_term(t, look) for t in effect.terms)
    heads = ("", "", *SIDES, "change", "", "why")
    checks = tuple(f"{c.name}: {c.verdict} ({told(c.detail)})" for c in effect.checks)
    notes, left = tuple(map(told, effect.notes)), tuple(map(told, effect.left_out))
    drawn = side_by_side([{t.name: getattr(t, end) for t in effect.terms} for end in ("before", "after")])
    bars = tuple(drawn.get(t.name) for t in effect.terms) if drawn else ()
    return [
        Grid("Today beside then (bytes in GiB)", heads, rows, (*SIDES, "change"), bars, SIDES),
        Listing("Would it start?", checks),
        Listing("What comes with it", notes),
        Listing("Not known, and so left out", left),
    ]


def _term(term: TermChange, look: Look) -> tuple[str, ...]:
    kind = BY_NAME[term.name]
    sign = "-" if term.name in {"total_consumed", "transient_peak_headroom", "cudagraph_memory_applied"} else ""
    name = sign + symbol(term.name)
    same = term.kind == "unchanged" and term.change.low == term.change.high == 0
    change = "" if same else step(term.name, term.change)
    meaning = "" if kind.symbol in {"", term.name} else kind.meaning
    why = quoted(term.why, mask=look.redact, most=90)
    return (name, meaning, amount(term.name, term.before), amount(term.name, term.after), change, term.kind, why)


def _search_blocks(search: Search) -> list[Grid | Listing]:
    found: list[Grid | Listing] = [Listing(f"Target {_target(search)}", _found(search))]
    if search.already == SURE:
        return found
    ways = [w for w in (*search.singles, *search.pairs) if w not in (search.single, search.pair)]
    rows = tuple(_way(w) for w in [*filter(None, (search.single, search.pair)), *ways[:WAYS_SHOWN]])
    if rows:
        heads = ("to paste", "reaches it", "tokens", "concurrency", "costs")
        found.append(Grid("Ways, the cheapest first", heads, rows, ("tokens", "concurrency")))
    return found


def _found(search: Search) -> tuple[str, ...]:
    """Give what surely reaches the target."""
    if search.already == SURE:
        return ("reached already: nothing needs to change",)
    return (
        f"cheapest single change: {_paste(search.single)}" if search.single else "no single change surely reaches it",
        f"cheapest pair: {_paste(search.pair)}" if search.pair else "no pair of other changes surely reaches it",
    )


def _paste(way: Way) -> str:
    return " ".join(way.change.flags)


def _way(way: Way) -> tuple[str, ...]:
    after = way.effect.after
    return (
        _paste(way),
        TITLES[way.verdict],
        amount("kv_cache_tokens", after("kv_cache_tokens")),
        amount("max_concurrency", after("max_concurrency")),
        "; ".join(way.costs),
    )
