"""The data files: every constant with its source, every size in step with the catalogue of geometries."""

import pytest

from reconstruct.planner import catalogue
from reconstruct.planner.config import layer_specs
from reconstruct.planner.launch import Launch
from reconstruct.predict.constants import UnknownConstant, constant, constants
from reconstruct.predict.scheme import scheme_of
from reconstruct.predict.shape import shape_of
from reconstruct.predict.sizes import full_config, sized_ids
from reconstruct.releases import index


@pytest.mark.parametrize("row", constants(), ids=lambda row: f"{row.name} {row.first} {row.hardware[0]}")
def test_constant_says_where_it_holds_and_where_it_comes_from(row):
    """Band, releases, hardware, source: nothing is silent."""
    assert row.low <= row.value <= row.high
    assert index(row.first) <= index(row.last)
    assert row.hardware
    assert row.unit
    assert row.source
    assert row.logs == 0 or row.spread


def test_lookup_is_by_release_and_card():
    """A row answers for the releases and cards it was measured on, and for no others."""
    assert constant("non_torch.single", index("0.19.0"), "hopper").value == 0.25
    assert constant("non_torch.single", index("0.10.2"), "turing").value < 0.1
    with pytest.raises(UnknownConstant):
        constant("non_torch.single", index("0.19.0"), "turing")


@pytest.mark.parametrize("model", sized_ids())
def test_sizes_can_be_read(model):
    """Every model of the table has a shape and a scheme."""
    config = full_config(model)
    assert shape_of(config).layers > 0
    assert scheme_of(config, None).kind


@pytest.mark.parametrize("model", [name for name in sized_ids() if catalogue.find(name)])
def test_sizes_give_the_catalogues_cache(model):
    """Two tables of one model plan the same layers."""
    launch = Launch("0.33.0", max_model_len=2048, dtype="bfloat16")
    assert layer_specs(full_config(model), launch).stages == layer_specs(catalogue.find(model), launch).stages
