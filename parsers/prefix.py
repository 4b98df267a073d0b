"""The engine's own prefix, of every release, and the message behind it."""

from __future__ import annotations

import functools
import itertools
import re
from typing import TYPE_CHECKING, Any

from parsers.envelope import Envelope, Segment, level_name, peel, stretches
from parsers.paste import is_marked
from parsers.record import NOBODY, Record, Speaker
from parsers.tuples import NamedTuple
from parsers.width import unbroken

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from parsers.candidates import PhysicalLine
    from parsers.width import Line

MAX_TAG = 64
"""Characters before a prefix taken for a tag, not for text: VLLM_LOGGING_PREFIX, a launcher's label, a bullet."""

MAX_TOKEN = 200
"""The same where they hold no space: a log stream's name."""

MIN_BROKEN = 8
"""Columns of the narrowest terminal thought of; shorter ends of lines are no broken prefix."""

MAX_BARS = 1 << 16
"""Characters of one line searched for progress bars that ran into it."""

_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_LEVEL = rf"(?P<level>{'|'.join(_LEVELS)})"
_TIME = r"(?P<time>\d\d-\d\d \d\d:\d\d:\d\d)"
_YEAR_TIME = r"\d{4}-(?P<time>\d\d-\d\d \d\d:\d\d:\d\d)(?:[.,]\d{1,6})?"
_WHERE = r"(?P<file>[^\s\[\]:()]{1,160}):\d{1,6}\]"
_PLACE = _WHERE.replace("file", "place")
_ADDRESS = r"(?:, ip=[^()\s,]{1,60})?"
_PROCESS = rf"\((?:[^()]{{1,80}} )?pid=\d{{1,10}}{_ADDRESS}\)"
_KNOWN = r"(?:VllmWorker|Worker|RayWorker|EngineCore|APIServer|ApiServer|MainProcess)"

PATTERNS = {
    # 0.2.7-0.7.3 print no bracket before the file, 0.8.0 and later do. An empty message may have lost its space.
    "line": r"(?:\((?P<name>[^()]{1,80}) pid=(?P<pid>\d{1,10})(?:, ip=(?P<ip>[^()\s,]{1,60}))?\) )?"
    rf"{_LEVEL} {_TIME} \[?{_WHERE}(?: (?P<text>.*))?",
    "prefix": rf"{_LEVEL} {{1,9}}{_TIME} {{1,9}}\[?{_WHERE}(?: |$)",
    "processes": rf"(?:{_PROCESS} ?){{1,4}}",
    "broken": rf"(?:{_PROCESS} ){{0,4}}{_LEVEL} {_TIME} \[?{_WHERE} ",
    # What only the start of a line looks like.
    "anew": rf"\s{{0,40}}(?:\x1b?\[[\d;]{{1,9}}m){{0,3}}(?:{_PROCESS}|{_LEVEL}[: ]|\d{{4}}-\d\d-\d\d[T ]\d\d:|\[pod/"
    r'|\{"(?!level":\d,)|Traceback \()',  # compilation_config={"level":3,... is a value
    "end": r"\.py:\d{1,6}\] ?$",
    # Two processes raced for the line; or a notebook dropped the newline before a bar of tqdm's.
    "glued": rf"(?<=\S)\({_KNOWN}[^()]{{0,60}} pid=\d{{1,10}}{_ADDRESS}\) ",
    "bar": r"(?:(?<=\S)(?:Loading [a-z]{1,20} checkpoint shards|Capturing [^:\[]{1,60})"
    r"|(?<=[^\s\w./-])[\w./-]{1,120}\.\w{1,12}): {1,4}\d{1,3}%[ |]",
    "folded": r" ?\[repeated \d{1,9}x across cluster\](?: \(Ray deduplicates logs.{0,300})?\s{0,9}$",
    # Formats of Python's logging and of loggers around the engine: `LEVEL:name:message`, uvicorn's `LEVEL:    message`,
    # a full date, or only what a paste left of the prefix.
    "loose": rf"{_LEVEL}(?:[: ]{_YEAR_TIME}[: ]{{1,4}}(?:{_WHERE} )?| {{1,9}}\[?{_PLACE} "
    r"|:(?:[A-Za-z_][\w.-]{0,120}:(?=\S)|\s{1,9}))|\[?(?P<bare>[\w./-]{1,150}\.py):\d{1,6}\] ",
    # The same behind a timestamp: `name - LEVEL - message`, `[LEVEL] message`, `LEVEL file:N -- message`, loguru's.
    "stamped": r"(?:[\w.]{1,120} - )?(?:(?P<level>DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL|FATAL)\b"
    r"|\[(?P<caged>(?i:debug|info|warn|warning|error|critical|fatal))\])"
    r"(?:\s{0,9}(?:\[?(?P<file>[\w./-]{1,150}\.py):\d{1,6}\]?|\|\s?[\w.]{1,120}:\w{1,80}:\d{1,6} -|[|:-]{1,2})){0,6}"
    r"\s{0,9}",
    # A request that quotes a log is no log.
    "quoting": r"(?i:\bprompt['\"]?\s?[:=]|Received request|Generated response|['\"](?:content|messages|prompt)['\"])",
}

