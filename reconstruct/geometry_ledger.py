"""What a geometry added to a start-up's ledger: frozen values that reports read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.interval import ANYTHING, Interval

if TYPE_CHECKING:
    from reconstruct.geometry import Layout
    from reconstruct.hypotheses import Hypothesis, Products


class PoolVerdict(NamedTuple):
    """How blocks x bytes compares with the memory that the workers printed.

    kind: `closes` (it fills the smallest printed pool but for less than a block), `poorer-rank` (the smallest printed
    pool is larger: a rank that printed none binds), `override` (the blocks are the user's), `withdrawn` (the bytes
    contradict the log) or `open`.
    """

    kind: str
    text: str
    shortfall: Interval = ANYTHING
    """By how much the binding pool lies below the smallest printed one, in bytes; of a poorer rank only."""


class EngineGeometry(NamedTuple):
    """One engine's cache against a geometry."""

    dp: int
    layout: Layout | None
    """None where nothing could be planned; the ledger's reason says why."""
    pool: PoolVerdict
    hypotheses: tuple[Hypothesis, ...] = ()
    products: Products | None = None
    """The plain decoders that the log allows, where no geometry is at hand."""


class GeometryLedger(NamedTuple):
    """The geometry beside a start-up.

    status: `used` (its figures are in the ledger), `withdrawn` (they contradict the log and were taken out again) or
    `none`.
    """

    status: str
    model: str
    source: str
    """`given`, `cache`, `catalogue` or `hub`; empty where there is none."""
    place: str
    reason: str
    """Why it is not used; empty where it is."""
    engines: tuple[EngineGeometry, ...]
