"""`whatif`: a log and a change in, today beside then out; or a target in, and the cheapest ways to it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kvforensics.comparison import chosen
from kvforensics.errors import UsageFault
from kvforensics.explanation import NothingToExplain, explain
from parsers.tuples import NamedTuple
from reconstruct.cards import UnknownCard, find
from reconstruct.change import NothingToChange, UnknownRelease, effect
from reconstruct.planner.errors import Unsupported
from reconstruct.whatif_target import UnknownTarget, parsed, search

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from parsers.source import Input
    from reconstruct.change import Change, Effect
    from reconstruct.facts import Given
    from reconstruct.ledger import StartUpLedger
    from reconstruct.whatif_target import Search


class Ask(NamedTuple):
    """What the command asks beside the change: a target, the model's config, the card, which start-up."""

    target: str | None = None
    config: Path | None = None
    card: str | None = None
    startup: str | int = "last"


class WhatIf(NamedTuple):
    """The answer for one log. `held`: how many start-ups the log has."""

    name: str
    lines: int
    place: int
    held: int
    startup: StartUpLedger
    effect: Effect
    search: Search | None


def what_if(source: Input, change: Change, ask: Ask, given: Sequence[Given] = ()) -> WhatIf:
    """Predict a change of one log's start-up, and search for a target.

    Raises UsageFault for a change that says nothing, a release, card or target that is none; NothingToExplain where the
    start-up has no ledger; and what `explain` raises.
    """
    if not change.named and not ask.target:
        raise UsageFault(
            "nothing to change: pass an option such as --gpu-memory-utilization 0.95, or --target tokens=200000"
        )
    _check(ask)
    if ask.config is not None:
        _config_of_file(ask.config)
    report = explain(source, given, ask.config)
    place = chosen(report, ask.startup)
    startup = report.startups[place]
    config = _config(startup, ask.config)
    try:
        found = effect(startup, change, config, ask.card)
        aim = search(startup, parsed(ask.target), config, ask.card, change) if ask.target else None
    except NothingToChange as fault:
        raise NothingToExplain(f"{report.name}: {fault}") from None
    except UnknownRelease as fault:
        raise UsageFault(f"--engine-version: {fault}") from None
    return WhatIf(report.name, report.lines, place + 1, len(report.startups), startup, found, aim)


def _check(ask: Ask) -> None:
    """Refuse a card or a target that is none before the log is read."""
    try:
        if ask.card is not None:
            find(ask.card)
        if ask.target is not None:
            parsed(ask.target)
    except UnknownCard as fault:
        raise UsageFault(f"--gpu {ask.card}: {fault}") from None
    except UnknownTarget as fault:
        raise UsageFault(str(fault)) from None


def _config(startup: StartUpLedger, given: Path | None) -> Mapping[str, object] | None:
    """Give the model's config: the file or folder given, else by the name that the log states; None where nothing has it."""
    from kvforensics.planning import NoConfig, config_of

    if given is not None:
        return _config_of_file(given)
    name = startup.settings.text("model")
    if name is None or Path(name).is_absolute():
        return None  # a path in a log is a path of another machine
    try:
        return config_of(name)
    except (NoConfig, Unsupported):
        return None  # the catalogue may still know the cache


def _config_of_file(path: Path) -> Mapping[str, object]:
    """Read a config.json, or the one in a folder. Raises UsageFault where there is none."""
    from kvforensics.planning import config_of

    if not path.is_file() and not (path / "config.json").is_file():
        raise UsageFault(f"--config {path}: no config.json there")
    return config_of(str(path))
