"""What a geometry says of a start-up, for people: where it is from, how the pool closes, what else could have been."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvforensics.report.redaction import quoted
from kvforensics.report.sizes import bytes_text, gib_text
from parsers.tuples import NamedTuple

if TYPE_CHECKING:
    from kvforensics.report.look import Look
    from reconstruct.geometry import Layout
    from reconstruct.geometry_ledger import EngineGeometry, GeometryLedger
    from reconstruct.hypotheses import Hypothesis, Product, Products
    from reconstruct.ledger import EngineLedger, StartUpLedger

SOURCES = {
    "given": "from {place}",
    "cache": "from the local Hugging Face cache",
    "catalogue": "by its id, from the catalogue",
    "hub": "from the Hugging Face hub",
}
SHOWN = 4
"""Plain decoders named in a report for people; JSON holds more."""
HEADS = ("cache layout", "bytes per block", "log allows", "")


class Verdict(NamedTuple):
    """One line of the table of hypotheses."""

    name: str
    bytes_per_block: str
    allowed: str
    verdict: str


class GeometrySection(NamedTuple):
    """What stands below the capacity."""

    title: str
    notes: tuple[str, ...]
    verdicts: tuple[Verdict, ...]
    alarm: bool
    """Whether the geometry contradicts the log."""


def geometry_section(startup: StartUpLedger, shown: tuple[EngineLedger, ...], look: Look) -> GeometrySection | None:
    """Give the section of the engines shown; None where none was looked for."""
    geometry = startup.geometry
    if geometry is None:
        return None
    named = {engine.dp for engine in shown}
    engines = [e for e in geometry.engines if e.dp in named]
    if not geometry.source:
        return _without(geometry, engines, look)
    if geometry.status == "none":
        reason = f"Not used: {quoted(geometry.reason, mask=look.redact, most=240)}."
        return GeometrySection(_title(geometry, look), (reason,), (), alarm=False)
    several = len(startup.engines) > 1
    notes: list[str] = []
    if geometry.status == "withdrawn":
        reason = quoted(geometry.reason, mask=look.redact, most=240)
        notes.append(f"It contradicts the log, so none of its figures is used: {reason}.")
    for engine in engines:
        notes += [f"DP{engine.dp}: {text}" if several else text for text in _engine(engine)]
    verdicts = tuple(_verdict(h) for engine in engines[:1] for h in engine.hypotheses)
    return GeometrySection(_title(geometry, look), tuple(notes), verdicts, alarm=geometry.status == "withdrawn")


def _title(geometry: GeometryLedger, look: Look) -> str:
    place = SOURCES[geometry.source].format(place=quoted(geometry.place, mask=look.redact))
    name = quoted(geometry.model, mask=look.redact) if geometry.model else "model"
    return f"Geometry of {name}, {place}"


def _engine(engine: EngineGeometry) -> list[str]:
    found = [layout_text(engine.layout)] if engine.layout else []
    pool = engine.pool
    if pool.kind == "closes":
        found.append(f"The pool closes: {pool.text}.")
    elif pool.kind == "poorer-rank":
        found.append(f"The pool lies {gib_text(pool.shortfall)} below what is printed: {pool.text}.")
    elif pool.kind == "override":
        found.append(f"The pool is not compared: {pool.text}.")
    return found


def layout_text(layout: Layout) -> str:
    """Give a layout in one sentence."""
    stages = dict.fromkeys(bytes_text(stage) for stage in layout.stages)
    sizes = " or ".join(stages)
    if layout.groups is None:
        groups = "cache groups differ between the releases left open"
    else:
        groups = "one cache group" if layout.groups == 1 else f"{layout.groups} cache groups"
    tokens = f", {layout.block_size} tokens a block" if layout.block_size else ""
    return f"{groups[0].upper()}{groups[1:]}, {sizes} a block{tokens}."


def _verdict(hypothesis: Hypothesis) -> Verdict:
    known = hypothesis.allowed.high is not None or (hypothesis.allowed.low or 0) > 1
    word = "fits" if hypothesis.fits else "excluded"
    if hypothesis.clash:
        return Verdict(hypothesis.name, bytes_text(hypothesis.bytes_per_block), "none", word)
    allowed = bytes_text(hypothesis.allowed) if known else ""
    return Verdict(hypothesis.name, bytes_text(hypothesis.bytes_per_block), allowed, word)


def _without(geometry: GeometryLedger, engines: list[EngineGeometry], look: Look) -> GeometrySection:
    """Say why no geometry is at hand, and which plain decoders fit where the log bounds a block."""
    found = next((e.products for e in engines if e.products), None)
    reason = quoted(geometry.reason, mask=look.redact, most=240)
    notes = (f"{reason[:1].upper()}{reason[1:]}.", *((products_text(found),) if found else ()))
    return GeometrySection("Geometry: none", notes, (), alarm=False)


def products_text(products: Products) -> str:
    """Give the plain decoders inside an interval in one sentence."""
    allowed = f"The log allows {bytes_text(products.allowed)} a block: "
    if not products.total:
        return allowed + "no whole number of plain decoder layers has that size."
    listed = [_product(p) for p in products.shown[:SHOWN]]
    more = f" and {products.total - len(listed):,} more" if products.total > len(listed) else ""
    return f"{allowed}{', '.join(listed)}{more} fit (plain decoders, heads of one rank)."


def _product(product: Product) -> str:
    bits = "" if product.element_bytes == 2 else f" ({8 * product.element_bytes} bit)"
    return f"{product.layers} layers x {product.kv_heads} key heads x {product.head_size}{bits}"
