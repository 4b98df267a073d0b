"""Whatever start-up is rendered, whatever lines are lost, every reported interval holds the true value."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kvforensics.explanation import NothingToExplain, explain
from tests.kvforensics.start_ups import rank, start
from tests.render import lines, strategies, wrappers
from tests.render.numbers_as_printed import GIB, MIB
from tests.render.parts import INJECTABLE, Failure, Group, Scope

RELAXED = settings(max_examples=60)


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


def fewest(engine, truth):
    """Give the names of the ranks that have the fewest blocks of their engine."""
    indices = {truth.scope(i): i for i in range(len(truth.ranks))}
    least = {dp: min(map(truth.own_blocks, truth.of_engine(dp))) for dp in range(truth.dp)}
    return {
        one.name
        for one in engine.ranks
        for scope in scopes_of(one, engine, truth)
        if truth.own_blocks(indices[scope]) == least[scope.dp]
    }


def faults(report, truth):
    """Give every false statement of a report on one start-up."""
    expected = truth.expected()
    found = []
    for startup in report.startups:
        found += [("conflict", c.quantity, c.note, c.claims) for c in startup.conflicts]
        for engine in startup.engines:
            found += wrong(engine.capacity, Scope(engine.dp), expected)
            if truth.reached.plan and engine.binding_rank not in {None, *fewest(engine, truth)}:
                found.append(("binding rank", engine.binding_rank))
            for one in engine.ranks:
                options = [wrong(one.account, s, expected) for s in scopes_of(one, engine, truth)]
                if options and all(options):
                    found.append((one.name, min(options, key=len)))
    return found


def hides_its_only_line(truth):
    """Whether a term stands on one line alone, whose loss leaves nothing that asks for it.

    A launch whose other engines no line names is taken for one engine: workers say no engine's name before their groups
    exist (0.10.2 on), and replicas of a dense model say none ever (0.14.0 on).
    """
    if truth.dp > 1 and (truth.since("0.10.2") if truth.world > 1 else truth.since("0.14.0") and not truth.moe):
        return True
    return truth.num_blocks_override is not None


PRINTED_WIDTH = {"B": 1 << 24, "tokens": 0, "blocks": 0}
"""A figure rounded to 0.01 GiB hides at most 10.24 MiB; counts hide nothing."""


@RELAXED
@given(strategies.truths(injections=INJECTABLE))
def test_every_true_value_lies_in_its_interval(truth):
    report = explained(lines.render(truth))
    assert report is not None or truth.injected is Failure.CUT
    assert report is None or len(report.startups) == 1
    assert report is None or faults(report, truth) == []


@RELAXED
@given(strategies.truths(injections=INJECTABLE), st.floats(0, 1), st.floats(0, 1))
def test_an_excerpt_says_less_and_nothing_false(truth, first, last):
    """A log that begins late, as after a rotation, and ends early."""
    assume(not hides_its_only_line(truth))
    held = lines.render(truth).splitlines(keepends=True)
    low, high = sorted(int(end * len(held)) for end in (first, last))
    report = explained("".join(held[low:high]))
    assert report is None or faults(report, truth) == []


@RELAXED
@given(strategies.truths())
def test_what_is_printed_is_as_tight_as_printing_allows(truth):
    """But for a length that the engine fits itself: until it has, the printed one is the most that it may be."""
    asked_only = truth.auto_fit and not truth.reached.plan
    report = explained(lines.render(truth))
    for engine in report.startups[0].engines:
        for account in [engine.capacity, *(r.account for r in engine.ranks)]:
            for quantity in account.quantities.values():
                if (
                    quantity.origin == "printed"
                    and quantity.unit in PRINTED_WIDTH
                    and quantity.interval.low is not None
                    and not (asked_only and quantity.name == "max_model_len")
                ):
                    assert quantity.lines
                    assert quantity.interval.width <= PRINTED_WIDTH[quantity.unit], quantity


@RELAXED
@given(strategies.truths(), st.data())
def test_lost_lines_widen_intervals_and_falsify_none(truth, data):
    assume(not hides_its_only_line(truth))
    text = wrappers.drop_lines(lines.render(truth), data.draw(st.randoms(use_true_random=False)), 0.3)
    report = explained(text)
    assert report is None or faults(report, truth) == []


@st.composite
def successors(draw):
    """Two start-ups, the second some time after the first; half of them of one release, and then of one engine."""
    first = draw(strategies.truths(injections=INJECTABLE))
    releases = draw(st.sampled_from(((first.version,), strategies.KNOWN[2:])))  # the first two state no version
    second = draw(strategies.truths(releases, INJECTABLE))
    assume(second.version != first.version or second.engine == first.engine)
    return first, replace(second, start=first.start + draw(st.integers(600, 6000)), colour=first.colour)


@RELAXED
@given(successors())
def test_start_ups_in_one_log_are_told_apart(pair):
    """A container that comes up again, or an upgrade in one journal: nothing of one is taken for the other's."""
    report = explained("".join(map(lines.render, pair)))
    assert report is not None
    assert len(report.startups) == 2
    for startup, truth in zip(report.startups, pair, strict=True):
        assert faults(report._replace(startups=(startup,)), truth) == []


