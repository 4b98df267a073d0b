"""What transport puts around a line, peeled off layer by layer: orchestrators, collectors, terminals, pastes."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FORWARDING = ("APIServer", "ApiServer", "EngineCore", "MainProcess", "RayWorker")
"""Processes of one engine that print each other's lines: they set nothing apart."""

LAYERS = 8
"""Wrappers peeled off one line at most; nobody nests deeper, and it bounds the work."""

DOCKER_PIECE = 16_000
"""Docker's json-file driver cuts lines at 16 KiB and leaves the newline off all pieces but the last.

Collectors that drop the newline of every line are told apart by the length.
"""


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


_STAMP = (
    r"(?P<stamp>\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?"
    r"|\d\d:\d\d:\d\d(?:[.,]\d{1,9})?Z?)"
)
_ESCAPE = r"(?:\x1b|\x9b|\ufffd|\u241b|\^\[|\\x1[bB]|\\u001[bB]|\\033|\\e|#033)"
_TEXT_KEYS = (
    "message", "msg", "log", "line", "text", "MESSAGE", "textPayload", "@message", "short_message", "_raw", "event",
    "body", "stringValue",
)  # fmt: skip
_INNER_KEYS = ("jsonPayload", "result", "_source", "fields", "attributes", "data")
_PLACE_KEYS = ("kubernetes", "resource", "labels", "stream")
_HOST_KEYS = ("pod", "pod_name", "container_name", "container", "_HOSTNAME", "hostname", "host", "instance")
_LEVEL_KEYS = ("levelname", "level", "severity", "lvl", "log_level")
_TIME_KEYS = ("asctime", "time", "timestamp", "ts", "@timestamp")
_FILE_KEYS = ("filename", "fileinfo", "file")

PATTERNS = {
    # With its escape byte, or what a viewer made of it, any control sequence; without, only colours are beyond doubt.
    "colour": rf"{_ESCAPE}\[[0-9;?]{{0,20}}[A-Za-z]|{_ESCAPE}[\]_P][^\x07\x1b]{{0,200}}(?:\x07|\x1b\\)"
    r"|\[\d{1,3}(?:;\d{1,3}){0,4}m",
    # 0.4.3-0.30 patch stdout to write it; Ray prints the same form, without a name before it knows one.
    "process": r"\((?:(?P<name>[^()]{1,80}?) )?pid=(?P<pid>\d{1,10})(?:, ip=(?P<ip>[^()\s,]{1,60}))?\)(?: |$)",
    "stamp": _STAMP + r"(?:\t| - |\s{0,9}\| ?|, ?|: | {1,9}|$)",
    "cri": _STAMP + r" (?P<stream>stdout|stderr) (?P<tag>[FP])(?::\S{0,40})?(?: |$)",
    "journal_iso": _STAMP + r" (?P<host>[^\s:|]{1,64}) [^\s\[\]:]{1,64}\[\d{1,10}\]: ?",
    "journal": r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,9})? (?P<host>[^\s:|]{1,64}) "
    r"[^\s\[\]:]{1,64}(?:\[\d{1,10}\])?: ?",
    "syslog5": r"1 " + _STAMP + r" (?P<host>\S{1,255}) \S{1,48} \S{1,128} \S{1,32} (?:-|(?:\[[^\]]{0,400}\]){1,9}) ?",
    "priority": r"<\d{1,3}>",
    "task": r"(?P<host>\d{1,5}): ",
    "grep": r"(?:[\w./-]{1,200}\.(?:log|txt|out|err)[:-])?\d{1,8}"
    r"(?::(?=[^\d\s]|\d{4}-\d\d-|\d{1,5}: )|-(?=\(|(?:DEBUG|INFO|WARN|ERROR)))",
    "pod": r"\[pod/(?P<host>[^\]\s]{1,300})\] ?",
    "rank": r"\[(?:rank|default)\d{1,5}\]: ?|\[\d{1,5},\d{1,5}\]<std(?:out|err)>: ?",
    "bracket": r"\[" + _STAMP + r"\] ?",
    "service": r"(?!(?:TRACE|DEBUG|INFO|SUCCESS|WARNING|ERROR|CRITICAL)\b)"
    r"(?P<host>[A-Za-z][\w.-]{0,80}) {1,60}\|(?: |$)",
    "node": r"(?P<host>[A-Za-z][\w.-]{0,60}\d[\w.-]{0,30}): (?=\((?:[^()]{1,80} )?pid=\d|[A-Z]{4,8} \d\d-\d\d \d\d:)",
    "actions": r"[^\t]{1,120}\t[^\t]{1,120}\t\ufeff?(?=\d{4}-\d\d-\d\dT)",
    "quote": r"(?:> ?){1,8}",
    "fence": r"```[\w-]{0,20}\s{0,9}$|```",
    "labels": r'\{(?:[\w.]{1,60}="[^"]{0,200}"(?:, ?)?){1,30}\}\s{1,9}',
    "label": r'([\w.]{1,60})="([^"]{0,200})"',
    "pair": r'([\w.@/-]{1,60})=(?:"((?:[^"\\]|\\.)*+)"|([^\s"]*+))(?: {1,9}|$)',
    # One line of a pretty-printed record, or a record cut off in the middle.
    "field": r'"(?:message|msg|log|line|textPayload)"\s{0,4}:\s{0,4}"((?:[^"\\]|\\.)*+)',
}

_BY_LETTER = {
    "(": ("process",),
    "[": ("pod", "rank", "bracket"),
    ">": ("quote",),
    "`": ("fence",),
    "<": ("priority",),
}
_BY_DIGIT = ("cri", "journal_iso", "syslog5", "stamp", "task", "grep")


