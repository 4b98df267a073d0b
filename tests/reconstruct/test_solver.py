"""The laws of propagation: sound, monotone, idempotent, independent of order; contradictions are reported, not resolved."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reconstruct.divisions import FloorDivision
from reconstruct.interval import ANYTHING, Interval
from reconstruct.relations import AtMost, Same, Sum, Term
from reconstruct.solver import Evidence, solve

R, C, H, G, M, N, PER = (Term(name) for name in ("R", "C", "H", "G", "M", "N", "per"))
RELATIONS = [
    Sum("M = R - C - H - G", M, (R,), (C, H, G)),
    FloorDivision("N = M // per", N, M, PER),
    AtMost("C <= R", C, R),
]
SIZES = st.integers(0, 1 << 40)


@st.composite
def truths(draw):
    consumed, headroom, graphs, rest = (draw(SIZES) for _ in range(4))
    per = draw(st.integers(1, 1 << 24))
    values = {C: consumed, H: headroom, G: graphs, M: rest, R: consumed + headroom + graphs + rest}
    return {**values, PER: per, N: rest // per}


@st.composite
def evidence_of(draw, truth):
    found = []
    for term, value in truth.items():
        if draw(st.booleans()):
            below, above = draw(st.integers(0, 1 << 24)), draw(st.integers(0, 1 << 24))
            found.append(Evidence(term, Interval(value - below, value + above), "printed", (len(found) + 1,)))
    return found


@given(truths(), st.data())
def test_no_true_value_is_lost(truth, data):
    solution = solve(data.draw(evidence_of(truth)), RELATIONS, {})
    assert solution.clashes == ()
    assert all(solution.values.get(term, ANYTHING).contains(value) for term, value in truth.items())


@given(truths(), st.data())
def test_more_evidence_never_widens(truth, data):
    less = data.draw(evidence_of(truth))
    more = less + data.draw(evidence_of(truth))
    narrow, wide = solve(more, RELATIONS, {}).values, solve(less, RELATIONS, {}).values
    assert all(narrow.get(term, ANYTHING).within(wide.get(term, ANYTHING)) for term in truth)


@given(truths(), st.data())
def test_solving_again_changes_nothing(truth, data):
    evidence = data.draw(evidence_of(truth))
    once = solve(evidence, RELATIONS, {}).values
    again = solve([Evidence(t, v, "derived") for t, v in once.items()], RELATIONS, {}).values
    assert again == once


@given(truths(), st.data())
def test_the_order_of_relations_and_evidence_does_not_matter(truth, data):
    evidence = data.draw(evidence_of(truth))
    shuffled = data.draw(st.permutations(RELATIONS))
    one, other = solve(evidence, RELATIONS, {}), solve(data.draw(st.permutations(evidence)), shuffled, {})
    assert one.values == other.values


def test_a_value_knows_the_lines_it_rests_on():
    evidence = [
        Evidence(R, Interval.exactly(100), "printed", (1,)),
        Evidence(C, Interval.exactly(30), "printed", (2,)),
        Evidence(H, Interval.exactly(20), "printed", (3,)),
        Evidence(G, Interval.exactly(0), "default"),
        Evidence(PER, Interval.exactly(7), "config", (9,)),
    ]
    solution = solve(evidence, RELATIONS, {})
    assert solution.values[M] == Interval.exactly(50)
    assert solution.values[N] == Interval.exactly(7)
    assert solution.lines(M) == (1, 2, 3)
    assert solution.lines(N) == (1, 2, 3, 9)
    assert solution.steps[M][0].relation == "M = R - C - H - G"


def test_lines_that_contradict_each_other_are_both_kept():
    one, other = Evidence(M, Interval(10, 11), "printed", (1,)), Evidence(M, Interval(20, 21), "printed", (2,))
    solution = solve([one, other], [], {})
    assert solution.values[M] == Interval(10, 21)
    assert [c.claims for c in solution.clashes] == [(one, other)]


def test_an_equation_that_does_not_hold_leaves_its_terms_alone():
    evidence = [Evidence(t, Interval.exactly(v), "printed", (v,)) for t, v in ((M, 5), (R, 10), (C, 1), (H, 1), (G, 1))]
    solution = solve(evidence, RELATIONS[:1], {})
    assert dict(solution.values) == {e.term: e.interval for e in evidence}
    assert [c.note.partition(":")[0] for c in solution.clashes] == ["M = R - C - H - G does not hold"]
    assert {line for c in solution.clashes[0].claims for line in c.lines} == {1, 5, 10}


def test_relations_that_push_each_other_on_for_ever_are_stopped():
    """num_blocks printed as 3 and as 5 of one pool whose size nothing bounds."""
    n, m = Term("n"), Term("m")
    evidence = [Evidence(n, Interval.exactly(3), "printed", (1,)), Evidence(m, Interval.exactly(5), "printed", (2,))]
    relations = [FloorDivision("n", n, M, PER), FloorDivision("m", m, M, PER)]
    solution = solve(evidence, relations, {PER: Interval(2, None)})
    assert solution.clashes


def test_bounds_hold_without_evidence():
    assert solve([], [Same("s", M, N)], {N: Interval(0, None)}).values[M] == Interval(0, None)