@RELAXED
@given(strategies.truths(), st.sampled_from(wrappers.WRAPPERS))
def test_no_transport_changes_what_is_said(truth, wrap):
    report = explained(wrap(lines.render(truth)))
    assert report is not None
    assert faults(report, truth) == []


@RELAXED
@given(strategies.truths(injections=INJECTABLE))
def test_a_start_ends_as_it_ended(truth):
    report = explained(lines.render(truth))
    if report is not None:
        assert report.startups[-1].outcome == truth.outcome


@RELAXED
@given(strategies.truths(ray=True))
def test_rays_folding_changes_nothing_that_is_said(truth):
    """Ray leaves out lines that differ in digits alone."""
    assert faults(explained(wrappers.ray_folded(lines.render(truth))), truth) == []


@RELAXED
@given(strategies.truths(versions=tuple(v for v in strategies.KNOWN if strategies.since(v, "0.32.0"))))
def test_the_engines_json_changes_nothing_that_is_said(truth):
    """0.32's own formatter writes each record as an object."""
    assert faults(explained(wrappers.json_records(lines.render(truth))), truth) == []


# -- what the laws have found -----------------------------------------------------------------------------------------


def told(truth, kept=lambda line: True):
    """The faults of a rendered log of which only some lines are kept."""
    text = "".join(line for line in lines.render(truth).splitlines(keepends=True) if kept(line))
    return faults(explain(text.encode()), truth)


def test_an_error_that_the_driver_repeats_is_the_workers():
    """V0's main process is rank 0 and raises again what ended rank 1, whose card may be another."""
    small = rank(total_memory=24 * GIB, initial_free_memory=23 * GIB, model_memory=16 * GIB)
    two = start("0.4.3", ranks=(rank(), small), tp=2, engine="V0", injected=Failure.OOM_PROFILING)
    assert told(two) == []
    assert told(two, lambda line: "VllmWorkerProcess" not in line or "OutOfMemory" not in line) == []


def test_without_the_arguments_no_block_size_is_a_default():
    """The catalogue knows the model, not what was asked for."""
    asked = start("0.33.0", block_size=32, rank=rank(bytes_per_block=2 * 917504))
    assert told(asked, lambda line: "non-default args" not in line) == []


def test_a_budget_is_printed_before_it_is_cut():
    """95 GiB x 0.321 is 30.495 GiB and a fraction of a byte: the line says 30.50, the whole bytes below would say 30.49."""
    gh200 = rank(total_memory=95 * GIB, initial_free_memory=94 * GIB)
    assert told(start("0.7.3", u=0.321, engine="V0", rank=gh200)) == []
    assert told(start("0.13.0", u=0.321, rank=gh200, log_level="DEBUG")) == []


