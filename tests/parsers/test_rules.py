"""Every rule proves itself on its sample, and no rule takes another's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsers.marks import ERRORS, FADING, FRAGMENTS, MEMORY, words
from parsers.matching import statements
from parsers.record import Record
from parsers.rule import literals
from parsers.rules import RULES
from parsers.template import FORMS, FREE, Printed, read, segments
from reconstruct.releases import EXAMINED, RELEASES, index
from reconstruct.rounding import NotANumber, implied

NUMBERED = [form for form in FORMS if form != "number"]


def wholly(rule, text):
    """Whether a rule takes a text from its first to its last character."""
    reading = read(rule.template, text)
    return bool(reading) and reading.complete and reading.end == len(text)


def name_of(rule):
    return f"{rule.kind}: {rule.template[:40]}"


@pytest.mark.parametrize("rule", RULES, ids=name_of)
def test_a_sample_is_taken_whole_by_its_own_rule_only(rule):
    """A free tail takes anything: there the rule with the most to say must be the one that is read."""
    if segments(rule.template)[-1].form != "rest":
        assert [r for r in RULES if wholly(r, rule.sample) and segments(r.template)[-1].form != "rest"] == [rule]
    assert [s.rule for s in statements([Record(1, rule.sample)])[0]] == [rule]


@pytest.mark.parametrize("rule", RULES, ids=name_of)
def test_a_rule_is_well_formed(rule):
    first, last = rule.releases
    assert {first, last} <= {*EXAMINED, *RELEASES}
    assert index(first) <= index(last)
    assert len(rule.head) >= 4, "a sentence starts with fixed words"
    assert all(s.form in (*FORMS, *FREE) for s in segments(rule.template) if s.name)


@pytest.mark.parametrize("rule", RULES, ids=name_of)
def test_a_sample_is_found_by_the_search(rule):
    """Add a fragment of the sentence to parsers.marks.FRAGMENTS where this fails."""
    assert any(f in rule.sample for f in (*FRAGMENTS, *ERRORS, *FADING))
    known = [w.decode() for w in words()]
    assert any(w in rule.sample for w in (*known, *MEMORY)), literals(rule)


@pytest.mark.parametrize("rule", RULES, ids=name_of)
def test_a_sample_is_read_with_figures_that_mean_something(rule):
    found, unread = statements([Record(7, rule.sample, prefixed=True)])
    assert unread == []
    assert [(s.kind, s.lines) for s in found] == [(rule.kind, (7,))]
    for printed in found[0].fields:
        if printed.form in NUMBERED:
            assert implied(printed).low is not None


@given(st.sampled_from(RULES), st.data())
def test_a_sentence_broken_by_a_terminal_reads_as_if_it_were_whole(rule, data):
    """Behind the engine's prefix, at any column, inside a number too."""
    if segments(rule.template)[-1].form == "rest" or len(rule.sample) < 12:
        return  # what a message's free tail holds cannot be told from the next line
    cut = data.draw(st.integers(4, len(rule.sample) - 1))
    whole, _ = statements([Record(1, rule.sample, prefixed=True)])
    pieces = [Record(1, rule.sample[:cut], prefixed=True), Record(2, rule.sample[cut:])]
    broken, _ = statements(pieces)
    if wholly(rule, rule.sample[:cut]):
        return  # the sentence was over before the break
    assert [s.fields for s in broken] == [s.fields for s in whole]
    assert broken[0].lines == (1, 2)


@pytest.mark.parametrize("text", ["", "-", "1.2.3", "1e999", "nan", "0x10", "1_0", "9" * 400])
@pytest.mark.parametrize("form", NUMBERED)
def test_no_text_breaks_the_reading_of_a_number(form, text):
    try:
        interval = implied(Printed("x", text, form))
    except NotANumber:
        return
    assert interval.low is None or interval.high is None or interval.low <= interval.high


def test_prose_before_a_sentence_makes_it_no_statement():
    found, _ = statements([Record(1, "it said Available KV cache memory: 41.73 GiB yesterday")])
    assert found == []


def test_an_exception_may_carry_a_sentence():
    text = "ValueError: No available memory for the cache blocks. Try increasing it."
    assert [s.kind for s in statements([Record(1, text)])[0]] == ["no_kv_memory"]


def test_the_last_line_of_a_traceback_is_an_error_whatever_it_says():
    (found,), _ = statements([Record(3, "huggingface_hub.errors.GatedRepoError: 401 Client Error.")])
    assert (found.kind, found.text("error_class")) == ("error", "huggingface_hub.errors.GatedRepoError")
