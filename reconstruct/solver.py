"""Propagation: evidence and relations in, the narrowest intervals that both allow out, every end with its source."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.interval import ANYTHING, Interval

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from reconstruct.relations import Relation, Term

MAX_STEPS = 20_000
"""Contractions before propagation stops; stopping early leaves intervals wider, never wrong."""


BEYOND = 1 << 62
"""No count of bytes, blocks or tokens comes near."""


class Evidence(NamedTuple):
    """One claim about one unknown."""

    term: Term
    interval: Interval
    origin: str
    """`printed`, `config`, `catalogue`, `modelled`, `given`, `default` or `measured`."""
    lines: tuple[int, ...] = ()
    note: str = ""


class Step(NamedTuple):
    """How an end came to be where it is."""

    relation: str
    inputs: tuple[Term, ...]


class Clash(NamedTuple):
    """Claims about one unknown that cannot all be true."""

    term: Term
    claims: tuple[Evidence, ...]
    note: str


class Solution(NamedTuple):
    """What is left of every unknown that something bounds."""

    values: dict[Term, Interval]
    evidence: dict[Term, tuple[Evidence, ...]]
    steps: dict[Term, tuple[Step, ...]]
    """For a term that relations narrowed: what set its low end last, what set its high end (once, if the same)."""
    clashes: tuple[Clash, ...]

    def lines(self, term: Term) -> tuple[int, ...]:
        """Give every line that the value of `term` rests on, through all derivations."""
        seen: set[Term] = set()
        found: set[int] = set()
        open_terms = [term]
        while open_terms:
            current = open_terms.pop()
            if current in seen:
                continue
            seen.add(current)
            found.update(line for e in self.evidence.get(current, ()) for line in e.lines)
            open_terms.extend(t for step in self.steps.get(current, ()) for t in step.inputs)
        return tuple(sorted(found))


def agreed(claims: Sequence[Evidence]) -> Interval:
    """Meet all claims about one unknown; where they cannot all be true, give what holds if any one of them is."""
    met: Interval | None = ANYTHING
    for claim in claims:
        met = met.meet(claim.interval) if met is not None else None
    if met is not None:
        return met
    hull = claims[0].interval
    for claim in claims[1:]:
        hull = hull.hull(claim.interval)
    return hull


def _contradict(claims: Sequence[Evidence]) -> bool:
    value = agreed(claims)
    return any(not value.within(claim.interval) for claim in claims)


def solve(evidence: Iterable[Evidence], relations: Sequence[Relation], bounds: dict[Term, Interval]) -> Solution:
    """Narrow every unknown until no relation narrows any further.

    `bounds` holds what is sure without evidence (signs). An empty intersection leaves both sides as they were and is
    reported as a clash.
    """
    claims: dict[Term, list[Evidence]] = {}
    for item in evidence:
        claims.setdefault(item.term, []).append(item)
    box: dict[Term, Interval] = dict(bounds)
    clashes: list[Clash] = []
    for term, items in claims.items():
        if _contradict(items):
            clashes.append(Clash(term, tuple(items), "the lines contradict each other"))
        value = agreed(items)
        box[term] = value.meet(bounds.get(term, ANYTHING)) or value
    lows: dict[Term, Step] = {}
    highs: dict[Term, Step] = {}
    retired: set[int] = set()
    users: dict[Term, list[int]] = {}
    for i, relation in enumerate(relations):
        for term in relation.terms:
            users.setdefault(term, []).append(i)
    queue = deque(range(len(relations)))
    waiting = set(queue)
    for _ in range(MAX_STEPS):
        if not queue:
            break
        i = queue.popleft()
        waiting.discard(i)
        relation = relations[i]
        if i in retired:
            continue
        for term, allowed in relation.contract(box):
            before = box.get(term, ANYTHING)
            after = before.meet(allowed)
            if after == before:
                continue
            if after is None or _runs_away(after):
                retired.add(i)  # a relation that the evidence contradicts narrows nothing any more
                clashes.append(_relation_clash(relation, term, box, claims))
                break
            box[term] = after
            step = Step(relation.name, tuple(t for t in relation.terms if t != term))
            if after.low != before.low:
                lows[term] = step
            if after.high != before.high:
                highs[term] = step
            for j in users[term]:
                if j not in waiting:
                    waiting.add(j)
                    queue.append(j)
    steps = {t: tuple(dict.fromkeys(ends[t] for ends in (lows, highs) if t in ends)) for t in {*lows, *highs}}
    return Solution(box, {t: tuple(c) for t, c in claims.items()}, steps, tuple(clashes))


def _runs_away(interval: Interval) -> bool:
    """Whether an end has left all sense: contradictory relations can push an unbounded quantity on for ever."""
    return any(end is not None and not -BEYOND < end < BEYOND for end in interval)


def _relation_clash(
    relation: Relation, term: Term, box: dict[Term, Interval], claims: dict[Term, list[Evidence]]
) -> Clash:
    """Name the claims on both sides of an equation that does not hold."""
    sides = tuple(claim for t in relation.terms for claim in claims.get(t, ()))
    values = ", ".join(f"{t.name} {box.get(t, ANYTHING)}" for t in relation.terms)
    return Clash(term, sides, f"{relation.name} does not hold: {values}")