@functools.cache
def pattern(name: str) -> re.Pattern[str]:
    """Compile one wrapper's pattern, on the first line that may carry it."""
    return re.compile(PATTERNS[name])


def plain(text: str) -> str:
    """Drop terminal control sequences, with or without their escape byte, and what pasting adds unseen."""
    if "[" in text or "\x1b" in text:
        text = pattern("colour").sub("", text)
    if not text.isascii():
        text = text.replace("\xa0", " ").replace("\ufeff", "").replace("\u200b", "")
    return text


def peel(text: str, outer: Envelope = NOTHING) -> Segment:
    """Peel wrappers off the start of `text`, until none is left or a piece of a line must first find its others."""
    envelope = outer
    for _ in range(LAYERS):
        body = text.lstrip(" \t\ufeff")
        if not body.startswith("{"):  # colour inside a structured record goes once its quotes are undone
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
    if letter == "{":
        return _record_layer(body, envelope) or _label_layer(body, envelope)
    if letter == '"':
        return _field_layer(body, envelope)
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
    if letter.isalpha() and "=" in body[:61] and any(f"{key}=" in body for key in ("msg", "message", "log", "line")):
        return _logfmt_layer(body, envelope)
    return None


def _by_words(body: str) -> tuple[str, ...]:
    """Choose wrappers that begin with a letter by a sign of each, so that most lines compile and run none."""
    names = []
    if body[3:4] == " " and body[9:10] == ":":
        names.append("journal")
    if "|" in body[:143]:
        names.append("service")
    if ": (" in body[:100] or ": INFO" in body[:100] or ": WARN" in body[:100]:
        names.append("node")
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


def _record_layer(body: str, envelope: Envelope) -> Segment | None:
    import json

    if not body[1:].lstrip().startswith('"'):
        return None
    text = body.rstrip()
    try:
        record = json.loads(text) if text.endswith("}") else None
    except (ValueError, RecursionError):
        record = None
    return _field_layer(body, envelope) if record is None else _of_record(record, envelope)


def _of_record(record: Mapping[str, object], envelope: Envelope) -> Segment | None:
    key, text = _text_of(record)
    if text is None:
        return None
    level, time = _first(record, _LEVEL_KEYS), _first(record, _TIME_KEYS)
    own = "levelname" in record or "vllm_process_name" in record
    if own or key in {"message", "msg"}:
        envelope = envelope._replace(logged=Logged(level_name(level), time, _first(record, _FILE_KEYS), own))
    pid = record.get("process")
    if own:
        name = _first(record, ("vllm_process_name", "processName")) or envelope.name
        envelope = envelope._replace(name=name, pid=pid if isinstance(pid, int) else envelope.pid)
    tag = _first(record, ("logtag",))
    split = key == "log" and isinstance(record.get("stream"), str)
    piece = tag == "P" or (tag is None and not text.endswith("\n") and len(text.encode()) >= DOCKER_PIECE)
    text = text.removesuffix("\n").removesuffix("\r")
    return Segment(
        plain(text) if own else text,
        envelope.inside(_host_of(record))._replace(
            time=time or envelope.time,
            stream=str(record["stream"]) if split else None,
            partial=split and piece,
        ),
    )


def _text_of(record: Mapping[str, object]) -> tuple[str, str | None]:
    """Find the line that a record carries: (its key, the line)."""
    for key in _TEXT_KEYS:
        value = record.get(key)
        if isinstance(value, str):
            return key, value
        if isinstance(value, dict):
            return _text_of(value)
        if isinstance(value, list) and all(isinstance(v, int) and 0 <= v < 256 for v in value):
            return key, bytes(value).decode(errors="replace")  # journald, for text with control bytes
    for key in _INNER_KEYS:
        inner = record.get(key)
        if isinstance(inner, dict):
            return _text_of(inner)
    return "", None


def _host_of(record: Mapping[str, object]) -> str | None:
    host = _first(record, _HOST_KEYS)
    for key in _PLACE_KEYS:
        place = record.get(key)
        if not host and isinstance(place, dict):
            host = _host_of(place)
    return host


def _first(record: Mapping[str, object], keys: tuple[str, ...]) -> str | None:
    return next((value for key in keys if isinstance(value := record.get(key), str)), None)


def level_name(word: str | None) -> str | None:
    """Give a level under the name that Python's logging has for it."""
    upper = (word or "").upper()
    return {"": None, "WARN": "WARNING", "FATAL": "CRITICAL", "ERR": "ERROR"}.get(upper, upper)


def _label_layer(body: str, envelope: Envelope) -> Segment | None:
    match = pattern("labels").match(body)
    if not match:
        return None
    host = _host_of(dict(pattern("label").findall(match.group())))
    return Segment(body[match.end() :], envelope.inside(host))


def _field_layer(body: str, envelope: Envelope) -> Segment | None:
    match = pattern("field").search(body) if body[0] == "{" else pattern("field").match(body)
    return Segment(_unquoted(match.group(1)).removesuffix("\n"), envelope) if match else None


def _logfmt_layer(body: str, envelope: Envelope) -> Segment | None:
    record: dict[str, object] = {}
    at = 0
    while at < len(body):
        match = pattern("pair").match(body, at)
        if not match:
            return None
        key, quoted, bare = match.groups()
        record[key] = bare if quoted is None else _unquoted(quoted)
        at = match.end()
    return _of_record(record, envelope)


def _unquoted(text: str) -> str:
    import json

    if "\\" not in text:
        return text
    try:
        return str(json.loads(f'"{text}"', strict=False))
    except ValueError:
        return text.replace('\\"', '"').replace("\\\\", "\\")
