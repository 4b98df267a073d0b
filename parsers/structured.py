"""Lines that are records: JSON, logfmt, CSV, and single fields of records printed over several lines."""

from __future__ import annotations

import csv
import functools
import json
import re
from typing import TYPE_CHECKING

from parsers.envelope import CELL, STAMP, Envelope, Logged, Segment, level_name
from parsers.paste import plain

if TYPE_CHECKING:
    from collections.abc import Mapping

DOCKER_PIECE = 16_000
"""Docker's json-file driver cuts lines at 16 KiB and leaves the newline off all pieces but the last.

Collectors that drop the newline of every line are told apart by the length.
"""

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
    "labels": r'\{(?:[\w.]{1,60}="[^"]{0,200}"(?:, ?)?){0,30}\}\s{1,9}',
    "label": r'([\w.]{1,60})="([^"]{0,200})"',
    "pair": r'([\w.@/-]{1,60})=(?:"((?:[^"\\]|\\.)*+)"|([^\s"]*+))(?: {1,9}|$)',
    # One line of a pretty-printed record, or a record cut off in the middle.
    "field": r'"(?:message|msg|log|line|textPayload|MESSAGE|@message)"\s{0,4}:\s{0,4}"((?:[^"\\]|\\.)*+)',
    "element": r'"((?:[^"\\]|\\.)*+)",?\s*$',
    # The same of journalctl -o verbose and gcloud's YAML.
    "keyed": r"(?:MESSAGE=|textPayload: )",
    "cell": CELL,
    "figure": rf"{STAMP}|[\d.]{{0,30}}",
}


@functools.cache
def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(PATTERNS[name])


def peel_structure(body: str, envelope: Envelope) -> Segment | None:
    """Take the line out of the record that begins here, None where none does."""
    letter = body[0]
    if letter == "{":
        return _record(body, envelope) or _labels(body, envelope)
    if letter == '"':
        return _field(body, envelope) or _element(body, envelope) or _cells(body, envelope)
    if letter.isdigit():
        return _cells(body, envelope)
    return _keyed(body, envelope) or _logfmt(body, envelope)


def _record(body: str, envelope: Envelope) -> Segment | None:
    if not body[1:].lstrip().startswith('"'):
        return None
    text = body.rstrip().removesuffix(",")
    try:
        record = json.loads(text) if text.endswith("}") else None
    except (ValueError, RecursionError):
        record = None
    return _field(body, envelope) if record is None else _of_record(record, envelope)


def _of_record(record: Mapping[str, object], envelope: Envelope) -> Segment | None:
    key, text = _text_of(record)
    if text is None:
        return None
    level, time = _first(record, _LEVEL_KEYS), _first(record, _TIME_KEYS)
    own = "levelname" in record or "vllm_process_name" in record
    if own or key in {"message", "msg"}:
        said = level_name(level)
        if not own and said in {"DEBUG", "INFO"}:
            said = None  # what a collector gives any line, a traceback too
        envelope = envelope._replace(logged=Logged(said, time, _first(record, _FILE_KEYS), own))
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


def _labels(body: str, envelope: Envelope) -> Segment | None:
    match = _pattern("labels").match(body)
    if not match:
        return None
    host = _host_of(dict(_pattern("label").findall(match.group())))
    return Segment(body[match.end() :], envelope.inside(host))


def _field(body: str, envelope: Envelope) -> Segment | None:
    match = _pattern("field").search(body) if body[0] == "{" else _pattern("field").match(body)
    return Segment(_unquoted(match.group(1)).removesuffix("\n"), envelope) if match else None


def _element(body: str, envelope: Envelope) -> Segment | None:
    """Read a line that is one string of a list, as jq prints them."""
    match = _pattern("element").match(body)
    return Segment(_unquoted(match.group(1)).removesuffix("\n"), envelope) if match else None


def _keyed(body: str, envelope: Envelope) -> Segment | None:
    match = _pattern("keyed").match(body)
    if not match:
        return None
    value = body[match.end() :]
    if value[:1] == "'":
        value = value.rstrip()[1:].removesuffix("'").replace("''", "'")
    elif value[:1] == '"':
        value = _unquoted(value.rstrip()[1:].removesuffix('"'))
    return Segment(value, envelope)


def _cells(body: str, envelope: Envelope) -> Segment | None:
    """Read a row of CSV that has a time in its first column or its last; of the others the longest text is the line."""
    first = _pattern("cell").match(body)
    if not first and '",' not in body:
        return None
    try:
        (row,) = csv.reader([body])
    except (csv.Error, ValueError):
        return None
    times = [cell for cell in (row[0], row[-1]) if _pattern("figure").fullmatch(cell)]
    if len(row) < 2 or not times:
        return None
    told = [cell for cell in row if not _pattern("figure").fullmatch(cell) and not cell.startswith('{"')]
    records = [cell for cell in row if cell.startswith('{"') and '"message"' in cell]
    text = max(records or told, key=len, default="")
    return Segment(text, envelope._replace(time=times[0] if first else envelope.time))


def _logfmt(body: str, envelope: Envelope) -> Segment | None:
    if "=" not in body[:61] or not any(f"{key}=" in body for key in ("msg", "message", "log", "line")):
        return None
    record: dict[str, object] = {}
    at = 0
    while at < len(body):
        match = _pattern("pair").match(body, at)
        if not match:
            return None
        key, quoted, bare = match.groups()
        record[key] = bare if quoted is None else _unquoted(quoted)
        at = match.end()
    return _of_record(record, envelope)


def _unquoted(text: str) -> str:
    if "\\" not in text:
        return text
    try:
        return str(json.loads(f'"{text}"', strict=False))
    except ValueError:
        return text.replace('\\"', '"').replace("\\\\", "\\")
