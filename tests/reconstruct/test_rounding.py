"""What printed digits hide: never the true value."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsers.template import Printed
from reconstruct.interval import Interval
from reconstruct.rounding import GIB, NotANumber, implied

BYTES = st.integers(-(1 << 40), 1 << 42)


def of(text, form):
    return implied(Printed("x", text, form))


@given(BYTES)
def test_every_way_of_printing_gib_holds_the_bytes(count):
    for text, form, half in (
        (f"{count / GIB:.2f}", "gib", 0.005),
        (str(round(count / GIB, 2)), "gib", 0.005),
        (f"{count / GIB:.4f}", "gib4", 0.00005),
        (f"{count / (1 << 20):.2f}", "mib", 0.005 / 1024),
    ):
        interval = of(text, form)
        assert interval.contains(count)
        assert interval.width <= 2 * half * GIB + 1


@given(st.integers(0, 1 << 42))
def test_an_unrounded_float_is_exact_to_the_byte(count):
    assert of(repr(count / GIB + 0.0), "gib").contains(count)
    if len(repr(count / GIB)) > 12:
        assert of(repr(count / GIB), "gib").width <= 1


@given(st.floats(0, 1), st.integers(1, 10**9))
def test_ratios_and_multiples_hold_what_was_printed(ratio, blocks):
    assert of(repr(ratio), "ratio") == Interval.exactly(ratio)
    assert of(f"{ratio:.4f}", "ratio4").contains(ratio)
    assert of(f"{ratio:f}", "ratio6").contains(ratio)
    assert of(f"{blocks / 7:.2f}", "times").contains(blocks / 7)


@given(st.integers(0, 1 << 40))
def test_torchs_sizes_hold_the_bytes_in_every_unit(count):
    """c10/cuda/CUDACachingAllocator.cpp format_size switches units by value."""
    for unit, scale in (("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", GIB)):
        assert of(f"{count / scale:.2f} {unit}", "size").contains(count)
    assert of(f"{count} bytes", "size") == Interval.exactly(count)


def test_a_dropped_zero_hides_no_more_than_a_printed_one():
    assert of("21.0", "gib") == of("21.00", "gib") == Interval(22543209595, 22553947013)


def test_a_count_may_have_commas():
    assert of("1,075,312", "count") == Interval.exactly(1075312)


@pytest.mark.parametrize(("text", "form"), [("x", "gib"), ("1.5 furlongs", "size"), ("", "count"), ("a", "text")])
def test_what_is_no_figure_is_refused(text, form):
    with pytest.raises(NotANumber):
        of(text, form)
