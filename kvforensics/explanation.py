"""The main job: a log in, its ledgers out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvforensics.findings import examine
from parsers.log import read_log
from parsers.tuples import NamedTuple
from reconstruct.geometry import Geometries, Geometry
from reconstruct.ledger import is_measured
from reconstruct.rebuild import card_given, rebuild

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pandas as pd

    from kvforensics.findings import Verdict
    from parsers.source import Input
    from reconstruct.facts import Given
    from reconstruct.ledger import StartUpLedger


class NothingToExplain(ValueError):
    """The input holds no start-up of vLLM; the message says what it looks like and what to pass instead."""


class Report(NamedTuple):
    """What one input says."""

    name: str
    lines: int
    startups: tuple[StartUpLedger, ...]
    damage: str | None = None
    """Why the input could not be read to its end."""
    verdicts: tuple[Verdict, ...] = ()
    """What is wrong with each start-up and what to do, in the order of `startups`."""

    def to_frame(self) -> pd.DataFrame:
        """Give one row for each quantity: start-up, engine, rank, name, low, high, unit, origin, lines."""
        from kvforensics.report.frame import to_frame

        return to_frame(self)


def explain(source: Input, given: Sequence[Given] = (), config: Path | None = None, *, fetch: bool = False) -> Report:
    """Rebuild the ledgers of every start-up in a log.

    `source` is a path, `-` for standard input, bytes, or an iterable of lines; `given` are facts the user adds.
    `config` is the model's config.json or its folder; without it the geometry is looked up under the very id that the
    log names: in the local Hugging Face cache, in the shipped catalogue, with `fetch` on the hub.

    Raises UnreadableInput (cannot be opened), BinaryInput (no text), NothingToExplain (no start-up of vLLM in it) and
    UnreadableConfig (`config` is no config).
    """
    log = read_log(source)
    if not log.startups:
        raise NothingToExplain(_why_nothing(log.name, log.lines, log.foreign))
    unread = [[r for r in log.unread if s.first_line <= r.line <= s.last_line] for s in log.startups]
    geometries = Geometries(config, fetch=fetch)
    rebuilt = (rebuild(s, u, given, geometries) for s, u in zip(log.startups, unread, strict=True))
    ledgers = tuple(_with_model(ledger, geometries, card_given(given)) for ledger in rebuilt)
    return Report(log.name, log.lines, ledgers, log.damage, examine(ledgers))


def _with_model(startup: StartUpLedger, geometries: Geometries, card: str | None) -> StartUpLedger:
    """Give a ledger with the model's figures beside it; the model is loaded only where card and config may be known."""
    model = startup.settings.text("model")
    if model is None or not _is_askable(startup, card):
        return startup
    from reconstruct.predict.sizes import full_config, model_id

    known = geometries.of(model)
    whole = isinstance(known, Geometry) and known.source != "catalogue"
    config = known.config if isinstance(known, Geometry) and whole else full_config(model_id(model))
    if config is None:
        return startup
    from reconstruct.predict.beside import beside

    return beside(startup, config, card)


def _is_askable(startup: StartUpLedger, card: str | None) -> bool:
    """Whether a rank has its weights, and a card is named; a total memory may name one where the peak is open."""
    accounts = [
        r.account for e in startup.engines for r in e.ranks if r.account.interval("model_memory").width is not None
    ]
    if card is not None or startup.log.of("device_name"):
        return bool(accounts)
    return any(
        a.interval("total_memory").width is not None and not is_measured(a.interval("transient_peak_headroom"))
        for a in accounts
    )


def _why_nothing(name: str, lines: int, foreign: str | None) -> str:
    if not lines:
        return f"{name}: the input is empty; pass the server's log from its start"
    if foreign:
        return f"{name}: this looks like a log of {foreign}; only vLLM's start-up logs can be explained"
    return f"{name}: no line of a vLLM start-up in {lines} lines; pass the log from the server's start on"
