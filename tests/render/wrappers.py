"""What lies between an engine's stdout and the file a person has: transports, terminals, quoting. Text to text."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

WIDTH = 80
RECORD = re.compile(
    r"^(?:\((?P<name>[^()]+?) pid=(?P<pid>\d+)\) )?(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) "
    r"(?P<month>\d\d)-(?P<day>\d\d) (?P<time>\d\d:\d\d:\d\d) \[?[^\s\]]+:\d+\] (?P<message>.*?)\r?$"
)
ACTOR = re.compile(r"\(RayWorker\w* pid=\d+(?:, ip=[\d.]+)?\)")


def _lines(text: str) -> list[str]:
    return text.split("\n")[:-1]


def _joined(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _moments(count: int) -> list[datetime]:
    start = datetime(2026, 1, 5, 8, 0, 0)  # a fixed stamp, printed as UTC
    return [start + timedelta(milliseconds=37 * index) for index in range(count)]


def kubectl(text: str) -> str:
    """`kubectl logs --timestamps --prefix`."""
    lines = _lines(text)
    stamps = _moments(len(lines))
    return _joined(
        [f"[pod/llm-0/vllm] {t:%Y-%m-%dT%H:%M:%S.%f}000Z {line}" for t, line in zip(stamps, lines, strict=True)]
    )


def cri(text: str) -> str:
    """The container runtime's own file."""
    lines = _lines(text)
    stamps = _moments(len(lines))
    return _joined([f"{t:%Y-%m-%dT%H:%M:%S.%f}123Z stdout F {line}" for t, line in zip(stamps, lines, strict=True)])


def docker_json(text: str) -> str:
    """Docker's json-file driver."""
    lines = _lines(text)
    return _joined(
        [
            json.dumps({"log": f"{line}\n", "stream": "stdout", "time": f"{t:%Y-%m-%dT%H:%M:%S.%f}001Z"})
            for t, line in zip(_moments(len(lines)), lines, strict=True)
        ]
    )


def compose(text: str) -> str:
    """`docker compose logs`."""
    return _joined([f"vllm-1  | {line}" for line in _lines(text)])


def journald(text: str) -> str:
    """`journalctl -u vllm`."""
    lines = _lines(text)
    return _joined(
        [f"{t:%b %d %H:%M:%S} host vllm[913]: {line}" for t, line in zip(_moments(len(lines)), lines, strict=True)]
    )


def srun(text: str) -> str:
    """`srun --label`."""
    return _joined([f"0: {line}" for line in _lines(text)])


def crlf(text: str) -> str:
    """Windows line ends."""
    return text.replace("\r\n", "\n").replace("\n", "\r\n")


def ansi(text: str) -> str:
    """A coloured terminal of 0.12 on: level, time and place have their own shades."""
    shades = {"DEBUG": 37, "INFO": 32, "WARNING": 33, "ERROR": 31, "CRITICAL": 35}
    pattern = r"\b(DEBUG|INFO|WARNING|ERROR|CRITICAL) (\d\d-\d\d \d\d:\d\d:\d\d) (\[?[^\s\]]+:\d+\])"

    def paint(found: re.Match[str]) -> str:
        level, clock, place = found.groups()
        return f"\x1b[{shades[level]}m{level}\x1b[0m \x1b[90m{clock}\x1b[0m \x1b[90m{place}\x1b[0m"

    return _joined([re.sub(pattern, paint, line, count=1) for line in _lines(text)])


def ansi_without_escape(text: str) -> str:
    """The same after a paste that lost the ESC byte."""
    return ansi(text).replace("\x1b", "")


def terminal(text: str) -> str:
    """Broken hard at the terminal's width, inside words and numbers."""
    parts = []
    for line in _lines(text):
        bare = line.rstrip("\r")
        parts += [bare[at : at + WIDTH] for at in range(0, max(len(bare), 1), WIDTH)]
    return _joined(parts)


def quoted(text: str) -> str:
    """A Markdown quote in a ticket."""
    return _joined([f"> {line}" for line in _lines(text)])


def fenced(text: str) -> str:
    """A Markdown fence with prose around it."""
    return f"The server does not come up:\n\n```text\n{text}```\n\nAny idea?\n"


def indented(text: str) -> str:
    """Pasted as an indented block."""
    return _joined([f"    {line}" for line in _lines(text)])


def json_records(text: str) -> str:
    """The engine's own JSON formatter (0.32.0+); lines that no logger wrote stay as they are."""
    lines = []
    for line in _lines(text):
        found = RECORD.match(line)
        if found is None:
            lines.append(line)
            continue
        name = found["name"] or "MainProcess"
        clock = f"2026-{found['month']}-{found['day']} {found['time']},004"
        keys = {"asctime": clock, "levelname": found["level"], "name": "vllm", "processName": name}
        own = {"process": int(found["pid"] or 1), "message": found["message"], "vllm_process_name": name}
        lines.append(json.dumps(keys | own, ensure_ascii=False))
    return _joined(lines)


def ray_folded(text: str) -> str:
    """Ray prints the first of lines that differ only in digits, then the last with a count."""
    first: dict[str, int] = {}
    held: dict[str, tuple[str, int]] = {}
    lines: list[str] = []
    for line in _lines(text):
        if ACTOR.search(line) is None:
            lines.append(line)
            continue
        key = re.sub(r"\d+", "", ACTOR.sub("", line))
        if key not in first:
            first[key] = len(lines)
            lines.append(line)
        else:
            held[key] = (line, held.get(key, ("", 0))[1] + 1)
    for line, times in held.values():
        lines.append(f"{line} [repeated {times}x across cluster]" if times > 1 else line)
    return _joined(lines)


def drop_lines(text: str, random: Random, chance: float) -> str:
    """Lose each line with that chance."""
    return _joined([line for line in _lines(text) if random.random() >= chance])


WRAPPERS: tuple[Callable[[str], str], ...] = (
    kubectl,
    cri,
    docker_json,
    compose,
    journald,
    srun,
    crlf,
    ansi,
    ansi_without_escape,
    terminal,
    quoted,
    fenced,
    indented,
)
"""Transports that change no fact; `json_records` needs 0.32.0+, `ray_folded` loses lines and needs Ray."""
