"""The engines and ranks of one start-up, told apart by process name, pid, host and, where only that tells, order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.startups import (
    ONCE_PER_RANK,
    RANK_KINDS,
    WORKER_TOKENS_KINDS,
    EngineLog,
    RankLog,
    identity,
)
from parsers.template import whole_number
from parsers.tuples import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from parsers.record import Speaker
    from parsers.rule import Statement

SAID_ONCE = ONCE_PER_RANK | {"external_exceeds", "free_below_requested", "free_grew"}
"""What one worker says once in a launch or a start that fails; in other words it was another's."""

RAISED = frozenset(("external_exceeds", "free_below_requested", "out_of_memory"))
"""Errors that end a worker; under V0 and Ray its driver, which is a rank too, raises them again in the same words."""

NAMELESS = "some rank"
"""What stands for the name of a rank whose line does not say who printed it."""

DRAFTER = "drafter"
"""What stands for the name of a drafter's weights, which share a process with their target's."""

COUNTS = frozenset(("kv_cache_tokens", "max_concurrency", "num_blocks"))


class _Process(NamedTuple):
    """One process of one host; without a pid, everything that printed no process name."""

    host: str | None
    pid: int | None
    name: str | None = None


class _Worker:
    """What is learnt of one process, line by line."""

    def __init__(self, process: _Process) -> None:
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
            told = {
                p.name: n for p in statement.fields if p.form == "count" and (n := whole_number(p.text)) is not None
            }
            if (statement.text("ep") or "").startswith("N/A"):
                told.pop(
                    "dp", None
                )  # a dense model's replicas know of no other since 0.14: each calls itself the first
            self.rank = told.get("rank", self.rank)
            self.dp, self.pp, self.tp = told.get("dp", self.dp), told.get("pp", self.pp), told.get("tp", self.tp)
        if statement.kind in RANK_KINDS:
            self.statements.append(statement)


def _process_of(speaker: Speaker) -> _Process:
    """Give the process behind a speaker; the name counts only where no pid was printed."""
    if speaker.pid is not None:
        return _Process(speaker.host, speaker.pid)
    return _Process(speaker.host, None, speaker.name)


def _workers(statements: Iterable[Statement]) -> list[_Worker]:
    workers: dict[_Process, _Worker] = {}
    for statement in statements:
        process = _process_of(statement.record.speaker)
        workers.setdefault(process, _Worker(process)).learn(statement)
    return [w for w in workers.values() if w.statements]


def _is_anyone(worker: _Worker, *, named_engine: bool) -> bool:
    """Whether lines without a process may be several workers'.

    Where an engine process has a name, its workers have none until they know their place (0.10.2-0.16). Under V0 and Ray the
    driver is a rank itself, and it alone has no name; but lines that contradict each other are several ranks' in any case.
    """
    if worker.process.pid is not None or worker.process.name is not None:
        return False
    said: dict[str, set[tuple[str, ...]]] = {}
    for s in worker.statements:
        said.setdefault(s.kind, set()).add(_words(s))
    return named_engine or any(len(words) > 1 for kind, words in said.items() if kind in SAID_ONCE)


def _words(statement: Statement) -> tuple[str, ...]:
    return tuple(p.text for p in statement.fields)


def _apart(statements: Iterable[Statement]) -> list[tuple[Statement, ...]]:
    """Set statements of unknown speakers apart, but for those that repeat one another."""
    groups: dict[tuple[str, tuple[str, ...]], list[Statement]] = {}
    for s in statements:
        groups.setdefault((s.kind, _words(s)), []).append(s)
    return [tuple(group) for group in groups.values()]


def _split_raised(statements: tuple[Statement, ...]) -> tuple[list[Statement], list[Statement]]:
    """Split off errors that a driver without a name may only repeat; those that a worker is seen to have said are gone."""
    roles = [identity(s.record.speaker.name).role for s in statements]
    if "worker" not in roles:
        return list(statements), []
    said = {(s.kind, _words(s)) for s, role in zip(statements, roles, strict=True) if role == "worker"}
    again = [
        s for s in statements if s.kind in RAISED and s.record.speaker.name is None and s.record.speaker.pid is None
    ]
    return [s for s in statements if s not in again], [s for s in again if (s.kind, _words(s)) not in said]


