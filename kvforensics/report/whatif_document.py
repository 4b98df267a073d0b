"""The answer to `whatif` as a document."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvforensics.report.document import Document, Grid, Listing
from kvforensics.report.redaction import quoted
from kvforensics.report.sizes import amount, step
from kvforensics.report.wording import symbol
from reconstruct.quantities import BY_NAME
from reconstruct.whatif_target import MAYBE, SURE

if TYPE_CHECKING:
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
TITLES = {SURE: "surely", MAYBE: "may"}


def whatif_document(answer: WhatIf, look: Look) -> Document:
    """Lay out one answer."""
    effect = answer.effect
    asked = " ".join(effect.change.flags) or "as it is"
    blocks: list[Grid | Listing] = []
    if effect.change.named or answer.search is None:
        blocks += _effect_blocks(effect)
    if answer.search is not None:
        blocks += _search_blocks(answer.search)
    legend = tuple(KINDS[k] for k in KINDS if any(t.kind == k for t in effect.terms)) if effect.change.named else ()
    return Document(
        headline=f"What if {quoted(asked, mask=look.redact)}: {effect.outcome}",
        mood=MOODS.get(effect.outcome, "open"),
        facts=_facts(answer, look),
        blocks=tuple(b for b in blocks if not isinstance(b, Listing) or b.lines),
        notes=("; ".join(legend),) if legend else (),
    )


def _facts(answer: WhatIf, look: Look) -> tuple[tuple[str, str], ...]:
    startup, effect = answer.startup, answer.effect
    lines = f"lines {startup.log.first_line}-{startup.log.last_line} of {answer.lines}"
    place = f", start-up {answer.place} of {answer.held}" if answer.held > 1 else ""
    rank = quoted(effect.rank, mask=False)
    engines = f"engine DP{effect.dp}, the one with the fewest blocks; " if len(startup.engines) > 1 else ""
    version = effect.version_before
    if effect.version_after != version:
        version = f"{version} to {effect.version_after}"
    model = startup.settings.text("model")
    found = (
        ("log", f"{quoted(answer.name, mask=look.redact)}, {lines}{place}"),
        ("model", quoted(model, mask=look.redact) if model else ""),
        ("vLLM", version),
        ("rank", f"{engines}{rank}" if rank else ""),
    )
    return tuple((label, text) for label, text in found if text)


def _effect_blocks(effect: Effect) -> list[Grid | Listing]:
    rows = tuple(_term(t) for t in effect.terms)
    heads = ("", "", "today", "then", "change", "", "why")
    checks = tuple(f"{c.name}: {c.verdict} ({quoted(c.detail, mask=False, most=300)})" for c in effect.checks)
    notes = tuple(quoted(n, mask=False, most=300) for n in effect.notes)
    left = tuple(quoted(n, mask=False, most=300) for n in effect.left_out)
    return [
        Grid("Today beside then (bytes in GiB)", heads, rows, ("today", "then", "change")),
        Listing("Would it start?", checks),
        Listing("What comes with it", notes),
        Listing("Not known, and so left out", left),
    ]


def _term(term: TermChange) -> tuple[str, ...]:
    kind = BY_NAME[term.name]
    sign = "-" if term.name in {"total_consumed", "transient_peak_headroom", "cudagraph_memory_applied"} else ""
    name = sign + symbol(term.name)
    same = term.kind == "unchanged" and term.change.low == term.change.high == 0
    change = "" if same else step(term.name, term.change)
    meaning = "" if kind.symbol in {"", term.name} else kind.meaning
    why = quoted(term.why, mask=False, most=90)
    return (name, meaning, amount(term.name, term.before), amount(term.name, term.after), change, term.kind, why)


def _search_blocks(search: Search) -> list[Grid | Listing]:
    target = f"{search.target.name}={search.target.value:g}" if search.target.name == "concurrency" else (
        f"{search.target.name}={int(search.target.value)}"
    )  # fmt: skip
    if search.already == SURE:
        return [Listing(f"Target {target}", ("reached already: nothing needs to change",))]
    answer = [
        f"cheapest single change: {_paste(search.single)}" if search.single else "no single change surely reaches it",
        f"cheapest pair: {_paste(search.pair)}" if search.pair else "no pair of other changes surely reaches it",
    ]
    ways = [w for w in (*search.singles, *search.pairs) if w not in (search.single, search.pair)]
    rows = tuple(_way(w) for w in [*filter(None, (search.single, search.pair)), *ways[:WAYS_SHOWN]])
    found: list[Grid | Listing] = [Listing(f"Target {target}", tuple(answer))]
    if rows:
        heads = ("to paste", "reaches it", "tokens", "concurrency", "costs")
        found.append(Grid("Ways, the cheapest first", heads, rows, ("tokens", "concurrency")))
    return found


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
