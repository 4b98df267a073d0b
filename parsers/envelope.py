"""What transport puts around a line, peeled off layer by layer: orchestrators, collectors, terminals, pastes."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

from parsers.paste import plain
from parsers.tuples import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FORWARDING = ("APIServer", "ApiServer", "EngineCore", "MainProcess", "RayWorker")
"""Processes of one engine that print each other's lines: they set nothing apart."""

LAYERS = 8
"""Wrappers peeled off one line at most; nobody nests deeper, and it bounds the work."""


class Logged(NamedTuple):
    """What a structured record says about itself."""

    level: str | None
    time: str | None
    file: str | None
    own: bool
    """Whether Python's logging wrote it: then the message is the whole message, and nothing is left to peel."""


class Envelope(NamedTuple):
    """What the wrappers of one line said."""

    hosts: tuple[str, ...] = ()
    """Pod and container, compose service, journal host, srun task, from the outside in."""
    time: str | None = None
    """The innermost transport timestamp, as printed."""
    name: str | None = None
    pid: int | None = None
    ip: str | None = None
    """Ray's; it names the machine that a line was fetched from."""
    logged: Logged | None = None
    stream: str | None = None
    """Set where the container runtime may have cut the line in pieces; the pieces of one line share it."""
    partial: bool = False
    """Whether the rest of the line comes in a later piece."""

    @property
    def host(self) -> str | None:
        """Give what tells machines apart; Ray's address alone where it stands, since Ray forwards from elsewhere."""
        return self.ip or "/".join(self.hosts) or None

    def inside(self, host: str | None) -> Envelope:
        """Add a machine or container that the wrapper just peeled off named, if it did."""
        return self._replace(hosts=(*self.hosts, host)) if host else self

    def of_anyone(self) -> Envelope:
        """Forget the process, for text that shares the line with what it printed."""
        return self._replace(name=None, pid=None)


NOTHING = Envelope()


class Segment(NamedTuple):
    """One stretch of text without wrapper, newline or carriage return."""

    text: str
    envelope: Envelope


STAMP = (
    r"(?P<stamp>\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?"
    r"|\d\d:\d\d:\d\d(?:[.,]\d{1,9})?Z?)"
)
CELL = rf'"?(?:{STAMP}|\d{{10,19}})"?,(?!\d{{1,9}} )\S'
"""A row of CSV that begins with a time; what follows a comma there may be a fraction of the second instead."""

PATTERNS = {
    # 0.4.3-0.30 patch stdout to write it; Ray prints the same form, without a name before it knows one.
    "process": r"\((?:(?P<name>[^()]{1,80}?) )?pid=(?P<pid>\d{1,10})(?:, ip=(?P<ip>[^()\s,]{1,60}))?\)(?: |$)",
    "stern": r"(?P<host>[a-z][a-z0-9.-]{2,120} [a-z][a-z0-9-]{0,62}) (?=\d{4}-\d\d-\d\dT\d\d:)",
    # What the console of Google Cloud copies.
    "console": r"[A-Z]{4,9} (?P<stamp>\d{4}-\d\d-\d\dT\d\d:[\d:.]{5,18}Z?)(?: \[[^\]]{1,120}\])? ",
    "bullet": r"[-*\u2022] (?=\S)",
    "stamp": STAMP + r"(?:\t| - |\s{0,9}\| ?|, ?|: | {1,9}|$)",
    "cri": STAMP + r" (?P<stream>stdout|stderr) (?P<tag>[FP])(?::\S{0,40})?(?: |$)",
    "journal_iso": STAMP + r" (?P<host>[^\s:|]{1,64}) [^\s\[\]:]{1,64}\[\d{1,10}\]: ?",
    "journal": r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,9})? (?P<host>[^\s:|]{1,64}) "
    r"[^\s\[\]:]{1,64}(?:\[\d{1,10}\])?: ?",
    "aws": STAMP + r" (?P<host>[\w.-]{1,100}/[\w.-]{1,100}/[\da-f-]{8,64}) ",
    "syslog5": r"1 " + STAMP + r" (?P<host>\S{1,255}) \S{1,48} \S{1,128} \S{1,32} (?:-|(?:\[[^\]]{0,400}\]){1,9}) ?",
    "calendar": r"(?P<stamp>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,9})?) ",
    "epoch": r"\d{10}\.\d{3,9}:? |(?:\d{13}|\d{16}|\d{19})(?:\t| {1,3})",
    "cell": CELL,
    "events": r"EVENTS\t\d{10,16}\t",
    "priority": r"<\d{1,3}>",
    "task": r"(?P<host>\d{1,5}): ",
    "grep": r"(?:[\w./-]{1,200}\.(?:log|txt|out|err)[:-])?\d{1,8}"
    r"(?::(?=[^\d\s]|\d{4}-\d\d-|\d{1,5}: )|-(?=\(|(?:DEBUG|INFO|WARN|ERROR)))",
    "numbered": r"\d{1,8}(?:\t| {1,3}(?=\(\w{1,60} pid=|[A-Z]{4,8} \d\d-\d\d |Traceback \(|[\w.]{1,80}(?:Error|Exception): ))",
    "pod": r"\[pod/(?P<host>[^\]\s]{1,300})\] ?",
    "rank": r"\[(?:rank|default)\d{1,5}\]: ?|\[\d{1,5},\d{1,5}\]<std(?:out|err)>: ?",
    "bracket": r"\[" + STAMP + r"\] ?",
    "service": r"(?!(?:TRACE|DEBUG|INFO|SUCCESS|WARNING|ERROR|CRITICAL)\b)"
    r"(?P<host>[A-Za-z][\w.-]{0,80}) {1,60}\|(?: |$)",
    "node": r"(?P<host>[A-Za-z][\w.-]{0,60}\d[\w.-]{0,30}): (?=\((?:[^()]{1,80} )?pid=\d|[A-Z]{4,8} \d\d-\d\d \d\d:)",
    "actions": r"[^\t]{1,120}\t[^\t]{1,120}\t\ufeff?(?=\d{4}-\d\d-\d\dT)",
    "quote": r"(?:> ?){1,8}",
    "fence": r"```[\w-]{0,20}\s{0,9}$|```",
}

