"""A copy of a log that can be shared: masked line by line, so that every line keeps its number, length and meaning.

Lines that a terminal's width cut are joined by their length, so a mask is as long as what it hides. A key, a name or an
address that goes on in the next line is masked there as well.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kvforensics.report.redaction import redact
from parsers.prefix import begins_anew
from parsers.width import SIGNS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

LONGEST = 1 << 14
"""Characters masked at once. A longer line is taken in pieces, cut at blanks where it has any."""
MOST_JOINED = 64
"""Lines that one text may be cut into."""
MOST_MACHINES = 1 << 16
"""Machines told apart; what comes after them shares one name, so that memory stays bounded."""
HOST = "masked-host-"

_ADDRESS = re.compile(r"(?:\d{1,3}\.){3}\d{1,3}")
_END = re.compile(r"\r\n|\r(?!\Z)|\n")
_PARTS = {1: (1, 9), 2: (10, 90), 3: (100, 100)}
"""Numbers of so many digits that stand in an address: the least, and how many are used."""
_LEAD = re.compile(r"[> \t]*")
_PLAIN = re.compile(r"[A-Za-z]+\s+[A-Za-z]|-(?:-[a-z]|[a-z]?(?:\s|$))|[#*<>|%]")
"""How a line begins that is no rest of a key: with a word and another one, an option, or what keys do not hold."""
_WANTS_VALUE = re.compile(r"(?i)--[\w-]*(?:key|token|secret|passwd|password|authorization|credentials?)$")
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
    """Names for machines, as long as the real ones, the same one for the same machine throughout one log."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def name(self, machine: str) -> str:
        """Give the name that stands for a machine's name or address; a name given here stands for itself."""
        if machine.startswith((HOST, "[" + HOST)):
            return machine
        known = self._names.get(machine)
        if known is None:
            number = len(self._names) // 2 + 1 if len(self._names) < 2 * MOST_MACHINES else 0
            known = _numbered(machine, number)
            if number:
                self._names[machine] = known
                self._names.setdefault(known, known)
        return known


def _numbered(machine: str, number: int) -> str:
    """Give an address for an address, its parts as long, counted up from the last; else a name."""
    if _ADDRESS.fullmatch(machine):
        parts = []
        for part in reversed(machine.split(".")):
            first, count = _PARTS[len(part)]
            number, rest = divmod(number, count)
            parts.append(str(first + rest))
        return ".".join(reversed(parts))
    caged = machine.startswith("[")
    room = len(machine) - 2 * caged
    digits = str(number)[-room:].rjust(room - len(HOST), "0")
    name = HOST[: room - len(digits)] + digits
    return f"[{name}]" if caged else name


class _Line:
    """A line, what ends it, and what a quotation puts in front of it."""

    __slots__ = ("end", "lead", "text")

    def __init__(self, text: str, end: str) -> None:
        self.lead = _LEAD.match(text)[0] if text[:1] == ">" else ""  # type: ignore[index]
        self.text, self.end = text[len(self.lead) :], end


class _Width:
    """How long the longest lines are, so far as they tell of a terminal's width."""

    def __init__(self) -> None:
        self._longest, self._count = 0, 0

    def see(self, line: _Line) -> None:
        """Take a line into account."""
        length = len(line.lead) + len(line.text)
        self._count = self._count + 1 if length == self._longest else 1 if length > self._longest else self._count
        self._longest = max(length, self._longest)

    def lacks(self, line: _Line) -> int | None:
        """Give how many blanks a copy may have lost at the line's end, if the line is as long as the terminal is wide."""
        lost = self._longest - len(line.lead) - len(line.text)
        return lost if self._count >= SIGNS and lost in {0, 1} else None