def test_a_replica_of_a_dense_model_calls_itself_the_first():
    """From 0.14 on every one of them is rank 0 of its own world: `DP rank 0` says nothing of the launch's engines."""
    ranks = tuple(rank(initial_free_memory=free * GIB, bytes_per_block=458752) for free in (79, 78, 77, 76))
    assert told(start("0.17.1", u=0.8, ranks=ranks, tp=2, dp=2, log_level="DEBUG")) == []


def test_a_line_of_one_process_is_not_the_rest_of_anothers():
    """An engine dies while the other speaks: the error stands under a record of the other's, whose sentence might go on."""
    small = rank(total_memory=24 * GIB, initial_free_memory=23 * GIB)
    two = start("0.18.0", ranks=(rank(), small), dp=2, injected=Failure.OOM_LOADING)
    said = lines.render(two).splitlines(keepends=True)
    above = next(i for i, line in enumerate(said) if "backends:" in line)
    error = next(i for i, line in enumerate(said) if ") torch.OutOfMemoryError" in line)
    said.insert(above + 1, said.pop(error))
    assert faults(explain("".join(said).encode()), two) == []


def test_workers_of_unknown_stages_need_not_share_a_block():
    """Three stages of V0 go by one name: the fewest blocks are not surely those of the smallest pool."""
    ranks = (
        rank(bytes_per_block=9 << 16),
        rank(bytes_per_block=10 << 16),
        rank(model_memory=16 * GIB, bytes_per_block=9 << 16),
    )
    staged = start("0.9.0.1", engine="V0", pp=3, ranks=ranks)
    assert told(staged, lambda line: "pipeline_parallel_size" not in line) == []


def test_a_pool_of_one_request_does_not_tell_its_groups():
    """35 blocks in two groups print as 17 x 16 tokens, and hold one request of 17 + 18 blocks: 1.00, as one group would."""
    two = (Group("full", 16), Group("sliding", 16, 128))
    shape = {"architecture": "GptOssForCausalLM", "model": "example-org/two-windows", "groups": two}
    full = start("0.19.1", kv_cache_memory_bytes=35 * 917504, full_model_len=272, **shape)
    assert told(full) == []


def test_ranks_that_two_decimals_do_not_part_bind_by_no_claim():
    """2 MiB more on the second rank, whose reservation no line gives: which has fewer blocks no line tells."""
    half = rank(bytes_per_block=458752)
    more = replace(half, model_memory=15 * GIB + 2 * MIB, total_consumed=15 * GIB + 514 * MIB)
    for ranks in ((half, more), (more, half)):
        assert told(start("0.32.0", tp=2, ranks=ranks, log_level="DEBUG", mm_reservation=1480 * MIB)) == []


def test_the_rank_that_surely_has_the_fewest_blocks_is_named():
    half = rank(bytes_per_block=458752)
    less = replace(half, model_memory=16 * GIB, total_consumed=16 * GIB + 512 * MIB)
    two = start("0.32.0", tp=2, ranks=(half, less), log_level="DEBUG")
    assert [engine.binding_rank for engine in explained(lines.render(two)).startups[0].engines] == ["Worker_TP1"]


def test_a_pool_without_room_for_a_token_fits_no_length():
    """Two blocks hold what no token takes, a window's spare block, and not the three of one token."""
    two = (Group("full", 16), Group("sliding", 16, 128))
    shape = {"architecture": "GptOssForCausalLM", "model": "example-org/two-windows", "groups": two}
    fitted = start("0.32.0", kv_cache_memory_bytes=2 * 917504, auto_fit=True, length_given=False, **shape)
    assert fitted.outcome == "failed"
    assert "Cannot auto-fit" in lines.render(fitted)
    assert told(fitted) == []
