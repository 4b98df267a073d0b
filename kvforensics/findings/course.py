"""How the start went: healthy, slow, dead of something else, dead later, in a loop, or cut off before its cause."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvforensics.findings.case import Case, merged, sentence
from kvforensics.findings.finding import ERROR, NOTE, WARNING, Action, Finding, FindingRule, Threshold
from kvforensics.findings.out_of_memory import KINDS as OUT_OF_MEMORY
from parsers.startups import identity
from parsers.tuples import NamedTuple
from reconstruct.outcome import SERVING

if TYPE_CHECKING:
    from parsers.rule import Statement

SLOW = Threshold("SLOW", 600, "seconds; ten minutes in one phase is what users take for a hang")

MEMORY = frozenset(
    (
        *OUT_OF_MEMORY, "auto_fit_failed", "external_exceeds", "free_below_requested", "free_grew", "need", "no_kv_memory",
        "state_blocks", "too_long",
    )
)  # fmt: skip
"""Sentences with which a start dies of memory, or of the planner."""

WRAPPERS = (
    "WorkerProc initialization failed", "Engine core initialization failed", "Engine process failed to start",
    "Worker failed with error", "Worker proc", "Failed core proc",
)  # fmt: skip
"""Errors that only repeat another process's."""

PASSING_ON = frozenset(("engine_failed", "worker_failed"))
"""Sentences with which a process ends because another did."""

OF_MEMORY_TOO = (
    "out of memory",
    "not enough memory",
    "insufficient memory",
    "cannot allocate memory",
    "free hbm",
    "memory space",
    "oom",
)
"""Words of other programs' and plug-ins' memory errors: no claim is made about them."""

OF_ONE_REQUEST = ("CancelledError", "ClientDisconnect", "ExceptionGroup", "HTTPException", "KeyboardInterrupt")
"""Classes that end a request or a client's wait, not the engine."""

CAUSES = (
    ("a kernel asks for more shared memory than the card has", ("OutOfResources",)),
    ("access to the model was denied", ("403", "401", "gated", "huggingface.co", "Repository", "LocalEntryNotFound")),
    ("devices are missing", ("No CUDA", "CUDA device", "number of GPUs", "available GPUs", "device count")),
    ("the sharding does not fit the model", ("divisible",)),
    ("the architecture is unknown", ("architecture", "Transformers does not recognize", "are not supported for now")),
    ("an argument was rejected", ("ValidationError", "validation error", "argument", "must be", "block size")),
)
"""Kinds of causes and the words in the error's class or message that tell them."""


QUOTED = 160
"""Characters of a foreign message that a detail quotes."""


class Cause(NamedTuple):
    """The first error that is no repetition."""

    statement: Statement
    text: str


def _is_error(statement: Statement) -> bool:
    return statement.kind == "error" and _is_grave(statement)


def _is_grave(statement: Statement) -> bool:
    """Whether the record's level is an error's; a record without a prefix has none."""
    return statement.record.level in {None, "ERROR", "CRITICAL"}


def _engines_own(statement: Statement) -> bool:
    """Whether an error is the engine's: its process or none is named, not a trainer's or a client's."""
    name = statement.record.speaker.name
    return name is None or identity(name).role != ""


def first_cause(statements: tuple[Statement, ...]) -> Cause | None:
    """Find the error that the others follow from; None where a traceback stands without one."""
    for s in statements:
        if s.kind in MEMORY:
            return Cause(s, s.record.text.strip())
        message = s.text("message") or ""
        if _is_error(s) and _engines_own(s) and not any(w in message for w in WRAPPERS):
            return Cause(s, f"{s.text('error_class')}: {message}")
    return None


def last_word(statements: tuple[Statement, ...]) -> Statement | None:
    """Give the sentence that a failed start ended by: of memory, else the first cause, else one that passes it on."""
    cause = first_cause(statements)
    of_memory = [s for s in statements if s.kind in MEMORY]
    passed_on = [s for s in statements if s.kind in PASSING_ON]
    errors = [s for s in statements if s.kind in {"error", "traceback"}]
    return next(iter([*of_memory, *([cause.statement] if cause else []), *passed_on, *errors]), None)


