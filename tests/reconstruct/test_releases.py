"""Which releases a log may come from."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconstruct.eras import FIRST_V1, LAST_V0, era, possible
from reconstruct.releases import EXAMINED, NEWER_THAN_KNOWN, NEWEST, RELEASES, Span, index, narrow, wording_span

WORDINGS = [("0.9.1", "0.33.0"), ("0.14.1", "0.26.0")]


def test_releases_are_in_order_and_hold_every_examined_one():
    from packaging.version import Version

    assert list(RELEASES) == sorted(RELEASES, key=Version)
    assert set(EXAMINED) <= set(RELEASES)


@pytest.mark.parametrize(
    ("stated", "low", "high"),
    [
        ("0.19.0", "0.19.0", "0.19.0"),
        ("0.5.0.post1", "0.5.0.post1", "0.5.0.post1"),
        ("0.13.0+faa43dbf.nv26.01", "0.13.0", "0.13.0"),
        ("0.34.0", "0.34.0", "0.34.0"),
        (None, "0.14.0", "0.27.0"),
        ("garbage", "0.14.0", "0.27.0"),
        ("0.1.dev18496+gd4e0675a7", "0.14.0", "0.27.0"),
        ("0.23.1rc1.dev1201+gd08eebad1", "0.23.0", "0.27.0"),
    ],
)
def test_a_stated_version_stands_and_a_development_build_is_narrowed_by_wordings(stated, low, high):
    version = narrow(stated, WORDINGS)
    assert (version.low, version.high) == (low, high)


def test_a_release_newer_than_known_is_read_by_the_newest_and_says_so():
    version = narrow("0.40.1", [])
    assert version.span == Span(NEWEST, NEWEST)
    assert version.note == NEWER_THAN_KNOWN


def test_a_wording_spans_up_to_its_examined_neighbours_and_not_into_them():
    span = wording_span("0.14.1", "0.26.0")
    assert (RELEASES[span.low], RELEASES[span.high]) == ("0.14.0", "0.27.0")
    assert wording_span("0.2.7", "0.33.0") == Span(0, NEWEST)


@given(st.sampled_from(EXAMINED), st.sampled_from(EXAMINED))
def test_a_wordings_span_holds_its_own_releases(a, b):
    first, last = sorted((a, b), key=index)
    span = wording_span(first, last)
    assert span.low <= index(first) <= index(last) <= span.high


@given(st.integers(0, NEWEST), st.integers(0, NEWEST))
def test_every_release_of_a_span_has_its_era_among_the_possible(a, b):
    span = Span(min(a, b), max(a, b))
    eras = [e for e, _ in possible(span)]
    for place in range(span.low, span.high + 1):
        if place <= LAST_V0:
            assert era(place, "V0") in eras
        if place >= FIRST_V1:
            assert era(place, "V1") in eras


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        ("0.8.5", {"budget": "none", "charge": "device", "tokens": "blocks", "estimate": "none"}),
        ("0.10.2", {"budget": "float", "charge": "terms", "tokens": "groups", "usage_level": "INFO"}),
        ("0.13.0", {"budget": "float", "usage_level": "DEBUG", "tokens_per_worker": False}),
        ("0.14.0", {"budget": "ceil"}),
        ("0.18.1", {"estimate": "off", "peak_has_estimate": True}),
        ("0.19.1", {"estimate": "off", "peak_has_estimate": False, "default_utilization": 0.9}),
        ("0.20.0", {"estimate": "on", "default_utilization": 0.92, "tokens": "groups"}),
        ("0.20.1", {"tokens": "requests"}),
        ("0.26.0", {"charge": "terms", "usage_level": "INFO", "reservation": True}),
        ("0.27.0", {"charge": "consumed", "peak_has_estimate": True, "null_block": False}),
        ("0.29.0", {"null_block": True}),
    ],
)
def test_eras_as_the_released_sources_have_them(release, expected):
    """v1/worker/gpu_worker.py determine_available_memory and compile_or_warm_up_model, v1/core/kv_cache_utils.py."""
    found = era(index(release), "V1")
    assert {name: getattr(found, name) for name in expected} == expected
