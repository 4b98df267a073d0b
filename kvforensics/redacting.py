"""A copy of a log that can be shared: masked line by line, so that every line keeps its number and its meaning."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kvforensics.report.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LONGEST = 1 << 14
"""Characters masked at once. A longer line is taken in pieces, cut at blanks where it has any."""
MOST_MACHINES = 1 << 16
"""Machines told apart; what comes after them shares one name, so that memory stays bounded."""
HOST = "masked-host-"
NETWORK = "198.18."
"""Addresses set aside for tests (RFC 2544): they belong to nobody."""

_ADDRESS = re.compile(r"(?:\d{1,3}\.){3}\d{1,3}")
_SPLIT = re.compile(r"([\r\n])")
_TRANSPORTS = (
    # journalctl, syslog, srun's node names: who sent a line, in front of it.
    re.compile(
        r"^([A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,9})? )([^\s:|]{1,64})(?= [^\s\[\]:]{1,64}(?:\[\d{1,10}\])?:)"
    ),
    re.compile(
        r"^(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))? )"
        r"([^\s:|]{1,64})(?= [^\s\[\]:]{1,64}\[\d{1,10}\]:)"
    ),
    re.compile(r"^((?:<\d{1,3}>)?1 \d{4}-\d\d-\d\dT\S{1,40} )(\S{1,255})(?= \S{1,48} \S{1,128} \S{1,32} [-\[])"),
    re.compile(
        r"^()([A-Za-z][\w.-]{0,60}\d[\w.-]{0,30})(?=: (?:\((?:[^()]{1,80} )?pid=\d|[A-Z]{4,8} \d\d-\d\d \d\d:))"
    ),
)
"""Where the reader of logs takes a machine's name from a line's wrapper, and keywords do not give it away."""


class Machines:
    """Names for machines, the same one for the same machine throughout one log."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def name(self, machine: str) -> str:
        """Give the name that stands for a machine's name or address; a name given here stands for itself."""
        if machine.startswith((HOST, NETWORK, "[" + HOST)):
            return machine
        known = self._names.get(machine)
        if known is None:
            number = len(self._names) + 1 if len(self._names) < MOST_MACHINES else 0
            known = _numbered(machine, number)
            if number:
                self._names[machine] = known
        return known


def _numbered(machine: str, number: int) -> str:
    """Give an address for an address, for who reads it may want one; else a name."""
    if _ADDRESS.fullmatch(machine):
        return f"{NETWORK}{number // 256 % 256}.{number % 256}"
    return f"[{HOST}{number}]" if machine.startswith("[") else f"{HOST}{number}"


def shareable(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Mask keys, users and machines in a log's text, given and taken in pieces; nothing larger is held.

    Line ends stay as they are, and so do bytes that are no UTF-8. Machines get other names instead of one mask: ranks of
    two nodes must stay ranks of two nodes.
    """
    machines = Machines()
    held = ""
    for text in _decoded(chunks):
        held += text
        ends = [held.rfind("\n"), held.rfind("\r")]
        end = max(ends) + 1
        if not end and len(held) > LONGEST:
            end = _cut(held, len(held) - LONGEST // 2)
        if end:
            yield _encoded(_masked(held[:end], machines))
            held = held[end:]
    yield _encoded(_masked(held, machines))


def _decoded(chunks: Iterable[bytes]) -> Iterator[str]:
    """Decode pieces whose borders may lie inside a character; what is no UTF-8 is kept aside to be written back."""
    import codecs

    decoder = codecs.getincrementaldecoder("utf-8")(errors="surrogateescape")
    for chunk in chunks:
        yield decoder.decode(chunk)
    yield decoder.decode(b"", final=True)


def _encoded(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def _masked(text: str, machines: Machines) -> str:
    return "".join(part if part in {"\r", "\n"} else _line(part, machines) for part in _SPLIT.split(text))


def _line(line: str, machines: Machines) -> str:
    for transport in _TRANSPORTS:
        line = transport.sub(lambda found: found[1] + machines.name(found[2]), line)
    pieces = []
    while len(line) > LONGEST:
        end = _cut(line, LONGEST)
        pieces.append(redact(line[:end], machines.name))
        line = line[end:]
    return "".join([*pieces, redact(line, machines.name)])


def _cut(text: str, most: int) -> int:
    """Give where to cut so that no word is cut, if a blank stands anywhere before."""
    return text.rfind(" ", 0, most) + 1 or most
