"""Where one start-up ends and the next begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.ranks import engines
from parsers.startups import ONCE_PER_RANK, RANK_KINDS, SIZED, StartUpLog, identity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from parsers.record import Speaker
    from parsers.rule import Statement

ONCE_PER_SERVER = frozenset(("api_version", "arguments", "banner_version", "changed_arguments"))
ONCE_PER_ENGINE = frozenset(("engine_config", "engine_config_v0", "engine_config_v1"))

AT_WORK = ONCE_PER_ENGINE | RANK_KINDS | SIZED
"""What no server says before its arguments."""


class _Draft:
    """A start-up being collected."""

    def __init__(self, line: int) -> None:
        self.first_line = line
        self.statements: list[Statement] = []
        self.once: dict[tuple[str, str | None, str | int | None], Statement] = {}
        self.pids: set[tuple[str | None, int]] = set()
        self.groups: set[str] = set()
        self.engines: dict[int, int] = {}
        self.release = ""

    def begins_anew(self, statement: Statement) -> bool:
        """Whether a statement cannot belong here: one launch says it once, or has one such process."""
        return (
            self._other_release(statement)
            or self._other_engine(statement)
            or self._reloads(statement)
            or self._repeats(statement)
            or self._restarts(statement)
        )

    def is_beside(self, statement: Statement) -> bool:
        """Whether a launch that begins with `statement` runs beside this one: another actor or container made it."""
        group = _group(statement.record.speaker)
        return group is not None and bool(self.groups) and group not in self.groups

    def _other_release(self, statement: Statement) -> bool:
        """Whether another release speaks: servers of two releases may go by two names, and say it in other words."""
        told = _release(statement)
        return not (told.startswith(self.release) or self.release.startswith(told))  # one of them may be cut off

    def _other_engine(self, statement: Statement) -> bool:
        speaker = statement.record.speaker
        who = identity(speaker.name)
        if who.role != "engine" or speaker.pid is None:
            return False
        return self.engines.get(who.dp or 0, speaker.pid) != speaker.pid

    def _repeats(self, statement: Statement) -> bool:
        key = _once_key(statement)
        before = self.once.get(key) if key else None
        if before is None:
            return False
        same_words = [p.text for p in before.fields] == [p.text for p in statement.fields]
        return not (same_words and before.record.time == statement.record.time)  # else a copy of the stream

    def _restarts(self, statement: Statement) -> bool:
        """Whether a server introduces itself where an engine of its host is at work: that is the next one's first word."""
        if statement.kind not in ONCE_PER_SERVER or _once_key(statement) in self.once:
            return False
        host = statement.record.speaker.host
        return any(s.kind in AT_WORK and s.record.speaker.host == host for s in self.statements)

    def _reloads(self, statement: Statement) -> bool:
        """Whether a process without a name loads weights after it sized its cache: the model was loaded anew."""
        speaker = statement.record.speaker
        if statement.kind != "weights" or speaker.pid is not None or speaker.name is not None:
            return False
        return any(s.kind in SIZED and s.record.speaker == speaker for s in self.statements)

    def take(self, statement: Statement) -> None:
        speaker = statement.record.speaker
        who = identity(speaker.name)
        self.statements.append(statement)
        self.release = self.release or _release(statement)
        if speaker.pid is not None:
            self.pids.add((speaker.host, speaker.pid))
            if who.role == "engine":
                self.engines.setdefault(who.dp or 0, speaker.pid)
        group = _group(speaker)
        if group:
            self.groups.add(group)
        key = _once_key(statement)
        if key:
            self.once.setdefault(key, statement)


def _release(statement: Statement) -> str:
    stated = statement.kind in ONCE_PER_SERVER or statement.kind in ONCE_PER_ENGINE
    return (statement.text("version") or "") if stated else ""


def _group(speaker: Speaker) -> str | None:
    """Give what a process shares with the others of its launch: a container, or the actor that started them."""
    if not speaker.name or identity(speaker.name).role:
        return speaker.host
    actor = f"{speaker.name} pid={speaker.pid}"
    return f"{speaker.host}/{actor}" if speaker.host else actor


def _once_key(statement: Statement) -> tuple[str, str | None, str | int | None] | None:
    speaker = statement.record.speaker
    if statement.kind in ONCE_PER_SERVER:
        return statement.kind, speaker.host, speaker.name
    if statement.kind in ONCE_PER_ENGINE:
        return "engine_config", None, identity(speaker.name).dp or 0
    if statement.kind in ONCE_PER_RANK and (speaker.pid is not None or statement.kind == "v0_budget"):
        return statement.kind, speaker.host, (speaker.name if speaker.pid is None else speaker.pid)
    return None


def _home(statement: Statement, drafts: list[_Draft]) -> _Draft | None:
    """Give the start-up that a statement belongs to: its process's, else its group's, else the latest."""
    speaker = statement.record.speaker
    if speaker.pid is not None:
        for draft in reversed(drafts):
            if (speaker.host, speaker.pid) in draft.pids:
                return draft
    group = _group(speaker)
    if group is not None:
        for draft in reversed(drafts):
            if group in draft.groups:
                return draft
    return drafts[-1] if drafts else None


def split(statements: Iterable[Statement], last_line: int) -> tuple[StartUpLog, ...]:
    """Sort statements into start-ups.

    A start-up begins where a line that one launch prints once is said again (a banner or arguments by a server, a
    configuration by an engine of the same number, a measurement by the same worker) or where a second process stands in
    for an engine. A process stays in the start-up of its first line, however much its lines interleave with another's.
    """
    drafts: list[_Draft] = []
    running: list[_Draft] = []
    for statement in statements:
        home = _home(statement, running)
        if home is None or home.begins_anew(statement):
            if home is not None and not home.is_beside(statement):
                running.remove(home)  # its processes are gone; a container gives the next ones the same numbers
            home = _Draft(statement.line)
            drafts.append(home)
            running.append(home)
        home.take(statement)
    ends = [d.first_line - 1 for d in drafts[1:]] + [last_line]
    return tuple(_finished(d, max(end, d.statements[-1].lines[-1])) for d, end in zip(drafts, ends, strict=True))


def _finished(draft: _Draft, last_line: int) -> StartUpLog:
    statements = tuple(draft.statements)
    return StartUpLog(draft.first_line, last_line, statements, engines(statements))