def _kind(text: str) -> str:
    return next(
        (kind for kind, words in CAUSES if any(w in text for w in words)),
        "an error in the program, its settings or its surroundings",
    )


def _speaks_of_memory(text: str) -> bool:
    return any(words in text.lower() for words in OF_MEMORY_TOO)


def _not_memory(case: Case) -> Finding | None:
    if case.ledger.outcome != "failed":
        return None
    statements = case.ledger.log.statements
    cause = first_cause(statements)
    if cause is None or cause.statement.kind in MEMORY or _speaks_of_memory(cause.text):
        return None
    if any(s.kind in MEMORY for s in statements):
        return None
    detail = f"The start failed of something else: {_kind(cause.text)}. The line: {_quoted(cause.text)}"
    sized = case.quantity("available_kv_cache_memory") or case.quantity("kv_cache_tokens")
    detail += " The ledger is sound as far as it goes." if sized else " It ended before memory was measured."
    return Finding(
        "not-a-memory-failure", NOTE, "Memory is not what stopped this start", detail, (cause.statement.line,)
    )


def _unexplained(case: Case) -> Finding | None:
    """Name what a failed start ended by, which examine() drops where another finding says why."""
    end = last_word(case.ledger.log.statements) if case.ledger.outcome == "failed" else None
    if end is None:
        return None
    detail = f"The start ended by: {_quoted(end.record.text.strip())}"
    if end.kind in PASSING_ON:
        detail += " That only passes on an error, which stands in no line that was read."
    elif end.kind not in MEMORY and _speaks_of_memory(end.record.text):
        detail += " It speaks of memory, but not in vLLM's own words: what it counted, the ledger does not hold."
    return Finding("unexplained-failure", ERROR, "The start failed, and no rule explains why", detail, (end.line,))


def _quoted(text: str) -> str:
    """Give foreign text masked and cleaned, short enough for a sentence."""
    from kvforensics.report.redaction import quoted

    return f"'{quoted(text, mask=True, most=QUOTED)}'."


def _after_ready(case: Case) -> tuple[Statement, ...]:
    """Give what follows the first sign of a start's success; nothing where it never came up."""
    statements = case.ledger.log.statements
    if case.ledger.outcome != "ready":
        return ()
    first = next((i for i, s in enumerate(statements) if _is_up(s)), None)
    return () if first is None else statements[first + 1 :]


def _is_up(statement: Statement) -> bool:
    return statement.kind in SERVING or statement.kind == "engine_initialised"


def _died_after_start(case: Case) -> Finding | None:
    later = _after_ready(case)
    if any(s.kind in OUT_OF_MEMORY for s in later):
        return None
    ended = [s for s in later if s.kind in {"engine_died", "engine_failed", "worker_failed"}]
    errors = [s for s in later if _is_error(s) and _engines_own(s)]
    errors = [s for s in errors if not (s.text("error_class") or "").endswith(OF_ONE_REQUEST)]
    fatal = ended or (errors and any(s.kind == "traceback" for s in later))
    if not fatal:
        return None
    cause = first_cause(tuple(s for s in later if s in errors)) if errors else None
    if cause and _speaks_of_memory(cause.text):
        return None
    line = cause.statement.line if cause else ended[0].line
    said = f" The line: {_quoted(cause.text)}" if cause else " The cause stands in no line that was read."
    detail = f"The engine came up and died later, not of memory.{said} The memory of the start is sound."
    return Finding("died-after-start", WARNING, "The engine died after a sound start", detail, (line,))


def _cause_cut_off(case: Case) -> Finding | None:
    begun = [s.line for s in case.of("traceback") if _is_grave(s)]
    named = any(_is_error(s) or s.kind in MEMORY for s in case.ledger.log.statements)
    if not begun or named or case.ledger.outcome != "failed":
        return None
    detail = "A traceback begins and its last line, which names the error, is not in the input."
    action = Action("pass the log up to its end, or grep for 'Error:' below this line", (), "")
    return Finding("cause-cut-off", WARNING, "The cause is cut off", detail, (begun[-1],), actions=(action,))


