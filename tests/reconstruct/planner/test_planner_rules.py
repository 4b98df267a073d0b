"""The table of releases and what it folds to."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise

import pytest
from packaging.version import Version

import reconstruct
from reconstruct.planner import Unsupported
from reconstruct.planner.releases import ROWS
from reconstruct.planner.rules import NEWEST_RELEASE, PlannerRules, precedes_v1, rules_for


def test_rows_stand_in_the_order_of_releases():
    """The fold applies rows from top to bottom, once each."""
    releases = [Version(first) for first, _source, _changes in ROWS]
    assert releases == sorted(set(releases))


def test_every_row_changes_known_fields_and_names_its_source():
    """A row with a misspelt field would change nothing."""
    for first, source, changes in ROWS:
        assert source, first
        assert set(changes) <= set(PlannerRules._fields), first


def test_every_row_changes_something_but_the_first_and_the_last():
    """Rows that repeat what holds already would hide the release that brought it."""
    for (before, _, _), (first, _, _) in pairwise(ROWS[:-1]):
        assert rules_for(before) != rules_for(first), first


def test_each_field_of_the_rules_is_documented():
    """The class text lists every behaviour by its field name."""
    for name in PlannerRules._fields:
        assert name in (PlannerRules.__doc__ or ""), name


@pytest.mark.parametrize(
    ("version", "like"),
    [("0.11.1rc3.dev5+gabc", "0.11.1"), ("0.18.0", "0.18.1"), ("0.13.0", "0.12.0"), ("0.8.5.post1", "0.8.5")],
)
def test_builds_follow_the_release_they_lead_to(version, like):
    """Pre-releases, post-releases and releases without changes share rules."""
    assert rules_for(version) == rules_for(like)


@pytest.mark.parametrize("version", ["1.0.0", "0.34.0", "nightly", "0.6.6"])
def test_releases_that_nobody_read_are_not_guessed(version):
    """Newer, older and unreadable versions are refused by the V1 rules."""
    with pytest.raises(Unsupported):
        rules_for(version)


def test_patches_of_the_newest_release_are_planned():
    """0.33.1 is taken to plan like 0.33.0."""
    assert rules_for(NEWEST_RELEASE + ".1") == rules_for(NEWEST_RELEASE)


def test_v1_starts_with_0_7_3():
    """Older releases are planned as V0."""
    assert (precedes_v1("0.7.2"), precedes_v1("0.7.3")) == (True, False)


def test_the_package_loads_nothing_until_asked():
    """Importing reconstruct is free; its names resolve on first use and misspelt ones fail."""
    code = "import sys, reconstruct; print([m for m in sys.modules if m.startswith('reconstruct.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert reconstruct.plan_from_layers.__module__ == "reconstruct.planner.plan"
    with pytest.raises(AttributeError, match="plan_everything"):
        _ = reconstruct.plan_everything
