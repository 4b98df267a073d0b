"""Whatever start-up is rendered, whatever lines are lost, every reported interval holds the true value."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvforensics.explanation import NothingToExplain, explain
from reconstruct.interval import ANYTHING
from tests.render import lines, strategies, wrappers
from tests.render.parts import Scope

RELAXED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def explained(text):
    """Explain a rendered log; None where nothing of a start-up was left."""
    try:
        return explain(text.encode())
    except NothingToExplain:
        return None


def scopes_of(rank, engine, truth):
    """Give the true ranks that a reported one may be, by all that its name and place say."""
    if rank.name == "drafter":
        return []
    engines = range(truth.dp) if rank.dp is None else [engine.dp]
    found = [truth.scope(i) for dp in engines for i in truth.of_engine(dp)]
    if rank.pp is not None:
        found = [s for s in found if s.pp == rank.pp]
    if rank.tp is not None:
        found = [s for s in found if s.tp == rank.tp]
    return found


def wrong(account, scope, expected):
    """Give what an account says that is not so."""
    return [
        (name, quantity.interval, expected[scope, name], quantity.origin, quantity.equation, quantity.lines)
        for name, quantity in account.quantities.items()
        if (scope, name) in expected and not quantity.interval.contains(expected[scope, name])
    ]


def faults(report, truth):
    """Give every false statement of a report on one start-up."""
    expected = truth.expected()
    found = []
    for startup in report.startups:
        found += [("conflict", c.quantity, c.note, c.claims) for c in startup.conflicts]
        for engine in startup.engines:
            found += wrong(engine.capacity, Scope(engine.dp), expected)
            for rank in engine.ranks:
                options = [wrong(rank.account, s, expected) for s in scopes_of(rank, engine, truth)]
                if options and all(options):
                    found.append((rank.name, min(options, key=len)))
    return found


@RELAXED
@given(strategies.truths())
def test_every_true_value_lies_in_its_interval(truth):
    report = explained(lines.render(truth))
    assert report is not None
    assert len(report.startups) == 1
    assert faults(report, truth) == []


@RELAXED
@given(strategies.truths(), st.data())
def test_lost_lines_widen_intervals_and_falsify_none(truth, data):
    text = wrappers.drop_lines(lines.render(truth), data.draw(st.randoms(use_true_random=False)), 0.3)
    report = explained(text)
    assert report is None or faults(report, truth) == []