def _slow_start(case: Case) -> Finding | None:
    phases = (
        ("loading", "weights"), ("profiling", "v0_profiled"), ("profiling", "profile"), ("graph capture", "graph_captured"),
        ("graph capture", "graph_captured_seconds"), ("profiling, cache and warm-up together", "engine_initialised"),
    )  # fmt: skip
    slow = [
        (label, s)
        for label, kind in phases
        for s in case.of(kind)
        if (seconds := s.text("seconds")) and float(seconds) > SLOW.value
    ]
    if not slow:
        return None
    parts = [f"{label} took {float(s.text('seconds') or 0):,.0f} s" for label, s in {x[0]: x for x in slow}.values()]
    detail = f"{sentence(parts)} That is no fault of memory."
    return Finding("slow-start", NOTE, "The start was slow", detail, merged(tuple(s.line for _, s in slow)))


def _restart_loop(case: Case) -> Finding | None:
    model = case.ledger.settings.text("model")
    alike = [i for i, s in enumerate(case.startups[: case.place + 1]) if s.settings.text("model") == model and model]
    failed = [i for i in alike[:-1] if case.startups[i].outcome == "failed"]
    if len(alike) < 2 or not failed or not _same_command(case, alike):
        return None
    first = first_cause(case.startups[failed[0]].log.statements)
    detail = (
        f"{len(alike)} starts of the same command stand in this log, {len(failed)} of those before this one failed."
    )
    lines = tuple(case.startups[i].log.first_line for i in alike)
    if first:
        detail += f" The first cause: {_quoted(first.text)}"
        lines = merged(lines, (first.statement.line,))
    severity = ERROR if case.ledger.outcome == "failed" else WARNING
    return Finding("restart-loop", severity, f"Started {len(alike)} times", detail, lines)


def _same_command(case: Case, places: list[int]) -> bool:
    """Whether the starts were asked for alike; arguments that no line states are taken to be."""
    told = [
        tuple(s.text("arguments") for s in case.startups[i].log.of("arguments", "changed_arguments")) for i in places
    ]  # fmt: skip
    return len({t for t in told if t}) <= 1


def _healthy(case: Case) -> Finding | None:
    """Give the last word, which examine() drops where anything above a note stands beside it."""
    if case.ledger.outcome != "ready":
        return None
    ready = tuple(s.line for s in case.ledger.log.statements if _is_up(s))[:1]
    return Finding(
        "healthy", NOTE, "The start is healthy", "The engine came up and nothing above a note was found.", ready
    )


RULES = (
    FindingRule(
        "restart-loop",
        (ERROR, WARNING),
        "How many starts, and the first cause.",
        "At least two starts of the same command, of which an earlier one failed. Not benchmark sheets or copies of one stream.",
        ("arguments", "changed_arguments"),
        _restart_loop,
    ),
    FindingRule(
        "died-after-start",
        (WARNING,),
        "The line, and that the start's memory is sound.",
        "The engine came up, then died of something that is not memory.",
        ("engine_died", "engine_failed", "error", "traceback"),
        _died_after_start,
    ),
    FindingRule(
        "cause-cut-off",
        (WARNING,),
        "What to pass.",
        "The start failed, and its traceback ends before the error.",
        ("traceback", "error"),
        _cause_cut_off,
    ),
    FindingRule(
        "slow-start",
        (NOTE,),
        "Which phase, and that it is no memory fault.",
        "Loading, profiling or capture took more than ten minutes.",
        ("weights", "graph_captured", "engine_initialised"),
        _slow_start,
        (SLOW,),
    ),
    FindingRule(
        "not-a-memory-failure",
        (NOTE,),
        "The line that stopped the start, its kind, and that the ledger is sound up to there.",
        "The start failed, its cause is in the log, and neither the cause nor anything beside it speaks of memory.",
        ("error", "traceback"),
        _not_memory,
    ),
    FindingRule(
        "unexplained-failure",
        (ERROR,),
        "The line that the start ended by.",
        "The start failed, and no other finding is an error or says that memory is not why.",
        ("error", "traceback", "engine_failed", "worker_failed"),
        _unexplained,
    ),
    FindingRule(
        "healthy",
        (NOTE,),
        "That nothing is wrong, in one line.",
        "The engine came up, and no warning or error was found.",
        ("server_started", "engine_initialised"),
        _healthy,
    ),
)