def shareable(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Mask keys, users and machines in a log's text, given and taken in pieces; little more than a piece is held.

    Line ends stay as they are, and so do bytes that are no UTF-8. Machines get other names instead of one mask: ranks of
    two nodes must stay ranks of two nodes.
    """
    machines = Machines()
    for lines, joints in _paragraphs(_lines(_decoded(chunks))):
        texts = _masked([line.text for line in lines], joints, machines)
        yield _encoded("".join(line.lead + text + line.end for line, text in zip(lines, texts, strict=True)))


def _decoded(chunks: Iterable[bytes]) -> Iterator[str]:
    """Decode pieces whose borders may lie inside a character; what is no UTF-8 is kept aside to be written back."""
    import codecs

    decoder = codecs.getincrementaldecoder("utf-8")(errors="surrogateescape")
    for chunk in chunks:
        yield decoder.decode(chunk)
    yield decoder.decode(b"", final=True)


def _encoded(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def _lines(texts: Iterable[str]) -> Iterator[_Line]:
    """Give every line, long ones in pieces that no end follows."""
    held = ""
    for text in texts:
        held += text
        at = 0
        for found in _END.finditer(held):
            yield from _pieces(held[at : found.start()], found[0])
            at = found.end()
        held = held[at:]
        while len(held) > 2 * LONGEST:
            cut = _cut(held)
            yield _Line(held[:cut], "")
            held = held[cut:]
    end = "\r" if held.endswith("\r") else ""
    if held:
        yield from _pieces(held.removesuffix("\r"), end)


def _pieces(text: str, end: str) -> Iterator[_Line]:
    while len(text) > LONGEST:
        cut = _cut(text)
        yield _Line(text[:cut], "")
        text = text[cut:]
    yield _Line(text, end)


def _cut(text: str) -> int:
    """Give where to cut so that no word is cut, if a blank stands anywhere before."""
    return text.rfind(" ", 0, LONGEST) + 1 or LONGEST


def _paragraphs(lines: Iterable[_Line]) -> Iterator[tuple[list[_Line], list[str]]]:
    """Give lines together of which each may go on in the next, and what a copy may have lost between them."""
    width = _Width()
    held: list[_Line] = []
    joints: list[str] = []
    for line in lines:
        joint = _joint(held[-1], line, width) if held and len(held) < MOST_JOINED else None
        if held and joint is None:
            yield held, joints
            held, joints = [], []
        elif joint is not None:
            joints.append(joint)
        held.append(line)
        width.see(line)
    if held:
        yield held, joints


def _joint(line: _Line, following: _Line, width: _Width) -> str | None:
    """Give what stood between two lines if the second may be the rest of the first, else None.

    Where no width shows, only what is no word of a sentence may: a line that stands for itself must keep its words.
    """
    if not line.end or not line.text or line.lead != following.lead or begins_anew(following.text):
        return None
    lost = width.lacks(line)
    if lost is None and _PLAIN.match(following.text):
        return None
    return " " if lost or _WANTS_VALUE.search(line.text) else ""


def _masked(texts: Sequence[str], joints: Sequence[str], machines: Machines) -> list[str]:
    """Mask lines: first what only all of them as one text tell to be hidden, then the rest of each."""
    if joints:
        whole = "".join(text + joint for text, joint in zip(texts, (*joints, ""), strict=True))
        stars = redact(whole, same_length=True)
        if stars != whole:
            texts = list(_hidden_by_others(texts, joints, stars, _redacted(whole, machines)))
    return [_redacted(text, machines) for text in texts]


def _hidden_by_others(texts: Sequence[str], joints: Sequence[str], stars: str, named: str) -> Iterator[str]:
    """Give each line, masked where it is hidden as part of the whole (`stars`) but would not be by itself."""
    start = 0
    for text, joint in zip(texts, (*joints, ""), strict=True):
        end = start + len(text)
        alone = redact(text, same_length=True)
        columns = zip(text, alone, stars[start:end], named[start:end], strict=True)
        yield "".join(name if own == mark != star else mark for mark, own, star, name in columns)
        start = end + len(joint)


def _redacted(text: str, machines: Machines) -> str:
    for transport in _TRANSPORTS:
        text = transport.sub(lambda found: found[1] + machines.name(found[2]), text)
    return redact(text, machines.name, same_length=True)
