"""What leaves with a report: foreign text freed of control characters and, unless asked otherwise, of who and where.

Reports are pasted into tickets; names of people and machines, addresses and keys are not what they are about.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from parsers.record import Record
    from reconstruct.ledger import StartUpLedger

MASK = "***"
SHORT = 160
"""Characters of a quoted line."""

_KEY = (
    r"(?:api[_-]?key|access[_-]?key(?:[_-]?id)?|auth[_-]?token|token|secret|passwd|password|authorization|credentials?)"
)
_KEY_MARKS = ("key", "token", "secret", "passw", "authorization", "credential")
_LOCAL_NAMES = (".internal", ".local", ".lan", ".corp", ".intra", ".amazonaws", ".svc")
_VALUE = r"(?:\[[^\]]*\]?|\"[^\"]*\"?|'[^']*'?|[^\s,;\"'(){}\[\]]+)"
_PUBLIC = r"(?:localhost|127\.0\.0\.1|0\.0\.0\.0|huggingface\.co|github\.com|pytorch\.org|docs\.vllm\.ai)(?![\w.-])"


class _Rule(NamedTuple):
    marks: tuple[str, ...]
    """In small letters; the pattern is compiled only for a text that holds one."""
    pattern: str
    replacement: str = MASK
    machine: bool = False
    """Whether it masks a machine's name or address: these can be told apart by other names."""


