"""What holds of every start-up: nothing is invented, causes come first, and proposals do what they say."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from kvforensics.explanation import NothingToExplain, explain
from kvforensics.findings import BY_ID, REASONS, ordered, weight
from kvforensics.findings.effects import Rate, highest_utilization, pool_after, tokens_for, utilization_step
from kvforensics.findings.finding import ERROR, NOTE, SEVERITIES, Cost, Finding
from kvforensics.report.json import explain_object
from reconstruct.interval import ANYTHING, Interval
from tests.kvforensics.findings.starts import TIGHT, card, start, truth
from tests.make_samples import L4
from tests.render.lines import render
from tests.render.parts import INJECTABLE, Failure
from tests.render.strategies import truths

if TYPE_CHECKING:
    from tests.render.truth import Truth

STEP_OF = {
    Failure.OOM_LOADING: "oom-at-load",
    Failure.OOM_PROFILING: "oom-at-profile",
    Failure.OOM_SAMPLER: "oom-at-sampler-warmup",
}
OF_MEMORY = {i for i, r in BY_ID.items() if ERROR in r.severities and i != "restart-loop"}

sizes = st.integers(1, 1 << 38)


@settings(max_examples=80)
@given(truths(injections=INJECTABLE))
def test_nothing_is_invented(truth: Truth) -> None:
    """Findings of a start-up fit how it ended, lie in the log, and survive as JSON."""
    log = render(truth)
    if truth.failure is Failure.OOM_LOADING:
        log = log.replace("in _dummy_run", "in load_model")  # the renderer's traceback is that of a dummy run
    try:
        report = explain(log.encode())
    except NothingToExplain:
        assert truth.failure is Failure.CUT  # cut before its first line of the engine
        return
    last = report.lines
    for verdict in report.verdicts:
        for finding in verdict.findings:
            assert finding.severity in BY_ID[finding.id].severities
            assert finding.evidence
            assert all(1 <= line <= last for line in finding.evidence)
    found = {f.id for v in report.verdicts for f in v.findings}
    errors = {f.id for v in report.verdicts for f in v.findings if f.severity == ERROR}
    if truth.failure is Failure.NONE:
        assert not errors
        assert not {i for i in found if i.startswith("oom-")}
    if truth.failure is Failure.UNRELATED:
        assert not found & OF_MEMORY
        assert "not-a-memory-failure" in found
    if truth.failure in STEP_OF and not truth.v0:  # the renderer's V0 tracebacks show the profile, whatever failed
        assert STEP_OF[truth.failure] in found
    if truth.failure is Failure.FREE_BELOW_DESIRED:
        assert "budget-exceeds-free-memory" in found
    json.dumps(explain_object(report))


def test_the_estimate_that_a_refusal_prints_becomes_the_length_to_set() -> None:
    """Before 0.29 the estimate counts the null block too, so the length stays a block below it."""
    was = truth("0.24.0", TIGHT, full_model_len=131072)
    refused = next(
        f for v in explain(render(was).encode()).verdicts for f in v.findings if f.id == "request-does-not-fit"
    )
    longest = was.longest(was.ranks[0])
    assert refused.actions[0].do == f"--max-model-len {longest - was.block_size}"
    assert refused.cost.bytes.contains(
        was.blocks_per_request(131072) * TIGHT.bytes_per_block - was.check_memory(was.ranks[0])
    )
    assert refused.cost.tokens == Interval.exactly(131072 - longest)


def advised(log: str, identifier: str) -> list[str]:
    """What a finding of a log says to do, in order."""
    found = [f for v in explain(log.encode()).verdicts for f in v.findings if f.id == identifier]
    return [action.do for f in found for action in f.actions]


def test_a_pool_of_nothing_asks_for_more_of_a_card_that_no_line_measures() -> None:
    """With T and F in the log there is a figure instead; where the card has no room, neither."""
    first, figure, full = (
        advised(start("0.19.1", card(total=L4, weights=weights, peak=9.2, other=0.9), u=u, log_level=level), "no-kv-memory")[0]
        for weights, u, level in ((7.338, 0.7, "INFO"), (7.338, 0.7, "DEBUG"), (14.0, 0.97, "DEBUG"))
    )  # fmt: skip
    assert first == "--gpu-memory-utilization higher"
    assert 0.7 < float(figure.removeprefix("--gpu-memory-utilization ")) < 1
    assert full.startswith("--max-num-batched-tokens")


def test_where_others_hold_most_of_the_card_they_are_ended_first() -> None:
    most, some = (advised(start("0.22.1", card(used=used)), "budget-exceeds-free-memory") for used in (60, 24.8))
    assert most[0].startswith("end what else")
    assert some[0].startswith("--gpu-memory-utilization")
    assert sorted(a.split()[0] for a in most) == sorted(a.split()[0] for a in some)


@given(sizes, sizes, st.floats(0.0001, 0.5))
def test_the_pool_grows_by_the_total_times_the_step(pool: int, total: int, step: float) -> None:
    """dM = T x du, the rounding of R aside."""
    after = pool_after(Interval.exactly(pool), Interval.exactly(total), step)
    assert after.contains(pool + round(total * step))
    assert (after.width or 0) <= 4


@given(st.integers(1 << 30, 1 << 38), st.integers(1, 1 << 37))
def test_a_proposed_step_yields_at_least_what_was_wanted(total: int, wanted: int) -> None:
    step = utilization_step(Interval.exactly(wanted), Interval.exactly(total))
    assert step is not None
    assert total * (step + 1e-12) >= wanted
    assert total * (step - 0.000101) < wanted


@given(st.integers(1 << 30, 1 << 38), st.floats(0, 1))
def test_the_highest_utilisation_fits_into_what_is_free(total: int, share: float) -> None:
    free = int(total * share)
    top = highest_utilization(Interval.exactly(free), Interval.exactly(total))
    assert top is not None
    assert total * (top - 1e-12) <= free < total * (top + 0.00011)


@given(st.integers(1, 1 << 20), st.integers(1, 256), st.integers(1, 1 << 22), st.integers(0, 1 << 20))
def test_tokens_of_a_part_of_the_pool_hold_the_truth(blocks: int, size: int, per_block: int, taken: int) -> None:
    """A pool shrunk by whole blocks holds their tokens less."""
    fewer = min(taken, blocks)
    rate = Rate(Interval.exactly(blocks * size), Interval.exactly(blocks * per_block), size)
    assert tokens_for(Interval.exactly(fewer * per_block), rate).contains(fewer * size)


def test_an_unknown_pool_has_no_tokens() -> None:
    assert tokens_for(Interval.exactly(5), Rate(ANYTHING, Interval.exactly(9), 16)) == ANYTHING


def _finding(item: tuple[str, tuple[str, int]]) -> Finding:
    identifier, (severity, size) = item
    return Finding(identifier, severity, "title", "detail", (1,), Cost(Interval.exactly(size)))


findings = st.dictionaries(
    st.sampled_from(sorted(BY_ID)), st.tuples(st.sampled_from(SEVERITIES), st.integers(0, 1 << 40)), max_size=12
).map(lambda drawn: [_finding(item) for item in drawn.items()])


@settings(max_examples=40)
@given(findings)
def test_causes_come_before_what_follows_from_them(some: list[Finding]) -> None:
    """The order keeps every finding, puts causes first, and is by cost where neither causes the other."""
    got = ordered(some)
    assert sorted(got) == sorted(some)
    places = {f.id: i for i, f in enumerate(got)}
    for finding in got:
        assert all(places[cause] < places[finding.id] for cause in BY_ID[finding.id].after if cause in places)


@settings(max_examples=40)
@given(findings)
def test_dearer_notes_come_first(some: list[Finding]) -> None:
    notes = [f._replace(severity=NOTE) for f in some if not BY_ID[f.id].after]
    caused = {cause for rule in BY_ID.values() for cause in rule.after}
    free = [f for f in notes if f.id not in caused | REASONS]
    sizes_of = [f.cost.bytes.low or 0 for f in ordered(free)]
    assert sizes_of == sorted(sizes_of, reverse=True)


@settings(max_examples=40)
@given(findings)
def test_what_a_start_ended_by_stands_before_every_warning(some: list[Finding]) -> None:
    """The heaviest is an error, or else says what the start ended by, whatever the rest would cost."""
    heaviest = min(some, key=weight, default=None)
    if heaviest and heaviest.severity != ERROR:
        assert heaviest.id in REASONS or not {f.id for f in some} & REASONS
        assert heaviest.id in REASONS or heaviest.severity == min((f.severity for f in some), key=SEVERITIES.index)