_BY_LETTER = {
    "(": ("process",),
    "[": ("pod", "rank", "bracket"),
    ">": ("quote",),
    "`": ("fence",),
    "<": ("priority",),
    "-": ("bullet",),
    "*": ("bullet",),
    "\u2022": ("bullet",),
}
_LOGFMT = ("msg=", "message=", "log=", "line=")
_BY_DIGIT = ("cri", "journal_iso", "aws", "syslog5", "stamp", "epoch", "task", "grep", "numbered")


@functools.cache
def pattern(name: str) -> re.Pattern[str]:
    """Compile one wrapper's pattern, on the first line that may carry it."""
    return re.compile(PATTERNS[name])


def peel(text: str, outer: Envelope = NOTHING) -> Segment:
    """Peel wrappers off the start of `text`, until none is left or a piece of a line must first find its others."""
    envelope = outer
    for _ in range(LAYERS):
        body = text.lstrip(" \t\ufeff")
        # Colour inside a structured record goes once its quotes are undone.
        if not body.startswith("{") or body.startswith("{&"):
            text = plain(text)
            body = text.lstrip(" \t")
        layer = _layer(body, envelope) if body else None
        if layer is None:
            break
        text, envelope = layer
        if envelope.stream or (envelope.logged and envelope.logged.own):
            break
    return Segment(text, envelope)


def stretches(peeled: Segment) -> Iterator[Segment]:
    """Cut a peeled text at its carriage returns and peel what follows each; what holds no text is left out.

    A process prefix holds for its own stretch: what shares the line with a progress bar may come from another process.
    """
    text, envelope = peeled
    if "\r" not in text and "\n" not in text:
        if text and not text.isspace():
            yield peeled
        return
    first, *others = text.replace("\r", "\n").split("\n")
    if first.strip():
        yield Segment(first, envelope)
    own = envelope.logged and envelope.logged.own
    for other in filter(str.strip, others):
        if own:
            yield Segment(other, envelope)
        else:
            yield from stretches(peel(other, envelope.of_anyone()))


def _layer(body: str, envelope: Envelope) -> Segment | None:
    """Peel one wrapper, None where none begins."""
    letter = body[0]
    if _may_be_structured(body):
        from parsers.structured import peel_structure  # most logs have no such line

        structured = peel_structure(body, envelope)
        if structured or letter in '{"':
            return structured
    if letter.isdigit():
        names: tuple[str, ...] = _BY_DIGIT
    elif letter.isalpha():
        names = _by_words(body)
    else:
        names = _BY_LETTER.get(letter, ())
    for name in names:
        match = pattern(name).match(body)
        if match:
            return Segment(body[match.end() :], _with(envelope, name, match.groupdict()))
    return None


def _may_be_structured(body: str) -> bool:
    letter = body[0]
    if letter.isdigit():
        return "," in body[:40] and pattern("cell").match(body) is not None
    if letter.isalpha():
        return body.startswith(("MESSAGE=", "textPayload: ")) or (
            "=" in body[:61] and any(key in body for key in _LOGFMT)
        )
    return letter in '{"'


def _by_words(body: str) -> tuple[str, ...]:
    """Choose wrappers that begin with a letter by a sign of each, so that most lines compile and run none."""
    names = []
    if body[3:4] == " " and body[9:10] == ":":
        names += ["journal", "calendar"]
    if "|" in body[:143]:
        names.append("service")
    if ": (" in body[:100] or ": INFO" in body[:100] or ": WARN" in body[:100]:
        names.append("node")
    if " 20" in body[:190]:
        names += ["stern", "console"]
    if body.startswith("EVENTS\t"):
        names.append("events")
    if "\t" in body[:242]:
        names.append("actions")
    if ".log" in body[:205] or ".txt" in body[:205] or ".out" in body[:205]:
        names.append("grep")
    return tuple(names)


def _with(envelope: Envelope, name: str, said: Mapping[str, str | None]) -> Envelope:
    if name == "process":
        return _spoken(envelope, said["name"], int(said["pid"] or 0), said["ip"])
    return envelope.inside(said.get("host"))._replace(
        time=said.get("stamp") or envelope.time, stream=said.get("stream"), partial=said.get("tag") == "P"
    )


def _spoken(envelope: Envelope, name: str | None, pid: int, ip: str | None) -> Envelope:
    """Take the innermost process for the speaker; an actor around an engine tells it from another actor's engine."""
    if name and envelope.name and not envelope.name.startswith(FORWARDING):
        envelope = envelope.inside(f"{envelope.name} pid={envelope.pid}")
    return envelope._replace(name=name, pid=pid, ip=ip or envelope.ip)


def level_name(word: str | None) -> str | None:
    """Give a level under the name that Python's logging has for it."""
    upper = (word or "").upper()
    return {"": None, "WARN": "WARNING", "FATAL": "CRITICAL", "ERR": "ERROR"}.get(upper, upper)