_CLOSING = {"`": "`", "|": "|", '"': '"', "'": "'"}
_QUOTES = ("'", '"', "`", "\\n", "\\r")


@functools.cache
def pattern(name: str) -> re.Pattern[str]:
    """Compile one form, on the first line that may have it."""
    return re.compile(PATTERNS[name])


@functools.cache
def _broken() -> Any:  # noqa: ANN401 - package regex has no types
    """Compile the one form that is matched in part, which the standard library cannot do.

    Importing package regex and compiling with it costs about as much as reading a clean log.
    """
    import regex

    return regex.compile(PATTERNS["broken"])


def records(lines: Sequence[PhysicalLine]) -> list[Record]:
    """Read consecutive physical lines into records, one or more per line, in the order of the lines.

    Pieces that a container runtime cut a line into are put together again under the number of the first, and so is what
    a terminal of a width that shows cut. Where it does not show, a message stays broken, each piece unprefixed: only who
    knows the sentences can tell how to join it. Where the break lies in the prefix, the record stands on the line where
    its message begins.
    """
    reader = _Reader()
    found = [record for line in unbroken(lines, begins_anew) for record in _placed(line, reader.read(line))]
    found += reader.rest()
    return sorted(found, key=lambda record: record.line) if reader.joined else found


def _placed(line: Line, found: Iterable[Record]) -> Iterator[Record]:
    """Give the records of a line that was put together their own physical lines."""
    at = 0
    for record in found:
        if line.cuts and record.line == line.number:
            placed, at = line.placed(record, at)
            yield placed
        else:
            yield record


def begins_anew(text: str) -> bool:
    """Whether a line is no rest of the one above: it is empty, or begins as loggers, processes and transports do."""
    if not text or pattern("anew").match(text):
        return True
    prefix = pattern("prefix").search(text[:MAX_TOKEN])
    if not prefix:
        return False
    lead = text[: prefix.start()]
    return lead.count(")") <= lead.count("(")  # else a process prefix began above


class _Piece(NamedTuple):
    line: int
    text: str
    envelope: Envelope


class _Prefix(NamedTuple):
    """Where an engine prefix stands in a text, and what it says."""

    start: int
    end: int
    level: str
    time: str
    file: str