_RULES = (
    # Keys before hosts and paths: a key may hold anything.
    _Rule(("bearer", "basic"), r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{6,}", r"\1 ***"),
    _Rule(_KEY_MARKS, rf"(?i)(?<![\w-])([\w-]*{_KEY}[\"']?\s*[:=]\s*)(?!(?:none|null|true|false|\d+)\b)"
          rf"(?![\"']?(?:bearer|basic) \*){_VALUE}", r"\1***"),
    _Rule(_KEY_MARKS, rf"(?i)(?<![\w-])(--[\w-]*{_KEY}\s+)[^\s\"']+", r"\1***"),
    _Rule(("hf_", "api_org", "gh", "glpat", "xox", "sk", "pk", "rk", "nvapi", "pypi"),
          r"\b(?:hf|api_org|gh[opsur]|github_pat|glpat|xox[abprs]|sk|pk|rk|nvapi|pypi)[_-][\w-]{10,}"),
    _Rule(("akia", "asia"), r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    _Rule(("eyj",), r"\beyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]*)?"),
    _Rule(("@",), r"(\w://)[^\s/@]+@", r"\1***@"),
    _Rule(("@",), r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+"),
    # People.
    _Rule(("/home/", "/users/"), r"(/(?:home|Users)/)[^/\s\"',:;)\]]+", r"\1***"),
    _Rule((":\\", ":/"), r"(?i)(\b[a-z]:(?:\\+|/)(?:Users|Documents and Settings)(?:\\+|/))"
          r"(?:[^\\/\n\"']+(?=[\\/])|[^\\/\s\"',;)]+)", r"\1***"),
    # Machines.
    _Rule(("://",), rf"(?i)\b((?:https?|tcp|grpc|wss?|s3|redis|ipc)://)(?!{_PUBLIC})(?!\*)(?:\[[^\]]*\]|[\w.-]+)",
          r"\1***", machine=True),
    _Rule(("host", "master_addr", "node", "address", "server"),
          r"(?i)\b((?:host(?:[_ ]?name)?|master_addr|node(?:_?name)?|data_parallel_address|server)[\"']?\s*[=:]\s*[\"']?)"
          rf"(?!(?:none|null|\d+\b)|{_PUBLIC})[a-z0-9][\w.-]*", r"\1***", machine=True),
    _Rule(("ip-",), r"\bip-\d+-\d+-\d+-\d+[\w.-]*", machine=True),
    _Rule(_LOCAL_NAMES, r"(?i)\b[a-z0-9](?:[\w-]*[a-z0-9])?(?:\.[\w-]+)*"
          r"\.(?:internal|local|lan|corp|intra(?:net)?|amazonaws\.com|svc)\b", machine=True),
    _Rule((".",), r"(?<![\w.])(?!127\.0\.0\.1(?![\w.]))(?!0\.)(?:\d{1,3}\.){3}\d{1,3}(?![\w]|\.\d)", machine=True),
    _Rule((":",), r"(?<![\w:.])(?:[0-9a-fA-F]{1,4}:){4,7}[0-9a-fA-F]{1,4}(?![\w:])", machine=True),
    _Rule(("::",), r"(?<![\w:.])(?:[0-9a-fA-F]{1,4}:){1,6}(?::[0-9a-fA-F]{1,4}){1,6}(?![\w:])", machine=True),
)  # fmt: skip


_REST = re.compile(r"^\s*(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[\w-]{6,}(?=[\s'\",;)}\]]|$)")
"""What may be the rest of a key: a line's first word of letters and digits."""


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def redact(text: str, machine: Callable[[str], str] | None = None, *, same_length: bool = False) -> str:
    """Mask user names in paths, addresses, host names, mail addresses, keys and tokens.

    What says nothing about anyone stays: loopback addresses, public hubs, paths outside home folders, version numbers of
    up to three parts and those that begin with 0, as no machine's address does. `machine` gives machines other names,
    where a reader must still tell them apart. With `same_length` every mask is as long as what it hides, so that what
    follows stands where it stood.
    """
    small = text.lower()
    for rule in _RULES:
        for mark in rule.marks:  # not any(): a generator for each rule takes longer than all patterns
            if mark in small:
                by: str | Callable[[re.Match[str]], str] = rule.replacement
                if machine and rule.machine:
                    by = _renaming(machine)
                elif same_length:
                    by = _as_long(rule.replacement)
                text, changes = _compiled(rule.pattern).subn(by, text)
                small = text.lower() if changes else small
                break
    return text


def _renaming(machine: Callable[[str], str]) -> Callable[[re.Match[str]], str]:
    """Give what stands for a match: its first group as it is, the rest by its new name."""

    def renamed(found: re.Match[str]) -> str:
        kept = found[1] if found.re.groups else ""
        return kept + machine(found[0][len(kept) :])

    return renamed


def _as_long(replacement: str) -> Callable[[re.Match[str]], str]:
    """Give what stands for a match, its mask drawn out to the match's length, or cut to it."""

    def masked(found: re.Match[str]) -> str:
        short = found.expand(replacement)
        return short.replace(MASK, MASK[:1] * (len(MASK) + len(found[0]) - len(short)), 1)

    return masked


def clean(text: str) -> str:
    """Put a space or `?` for every character that no reader can see: controls, escapes, bidi marks, lone surrogates."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c.isspace() else "?" for c in text)


def quoted(text: str, *, mask: bool, most: int = SHORT) -> str:
    """Give foreign text as a report may show it: cleaned, masked if asked, cut at `most` characters."""
    text = " ".join(clean(text).split())
    if mask:
        text = redact(text)
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def quoted_line(record: Record, *, mask: bool, most: int = SHORT) -> str:
    """Give a log line as `quoted` does."""
    return quoted(without_rest(record) if mask else record.text, mask=mask, most=most)


def without_rest(record: Record) -> str:
    """Give a log line's text; where it may go on from the line above, so may a key that began there, and that is masked."""
    return record.text if record.prefixed else _REST.sub(MASK, record.text)


def machines(startup: StartUpLedger, *, mask: bool) -> dict[str, str]:
    """Give what each machine of a start-up is called: by number where names are masked."""
    names = dict.fromkeys(rank.node for engine in startup.engines for rank in engine.ranks if rank.node)
    return {name: f"node {i}" if mask else quoted(name, mask=False) for i, name in enumerate(names, start=1)}
