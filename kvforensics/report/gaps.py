"""What a ledger does not say, says twice, or left unread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvforensics.report.redaction import quoted, quoted_line
from kvforensics.report.sizes import bytes_text, gib, ratio, whole
from kvforensics.report.wording import Source, symbol
from parsers.tuples import NamedTuple
from reconstruct.quantities import BY_NAME
from reconstruct.releases import index

if TYPE_CHECKING:
    from reconstruct.interval import Interval
    from reconstruct.ledger import Conflict, EngineLedger, Missing, StartUpLedger

UNREAD_SHOWN = 5
CLAIMS_SHOWN = 4
NOTE_LENGTH = 240
RANKS_NAMED = 2


class Gap(NamedTuple):
    """Figures that are missing for one reason."""

    symbols: str
    reason: str
    names: tuple[str, ...]


class Quote(NamedTuple):
    """A line of the log."""

    line: int
    text: str


def gaps(startup: StartUpLedger, engines: tuple[EngineLedger, ...]) -> tuple[Gap, ...]:
    """Give what is missing of these engines, one entry for each reason; a gap of some ranks only names them."""
    ranks = [r for e in engines for r in e.ranks if r.name != "drafter"]
    everyone = tuple(r.name for r in ranks)
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    for rank in ranks:
        for missing in _needed(rank.account.missing, startup):
            names = found.setdefault(missing.reason, {})
            names[missing.name] = (*names.get(missing.name, ()), rank.name)
    for engine in engines:
        for missing in _needed(engine.capacity.missing, startup):
            found.setdefault(missing.reason, {})[missing.name] = everyone
    return tuple(Gap(_by_ranks(names, everyone), reason, tuple(names)) for reason, names in found.items())


def _by_ranks(names: dict[str, tuple[str, ...]], everyone: tuple[str, ...]) -> str:
    """Give symbols, those of the same ranks together: `P, H; W, M (Worker_PP1)`."""
    together: dict[tuple[str, ...], list[str]] = {}
    for name, ranks in names.items():
        together.setdefault(ranks, []).append(symbol(name))
    parts = []
    for ranks, symbols in together.items():
        named = ", ".join(ranks) if len(ranks) <= RANKS_NAMED else f"{len(ranks)} of {len(everyone)} ranks"
        parts.append(", ".join(symbols) + ("" if ranks == everyone else f" ({named})"))
    return "; ".join(parts)


def _needed(missing: dict[str, Missing], startup: StartUpLedger) -> list[Missing]:
    """Leave out the terms that the release does not have."""
    absent = set()
    if all(era.charge == "consumed" for era in startup.eras):
        absent |= {"torch_peak_increase", "non_torch_increase"}
    if all(era.estimate == "none" for era in startup.eras):
        absent.add("cudagraph_memory_estimate")
    if startup.version.span.high < index("0.32.0"):
        absent.add("external_weight_memory")
    return [m for m in missing.values() if m.name not in absent]


def hints(found: tuple[Gap, ...]) -> tuple[str, ...]:
    """Say how to get what is missing."""
    if not found:
        return ()
    listed = []
    if any("DEBUG" in gap.reason for gap in found):
        listed.append("VLLM_LOGGING_LEVEL=DEBUG at the next start prints what is marked DEBUG.")
    if any("total_memory" in gap.names and "--gpu" not in gap.reason for gap in found):
        listed.append("--gpu NAME or --total-memory 79.19GiB adds T.")
    addable = [name for gap in found for name in gap.names if name in BY_NAME and name != "total_memory"]
    if addable:
        value = {"B": "1.5GiB", "1": "0.9"}.get(BY_NAME[addable[0]].unit, "16")
        listed.append(f"--set NAME=VALUE adds a fact: --set {addable[0]}={value}")
    return tuple(listed)


def contradictions(startup: StartUpLedger) -> tuple[str, ...]:
    """Give each conflict in one line: who claims what, and where."""
    return tuple(_contradiction(conflict) for conflict in startup.conflicts)


def _contradiction(conflict: Conflict) -> str:
    # An equation that fails has claims on several quantities, and only its note says which value is whose.
    equation = "does not hold" in conflict.note
    said: dict[Interval, list[Source]] = {}
    for claim in conflict.claims:
        said.setdefault(claim.interval, []).append(Source(claim.origin, claim.lines))
    claims = []
    for interval, sources in said.items():
        lines = tuple(sorted({line for s in sources for line in s.lines}))
        value = _plain(interval) if equation else amount(conflict.quantity, interval)
        claims.append(f"{value} ({Source(sources[0].origin, lines).text(24)})")
    more = f" and {len(claims) - CLAIMS_SHOWN} more" if len(claims) > CLAIMS_SHOWN else ""
    short = symbol(conflict.quantity)
    name = conflict.quantity if short == conflict.quantity else f"{conflict.quantity} ({short})"
    listed = (", " if equation else " against ").join(claims[:CLAIMS_SHOWN]) + more
    note = quoted(conflict.note, mask=False, most=NOTE_LENGTH)
    return f"{name}: {note}; from {listed}" if equation else f"{name}: {listed}; {note}"


def amount(name: str, interval: Interval) -> str:
    """Give a quantity's value with its unit: GiB for bytes, but bytes for a block."""
    unit = BY_NAME[name].unit if name in BY_NAME else ""
    if unit == "B":
        return bytes_text(interval) if name == "bytes_per_block" else f"{gib(interval)} GiB"
    return f"{whole(interval)} {unit}" if unit in {"tokens", "blocks"} else _plain(interval)


def _plain(interval: Interval) -> str:
    fractional = any(isinstance(end, float) for end in interval)
    return ratio(interval) if fractional else whole(interval)


def unread(startup: StartUpLedger, *, mask: bool) -> tuple[tuple[Quote, ...], int]:
    """Give the first lines that look like memory and that no rule took, and how many more there are."""
    lines = tuple(Quote(r.line, quoted_line(r, mask=mask)) for r in startup.unread[:UNREAD_SHOWN])
    return lines, max(0, len(startup.unread) - UNREAD_SHOWN)