class _Reader:
    """What must be remembered from line to line: what waits for its rest, and the tag that lines carry."""

    def __init__(self) -> None:
        self.joined = False
        self._waiting: dict[tuple[object, ...], _Piece] = {}
        self._broken: Line | None = None
        self._tag = ""

    def read(self, line: Line) -> Iterator[Record]:
        text = line.text
        broken, self._broken = self._broken, None
        if broken and _goes_on(broken.text, text):
            text = broken.text + text
        elif broken:
            yield from self._unplain(broken.number, broken.text)
        match = pattern("line").fullmatch(text)
        if match and match["text"]:
            name, pid, ip, level, time, file, message = match.groups()
            if not _is_doubtful(message):
                self._tag = ""
                speaker = Speaker(name, int(pid), ip) if pid else NOBODY
                yield Record(line.number, message, True, level, time, file, speaker)
                return
        elif _ends_in_prefix(text):
            self._broken = line._replace(text=text)
            return
        yield from self._unplain(line.number, text)

    def rest(self) -> Iterator[Record]:
        """Give what still waits for a rest that lies outside these lines."""
        if self._broken:
            yield from self._unplain(self._broken.number, self._broken.text)
        for piece in self._waiting.values():
            yield from self._stretches(piece)

    def _unplain(self, number: int, text: str) -> Iterator[Record]:
        piece: _Piece | None = _Piece(number, *peel(text))
        while piece and piece.envelope.stream:
            piece = self._whole(piece)
        if piece:
            yield from self._stretches(piece)

    def _whole(self, piece: _Piece) -> _Piece | None:
        """Put a piece to those that came before it; None while more are to come."""
        envelope = piece.envelope
        key = (envelope.hosts, envelope.ip, envelope.stream)
        waiting = self._waiting.pop(key, None)
        line, text = (waiting.line, waiting.text + piece.text) if waiting else (piece.line, piece.text)
        if envelope.partial:
            self._waiting[key] = _Piece(line, text, envelope)
            self.joined = True
            return None
        return _Piece(line, *peel(text, envelope._replace(stream=None)))

    def _stretches(self, piece: _Piece) -> Iterator[Record]:
        for segment in stretches(Segment(piece.text, piece.envelope)):
            yield from self._split(piece.line, segment)

    def _split(self, number: int, segment: Segment) -> Iterator[Record]:
        """Give the records that share a stretch of text: notebooks and racing processes drop newlines."""
        text, envelope = segment
        if "x across cluster]" in text:
            text = pattern("folded").sub("", text)
        own = envelope.logged is not None and envelope.logged.own
        found = _prefixes(text, anchored=own)
        if not found:
            yield from self._unprefixed(number, text, envelope)
            return
        lead = _less_processes(text[: found[0].start])
        yield from self._lead(number, lead, envelope)
        for i, prefix in enumerate(found):
            before = text[found[i - 1].end if i else 0 : prefix.start]
            last = i + 1 == len(found)
            message = text[prefix.end :] if last else _less_processes(text[prefix.end : found[i + 1].start])
            first, *others = _unglued(_uncaged(message, lead))
            speaking = _after(before, envelope if i == 0 else envelope.of_anyone())
            yield Record(number, first, True, prefix.level, prefix.time, prefix.file, _speaker(speaking))
            for other in others:
                yield from self._unprefixed(number, *peel(other, envelope.of_anyone()))

    def _lead(self, number: int, lead: str, envelope: Envelope) -> Iterator[Record]:
        """Tell a tag before a prefix from text that ran into it."""
        self._tag = ""
        if len(lead) <= MAX_TAG or (len(lead) <= MAX_TOKEN and " " not in lead.strip()):
            self._tag = lead
        elif lead.strip():
            yield from self._unprefixed(number, lead, envelope)

    def _unprefixed(self, number: int, text: str, envelope: Envelope) -> Iterator[Record]:
        if self._tag.strip() and text.startswith(self._tag):
            text, envelope = peel(text[len(self._tag) :], envelope)
        indent = len(text) - len(text.lstrip(" \t"))
        if indent > 1:  # one space may be where a terminal broke the line, more are a paste's indentation
            text = text[indent:]
        first, *others = _unglued(text)
        record = _of_logger(number, first, envelope)
        if record.text.strip() or record.prefixed:
            yield record
        for other in others:
            yield from self._unprefixed(number, *peel(other, envelope.of_anyone()))


def _ends_in_prefix(text: str) -> bool:
    """Whether a line ends inside a prefix or right behind it: the rest may stand on the next line."""
    if pattern("end").search(text[-12:]):
        return True
    if len(text) < MIN_BROKEN or text[0] not in "(DIWEC":
        return False
    begun = text.rpartition(") ")[2]
    if begun[:1] not in {"", "("} and not any(f"{level} ".startswith(begun[: len(level) + 1]) for level in _LEVELS):
        return False
    match = _broken().match(text, partial=True)
    return bool(match and match.partial)


def _goes_on(broken: str, text: str) -> bool:
    """Whether a terminal broke one line in two here: inside the prefix, before the space at its end, or behind it."""
    if not pattern("end").search(broken[-12:]):
        return bool(_broken().match(broken + text, partial=True))
    if broken.endswith("]"):
        return text.startswith(" ")
    if begins_anew(text) or pattern("prefix").search(text[:MAX_TOKEN]) or _ends_in_prefix(text):
        return False
    return bool(text[:1].strip())


