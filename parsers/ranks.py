"""The engines and ranks of one start-up, told apart by process name, pid, host and, where only that tells, order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.startups import (
    RANK_KINDS,
    WORKER_TOKENS_KINDS,
    EngineLog,
    Process,
    RankLog,
    identity,
    process_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from parsers.rule import Statement


COUNTS = frozenset(("kv_cache_tokens", "num_blocks"))


class _Worker:
    """What is learnt of one process, line by line."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.name: str | None = None
        self.dp: int | None = None
        self.pp: int | None = None
        self.tp: int | None = None
        self.rank: int | None = None
        self.statements: list[Statement] = []

    def learn(self, statement: Statement) -> None:
        name = statement.record.speaker.name
        who = identity(name)
        if name is not None and (self.name is None or len(name) >= len(self.name)):
            self.name = name
        self.dp = who.dp if who.dp is not None else self.dp
        self.pp = who.pp if who.pp is not None else self.pp
        self.tp = who.tp if who.tp is not None else self.tp
        self.rank = who.rank if who.rank is not None else self.rank
        if statement.kind in {"rank", "world"}:
            told = {p.name: int(p.text) for p in statement.fields if p.form == "count"}
            self.rank = told.get("rank", self.rank)
            self.dp, self.pp, self.tp = told.get("dp", self.dp), told.get("pp", self.pp), told.get("tp", self.tp)
        if statement.kind in RANK_KINDS:
            self.statements.append(statement)


def _workers(statements: Iterable[Statement]) -> list[_Worker]:
    workers: dict[Process, _Worker] = {}
    for statement in statements:
        speaker = statement.record.speaker
        worker = workers.setdefault(process_of(speaker), _Worker(process_of(speaker)))
        worker.learn(statement)
    return [w for w in workers.values() if w.statements]


def _engine_numbers(statements: Iterable[Statement]) -> list[int]:
    """Give the number of every engine that spoke or was spoken of; one engine, 0, where nothing tells."""
    numbers = {identity(s.record.speaker.name).dp for s in statements} - {None}
    return sorted(n for n in numbers if n is not None) or [0]


def _drafter(statements: list[Statement]) -> tuple[list[Statement], list[Statement]]:
    """Split off a drafter's weights: V0 loads target and drafter in one process and prints the line for each."""
    weights = [s for s in statements if s.kind == "weights" and s.text("seconds") is None]
    later = (
        weights[1:] if len(weights) == 2 and weights[0].text("model_memory") != weights[1].text("model_memory") else []
    )
    return [s for s in statements if s not in later], later


def _rank_logs(worker: _Worker, index: int, dp: int | None) -> list[RankLog]:
    own, drafter = _drafter(worker.statements)
    process = worker.process
    name = worker.name or f"rank {worker.rank if worker.rank is not None else index}"
    log = RankLog(name, dp, worker.pp, worker.tp, process.host, process.pid, tuple(own))
    if not drafter:
        return [log]
    return [log, RankLog("drafter", dp, worker.pp, worker.tp, process.host, process.pid, tuple(drafter))]


def _is_engine_wide(statement: Statement, dp: int, *, alone: bool) -> bool:
    if statement.kind in RANK_KINDS:
        return False
    said_by = identity(statement.record.speaker.name).dp
    return alone or said_by is None or said_by == dp


def _by_order(ranks: list[RankLog], statements: tuple[Statement, ...]) -> list[RankLog]:
    """Give each worker its own tokens lines where the engine printed one for each, in rank order (0.8.0-0.11.0)."""
    groups: list[list[Statement]] = []
    for statement in statements:
        if statement.kind in WORKER_TOKENS_KINDS:
            if not groups or any(s.kind == statement.kind for s in groups[-1]):
                groups.append([])
            groups[-1].append(statement)
    counts = {(s.kind, p.text) for group in groups for s in group for p in s.fields if p.name in COUNTS}
    if len({text for kind, text in counts if kind != "concurrency"}) < 2:
        return ranks  # one count, or copies of one: it is the engine's
    placed = {_position(r, ranks): r for r in ranks if r.name != "drafter"}
    result = []
    for i, group in enumerate(groups):
        known = placed.pop(i, None)
        base = known or RankLog(f"rank {i}", ranks[0].dp if ranks else 0, None, None, None, None, ())
        result.append(base._replace(statements=(*base.statements, *group)))
    return result + [r for r in ranks if r.name == "drafter" or _position(r, ranks) in placed]


def _position(rank: RankLog, ranks: list[RankLog]) -> int | None:
    """Give a rank's place in rank order, pipeline stages outermost; None where its name does not tell."""
    number = identity(rank.name).rank
    if number is not None or (rank.pp is None and rank.tp is None):
        return number if number is not None else (0 if len(ranks) == 1 else None)
    width = 1 + max((r.tp or 0) for r in ranks)
    return (rank.pp or 0) * width + (rank.tp or 0)


def engines(statements: tuple[Statement, ...]) -> tuple[EngineLog, ...]:
    """Sort one start-up's statements into engines and ranks."""
    numbers = _engine_numbers(statements)
    workers = _workers(statements)
    result = []
    for dp in numbers:
        own = [w for w in workers if (w.dp if w.dp is not None else numbers[0]) == dp]
        own.sort(key=lambda w: (w.pp or 0, w.tp or 0, w.rank or 0))
        ranks = [log for i, w in enumerate(own) for log in _rank_logs(w, i, w.dp if len(numbers) > 1 else dp)]
        wide = tuple(s for s in statements if _is_engine_wide(s, dp, alone=len(numbers) == 1))
        result.append(EngineLog(dp, tuple(_by_order(ranks, wide)), wide))
    return tuple(result)
