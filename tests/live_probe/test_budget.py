"""The equations of each era, on numbers that can be followed by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from live_probe import budget
from live_probe.eras import ERAS, era_of
from live_probe.measurement import Snapshot

MIB = 1 << 20


def snapshot(free, total=1000, allocated=0, reserved=0, peak=0):
    return Snapshot("step", "after", "rank 0", free, total, allocated, reserved, peak)


READ = budget.ProfilingSnapshots(
    initial=snapshot(free=900, reserved=20),
    after=snapshot(free=650, allocated=190, reserved=230, peak=400),
    allocated_floor=180,
    peak=400,
)


@pytest.mark.parametrize(
    ("version", "total", "fraction", "requested"),
    [
        ("0.10.2", 85028896768, 0.9, 76526007091),
        ("0.14.0", 85028896768, 0.9, 76526007092),
        ("0.33.0", 1000, 0.5, 500),
        ("0.8.5", 1001, 0.5, 500),
    ],
)
def test_the_budget_is_rounded_down_before_0_14_and_up_since(version, total, fraction, requested):
    """requested_memory."""
    assert budget.requested_memory(total, fraction, era_of(version)) == requested


def test_terms_since_0_27_come_from_free_memory():
    """C = 900 - 650, H = 400 - 190."""
    terms = budget.profiled_terms(READ, 150, era_of("0.27.0"))
    assert (terms.total_consumed, terms.transient_peak_headroom) == (250, 210)


def test_terms_of_0_9_1_to_0_26_are_increases():
    """N = (1000 - 650 - 230) - (1000 - 900 - 20), P = 400 - 180, C = W + N."""
    terms = budget.profiled_terms(READ, 150, era_of("0.26.0"))
    assert (terms.non_torch_increase, terms.torch_peak_increase) == (40, 220)
    assert (terms.total_consumed, terms.transient_peak_headroom) == (190, 220)


def test_terms_up_to_0_9_0_charge_all_that_is_in_use_on_the_card():
    """peak 400 + (350 in use - 190 allocated) is what the engine subtracts."""
    terms = budget.profiled_terms(READ, 150, era_of("0.9.0"))
    assert terms.non_kv_cache_memory == 400 + 160
    assert terms.total_consumed == 150 + terms.non_torch_increase


def test_graphs_overlay_their_pool_and_each_further_one_costs_at_least_1_mib():
    """profile_cudagraph_memory of the V1 runner."""
    estimate = budget.graph_estimate([(200 * MIB, 6 * MIB), (60 * MIB, 0)], [51, 35])
    assert estimate == 200 * MIB + 50 * 6 * MIB + 34 * MIB
    assert budget.graph_estimate([], []) == 0
    assert budget.graph_estimate([(7, 0)], [1]) == 7


SIZES = st.integers(0, 1 << 37)


@given(SIZES, SIZES, SIZES, SIZES, st.sampled_from(ERAS), st.integers(-(1 << 30), 1 << 34))
def test_the_identity_holds_for_any_figures(free, allocated, extra, weights, era, graphs):
    """M + G + H + C = R, whatever the signs."""
    total = 1 << 38
    read = budget.ProfilingSnapshots(
        initial=snapshot(total - 1000, total),
        after=snapshot(free, total, allocated, allocated + extra, allocated + extra),
        allocated_floor=allocated,
        peak=allocated + extra,
    )
    terms = budget.profiled_terms(read, weights, era)
    requested = budget.requested_memory(total, 0.9, era)
    available = budget.available_kv_cache_memory(requested, terms, graphs)
    assert available + graphs + terms.transient_peak_headroom + terms.total_consumed == requested
    assert 0 <= abs(requested - total * 0.9) < 1