def _engine_numbers(statements: Iterable[Statement]) -> list[int]:
    """Give the number of every engine that spoke or was spoken of; one engine, 0, where nothing tells."""
    return sorted({n for s in statements if (n := identity(s.record.speaker.name).dp) is not None}) or [0]


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
    printable = "".join(c if c.isprintable() else "?" for c in worker.name or "")
    name = printable or f"rank {worker.rank if worker.rank is not None else index}"
    log = RankLog(name, dp, worker.pp, worker.tp, process.host, process.pid, tuple(own))
    if not drafter:
        return [log]
    return [log, RankLog(DRAFTER, dp, worker.pp, worker.tp, process.host, process.pid, tuple(drafter))]


def _is_engine_wide(statement: Statement, dp: int, *, alone: bool) -> bool:
    if statement.kind in RANK_KINDS:
        return False
    said_by = identity(statement.record.speaker.name).dp
    return alone or said_by is None or said_by == dp


def _by_order(ranks: list[RankLog], statements: tuple[Statement, ...]) -> list[RankLog]:
    """Give each worker its own counts where the engine printed one for each, in rank order (0.8.0-0.11.0).

    Where lines are missing, order no longer tells whose a count is: then each stands under a rank of its own.
    """
    counts = [s for s in statements if s.kind in WORKER_TOKENS_KINDS]
    texts = {(p.name, p.text) for s in counts for p in s.fields if p.name in COUNTS}
    if len(texts) == len({name for name, _ in texts}):
        return ranks  # one count of each, or copies of one: it is the engine's
    groups: list[list[Statement]] = []
    for statement in counts:
        if statement.kind != "concurrency" or not groups or any(s.kind == "concurrency" for s in groups[-1]):
            groups.append([])
        groups[-1].append(statement)
    complete = len({tuple(s.kind for s in group) for group in groups}) == 1 and len(groups) in _worlds(
        ranks, statements
    )
    dp = ranks[0].dp if ranks else 0
    if not complete:
        return ranks + [_nameless(i, dp, (s,)) for i, s in enumerate(counts)]
    placed = {_position(r, ranks): r for r in ranks if r.name != DRAFTER}
    result = []
    for i, group in enumerate(groups):
        base = placed.pop(i, None) or RankLog(f"rank {i}", dp, None, None, None, None, ())
        result.append(base._replace(statements=(*base.statements, *group)))
    return result + [r for r in ranks if r.name == DRAFTER or _position(r, ranks) in placed]


def _worlds(ranks: list[RankLog], statements: tuple[Statement, ...]) -> set[int]:
    """Give how many workers there are, by the lines that say so, else by those that spoke."""
    told = {n for s in statements if s.kind in {"rank", "world"} and (n := whole_number(s.text("world_size")))}
    return told or {len([r for r in ranks if r.name != DRAFTER])}


def _nameless(number: int, dp: int | None, statements: tuple[Statement, ...]) -> RankLog:
    return RankLog(f"{NAMELESS} {number}", dp, None, None, None, None, statements)


def _position(rank: RankLog, ranks: list[RankLog]) -> int | None:
    """Give a rank's place in rank order, pipeline stages outermost; None where its name does not tell."""
    number = identity(rank.name).rank
    if number is not None:
        return number
    if rank.pp is None and rank.tp is None:
        return 0 if len(ranks) == 1 else None
    width = 1 + max((r.tp or 0) for r in ranks)
    return (rank.pp or 0) * width + (rank.tp or 0)


def engines(statements: tuple[Statement, ...]) -> tuple[EngineLog, ...]:
    """Sort one start-up's statements into engines and ranks."""
    numbers = _engine_numbers(statements)
    own_words, raised = _split_raised(statements)
    workers = _workers(own_words)
    named = any(identity(s.record.speaker.name).role == "engine" for s in statements)
    unknown = [w for w in workers if _is_anyone(w, named_engine=named)]
    result = []
    for dp in numbers:
        own = [w for w in workers if w not in unknown and (w.dp if w.dp is not None else numbers[0]) == dp]
        own.sort(key=lambda w: (w.pp or 0, w.tp or 0, w.rank or 0))
        ranks = [log for i, w in enumerate(own) for log in _rank_logs(w, i, w.dp if len(numbers) > 1 else dp)]
        if dp == numbers[0]:
            apart = [group for w in unknown for group in _apart(w.statements)] + _apart(raised)
            ranks += [_nameless(i, None, group) for i, group in enumerate(apart)]
        wide = tuple(s for s in statements if _is_engine_wide(s, dp, alone=len(numbers) == 1))
        result.append(EngineLog(dp, tuple(_by_order(ranks, wide)), wide))
    return tuple(result)
