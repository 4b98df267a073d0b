"""What a log asks of a probe: its model, flags, release and card."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kvforensics.check_conditions import CARD_SPREAD, card_named
from kvforensics.comparison import chosen
from kvforensics.errors import UsageFault
from kvforensics.explanation import explain
from kvforensics.probe_flags import flags_of
from kvforensics.probing import DEFAULT_CARD
from live_probe.cards import CARDS, UnknownCardError, parse_card
from parsers.tuples import NamedTuple
from reconstruct.predict.sizes import model_id

if TYPE_CHECKING:
    from kvforensics.probe_flags import Flags
    from reconstruct.ledger import StartUpLedger


class Logged(NamedTuple):
    """One start-up of a log, and what a probe of it is asked.

    model: an id, or a path of the log's machine; empty where the log names none.
    """

    startup: StartUpLedger
    model: str
    flags: Flags
    version: str
    card: str
    """The `sim:` specification of the log's card, should there be no card here."""


def logged(log: str, which: str | int) -> Logged:
    """Read a log. Raises what `explain` raises, and UsageFault where it has no such start-up."""
    report = explain(log)
    startup = report.startups[chosen(report, which)]
    shares = {e.capacity.interval("gpu_memory_utilization") for e in startup.engines}
    share = next(iter(shares)) if len(shares) == 1 else None
    value = float(share.low) if share is not None and share.is_point and share.low is not None else None
    flags = flags_of(startup.settings, value)
    model = model_id(startup.settings.text("model") or "")
    return Logged(startup, model, flags, startup.version.high, _card(startup))


def model_here(told: Logged, log: str) -> str:
    """Give the log's model, if this machine can know it. Raises UsageFault where the log names none, or a path not here."""
    if not told.model:
        raise UsageFault(f"{log} names no model: add --model X")
    if told.model.startswith(("/", ".", "~")) and not Path(told.model).expanduser().exists():
        raise UsageFault(f"{log} names its model by a path that is not here: add --model X, its id or its config.json")
    return told.model


def _card(startup: StartUpLedger) -> str:
    """Give the card to simulate: by the name in the log, else the one whose total is nearest to the log's T."""
    named = card_named(startup)
    if named:
        try:
            return f"sim:{parse_card(named).card.name}"
        except UnknownCardError:
            pass
    totals = [r.account.interval("total_memory") for e in startup.engines for r in e.ranks]
    total = next((t for t in totals if t.low is not None and t.high is not None), None)
    if total is None or total.low is None or total.high is None:
        return DEFAULT_CARD
    middle = (total.low + total.high) / 2
    nearest = min(CARDS, key=lambda card: abs(card.total - middle))
    near = abs(nearest.total - middle) <= CARD_SPREAD
    return f"sim:{nearest.name}" if near else f"sim:{middle / (1 << 30):.4f}GiB"