def _is_doubtful(m: str) -> bool:
    """Whether a message behind a plain prefix shows signs of colour, of a progress bar, or of another record."""
    if is_marked(m) or "0m" in m or "\r" in m or ".py:" in m or " pid=" in m:
        return True
    return "across cluster]" in m or "%|" in m or "% Completed" in m or "\ufffd[" in m


def _prefixes(text: str, *, anchored: bool) -> list[_Prefix]:
    """Find the engine prefixes in a stretch of text, past those that a request merely quotes.

    In the message that a Python logger recorded one may stand only at the start, in an unknown record nowhere.
    """
    found: list[_Prefix] = []
    if text.startswith("{") and not anchored:
        return found
    at = 0
    for match in pattern("prefix").finditer(text):
        before = _less_processes(text[at : match.start()])
        if anchored and (found or before.strip()):
            break
        if found and before.endswith(_QUOTES):
            continue
        if pattern("quoting").search(before):
            break
        found.append(_Prefix(match.start(), match.end(), match["level"], match["time"], match["file"]))
        at = match.end()
    return found


def _processes(before: str) -> str:
    """Give the process prefixes that end a text."""
    if not before.rstrip().endswith(")"):
        return ""
    start = max(0, len(before) - 4 * 160)
    return next((m.group() for m in pattern("processes").finditer(before, start) if m.end() == len(before)), "")


def _less_processes(before: str) -> str:
    return before[: len(before) - len(_processes(before))]


def _after(before: str, envelope: Envelope) -> Envelope:
    """Give the envelope of what follows `before`: a process prefix at its end says who speaks."""
    processes = _processes(before)
    return peel(processes, envelope).envelope if processes else envelope


def _speaker(envelope: Envelope) -> Speaker:
    return Speaker(envelope.name, envelope.pid, envelope.host)


def _uncaged(message: str, lead: str) -> str:
    """Drop the closing mark of a table cell, a code span or a quote that was opened before the prefix."""
    closing = _CLOSING.get(lead.rstrip()[-1:])
    trimmed = message.rstrip()
    return trimmed[:-1].rstrip() if closing and trimmed.endswith(closing) else message


def _unglued(text: str) -> list[str]:
    """Cut off what ran into a message: another process's output, progress bars."""
    cuts = []
    if " pid=" in text:
        cuts = [m.start() for m in pattern("glued").finditer(text)]
    if "%|" in text or "% Completed" in text:
        cuts += [m.start() for m in pattern("bar").finditer(text, 0, MAX_BARS)]
    edges = [0, *sorted(cuts), len(text)]
    return [text[a:b] for a, b in itertools.pairwise(edges)]


def _of_logger(number: int, text: str, envelope: Envelope) -> Record:
    """Read a text without the engine's prefix: a structured record's, another logger's, or nobody's."""
    speaker = _speaker(envelope)
    logged = envelope.logged
    if logged and logged.own:
        return Record(number, text, True, logged.level, _engine_time(logged.time), logged.file, speaker)
    if text[:1] in "DIWEC[" or ".py:" in text[:160]:
        loose = pattern("loose").match(text)
        if loose:
            said = loose.groupdict()
            file = said["file"] or said["place"] or said["bare"]
            return Record(number, text[loose.end() :], True, said["level"], said["time"], file, speaker)
    if logged:
        return Record(number, text, True, logged.level, _engine_time(logged.time), logged.file, speaker)
    if envelope.time:
        stamped = pattern("stamped").match(text)
        if stamped:
            level, time = level_name(stamped["level"] or stamped["caged"]), _engine_time(envelope.time)
            return Record(number, text[stamped.end() :], True, level, time, stamped["file"], speaker)
    return Record(number, text, speaker=speaker)


def _engine_time(stamp: str | None) -> str | None:
    """Shorten a full date to what the engine prints, `MM-DD HH:MM:SS`."""
    if stamp is None or stamp[4:5] not in {"-", "/"}:
        return None
    return stamp[5:19].replace("/", "-").replace("T", " ")
