"""A cache group: layers that share one block table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple

if TYPE_CHECKING:
    from reconstruct.planner.spec import LayerSpec

Layers = dict[int, "LayerSpec"]
"""Layer number to spec, in registration order."""


class Group(NamedTuple):
    """Layers with one block table.

    `specs` holds one spec for all layers, or, in a group of one type with mixed pages, one spec for each layer.
    """

    layers: tuple[int, ...]
    specs: tuple[LayerSpec, ...]
    mixed: bool = False

    @property
    def block_size(self) -> int:
        """Tokens that one block spans on one rank."""
        return self.specs[0].block_size

    def layer_specs(self) -> tuple[LayerSpec, ...]:
        """One spec a layer."""
        return self.specs if self.mixed else self.specs * len(self.layers)


def mixed(specs: Layers) -> Group:
    """One group of one type that keeps each layer's own page (KU _get_kv_cache_groups_uniform_type)."""
    return Group(tuple(specs), tuple(specs.values()), mixed=True)
