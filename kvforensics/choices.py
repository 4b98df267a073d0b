"""What the words behind options mean, where typer's own types do not tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvforensics.errors import UsageFault
from parsers.template import whole_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconstruct.facts import Given


def check_choice(option: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise UsageFault for a value that is none of the choices."""
    if value not in choices:
        raise UsageFault(f"{option} {value}: choose one of {', '.join(choices)}")


def chosen_startup(text: str, words: tuple[str, ...] = ("last",)) -> str | int:
    """Read --startup: one of `words`, or a number from 1. Raises UsageFault."""
    if text in words:
        return text
    number = whole_number(text)
    if number is not None and number > 0:
        return number
    raise UsageFault(f"--startup {text[:40]}: write {', '.join(words)} or a number from 1")


def size_in_bytes(text: str | None) -> int | None:
    """Read a size that is set, not measured: the least that its text may mean. Raises UsageFault."""
    if text is None:
        return None
    from kvforensics.given import size

    if text.lstrip().startswith("-"):
        raise UsageFault(f"{text[:40]}: a size is no less than nothing; write bytes (85028896768) or a unit (79.19GiB)")
    return max(0, int(size(text).low or 0))


def facts_given(gpu: str | None, total: str | None, sets: Sequence[str] | None) -> tuple[Given, ...]:
    """Read what the user adds to a log. Raises UsageFault."""
    if gpu is None and total is None and not sets:
        return ()
    from kvforensics import given

    facts = [given.setting(text) for text in sets or ()]
    facts += [given.total_memory(total)] if total is not None else []
    facts += [given.gpu(gpu)] if gpu is not None else []
    return tuple(facts)
