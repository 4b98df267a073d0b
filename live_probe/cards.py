"""Cards that can be simulated: what a driver reports as total, and what the libraries take before torch does.

Totals move by up to 0.2 GiB between drivers; `exact` tells a total seen in bytes from one known as printed GiB. The
rest are middle values of public start-up logs of one rank and only stand for the order of size: a simulated start
never speaks for a real card's context.
"""

from __future__ import annotations

import re
from typing import NamedTuple

MIB = 1 << 20
GIB = 1 << 30

HOPPER_WORKSPACE = 32 * MIB
"""torch's cuBLAS workspace at compute capability 9.0 and 10.0 (torch 2.3-2.13, ATen/cuda/CublasHandlePool.cpp:
parseChosenWorkspaceSize)."""
EARLIER_WORKSPACE = (2 * 4096 + 8 * 16) * 1024
"""The same on every other card: the default ":4096:2:16:8"."""


class UnknownCardError(ValueError):
    """A simulated card was asked for by a name that is not in the table."""


class Card(NamedTuple):
    """A card to simulate; sizes are bytes.

    `context` is in use before the engine's first tensor (CUDA context and the loaded kernels), `libraries` is taken
    outside torch at the first matrix product (the cuBLAS handles).
    """

    name: str
    total: int
    exact: bool
    context: int
    libraries: int
    blas_workspace: int
    multiprocessors: int = 0


def _printed(gib: float) -> int:
    """Turn a printed total into bytes, at the 64 KiB granularity that drivers report in."""
    return round(gib * GIB / 65536) * 65536


def _card(
    name: str, total: float, context_gib: float, multiprocessors: int, workspace: int = EARLIER_WORKSPACE
) -> Card:
    exact = isinstance(total, int)
    size = total if isinstance(total, int) else _printed(total)
    libraries = 240 * MIB if workspace == HOPPER_WORKSPACE else 64 * MIB
    return Card(name, size, exact, round(context_gib * GIB), libraries, workspace, multiprocessors)


CARDS: tuple[Card, ...] = (
    _card("H100-80GB", 85028896768, 0.51, 132, HOPPER_WORKSPACE),
    _card("H200-141GB", 139.80, 0.51, 132, HOPPER_WORKSPACE),
    _card("GH200-96GB", 102005473280, 0.51, 132, HOPPER_WORKSPACE),
    _card("B200-180GB", 178.35, 0.60, 148, HOPPER_WORKSPACE),
    _card("A100-80GB", 79.15, 0.41, 108),
    _card("A100-40GB", 42298834944, 0.41, 108),
    _card("L40S-48GB", 44.39, 0.40, 142),
    _card("A10G-24GB", 22.06, 0.25, 80),
    _card("L4-24GB", 23795204096, 0.25, 58),
    _card("T4-16GB", 14.74, 0.25, 40),
    _card("RTX3090-24GB", 23.56, 0.51, 82),
    _card("RTX4090-24GB", 23.64, 0.44, 128),
    _card("RTX5090-32GB", 31.36, 0.50, 170),
    _card("RTXPRO6000-96GB", 94.97, 0.55, 188),
)

LARGEST = 1 << 50
"""Bytes of the largest card that is simulated: torch counts a tensor's bytes in 63 bits."""
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(GiB|MiB)", re.IGNORECASE)


class SimulatedCard(NamedTuple):
    """What a `sim:` specification asks for: a card, others' use of it in bytes, and what backs the tensors."""

    card: Card
    others: int
    backing: str


def parse_card(specification: str) -> SimulatedCard:
    """Read `sim:NAME`, `sim:24GiB`, with `,used=3GiB` and `,backing=cpu` if wanted.

    A bare size makes a card without a context of its own, so that the arithmetic stays easy to follow.

    Raises:
        UnknownCardError: the name is not in the table, or the specification cannot be read.

    """
    name, *options = specification.removeprefix("sim:").split(",")
    others, backing = 0, "meta"
    for option in options:
        key, _, value = option.partition("=")
        if key == "used":
            others = parse_size(value)
        elif key == "backing" and value in ("cpu", "meta"):
            backing = value
        else:
            raise UnknownCardError(f"{option!r} is no option of a simulated card: use used=3GiB or backing=cpu")
    return SimulatedCard(_named(name), others, backing)


def parse_size(text: str) -> int:
    """Read a size such as 24GiB or 512MiB into bytes.

    Raises:
        UnknownCardError: the text is no such size.

    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UnknownCardError(f"{text!r} is no size: write it as 24GiB or 512MiB")
    size = round(float(match[1]) * (GIB if match[2].lower() == "gib" else MIB))
    if size > LARGEST:
        raise UnknownCardError(f"{text!r} is more than any card has: at most {LARGEST // GIB}GiB is simulated")
    return size


def _named(name: str) -> Card:
    if _SIZE.fullmatch(name.strip()):
        return Card(name, parse_size(name), exact=True, context=0, libraries=0, blas_workspace=EARLIER_WORKSPACE)
    wanted = _plain(name).removeprefix("nvidia")
    fitting = [card for card in CARDS if wanted in (_plain(card.name), _plain(card.name.split("-")[0]))]
    if len(fitting) == 1:
        return fitting[0]
    names = ", ".join(card.name for card in CARDS)
    raise UnknownCardError(f"no card {name!r} to simulate: use one of {names}, or a size such as sim:24GiB")


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
