"""vLLM's releases, and the range of them that a log's wording leaves open."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

RELEASES = tuple(
    """
    0.2.0 0.2.1.post1 0.2.2 0.2.3 0.2.4 0.2.5 0.2.6 0.2.7 0.3.0 0.3.1 0.3.2 0.3.3 0.4.0 0.4.0.post1 0.4.1 0.4.2
    0.4.3 0.5.0 0.5.0.post1 0.5.1 0.5.2 0.5.3 0.5.3.post1 0.5.4 0.5.5 0.6.0 0.6.1 0.6.1.post1 0.6.1.post2 0.6.2
    0.6.3 0.6.3.post1 0.6.4 0.6.4.post1 0.6.5 0.6.6 0.6.6.post1 0.7.0 0.7.1 0.7.2 0.7.3 0.8.0 0.8.1 0.8.2 0.8.3
    0.8.4 0.8.5 0.8.5.post1 0.9.0 0.9.0.1 0.9.1 0.9.2 0.10.0 0.10.1 0.10.1.1 0.10.2 0.11.0 0.11.1 0.11.2 0.12.0
    0.13.0 0.14.0 0.14.1 0.15.0 0.15.1 0.16.0 0.17.0 0.17.1 0.18.0 0.18.1 0.19.0 0.19.1 0.20.0 0.20.1 0.20.2 0.21.0
    0.22.0 0.22.1 0.23.0 0.24.0 0.25.0 0.25.1 0.26.0 0.27.0 0.27.1 0.28.0 0.29.0 0.30.0 0.31.0 0.32.0 0.33.0
    """.split()
)
"""Every release on the package index, oldest first."""

EXAMINED = tuple(
    """
    0.2.7 0.3.3 0.4.3 0.5.0 0.5.5 0.6.0 0.6.3 0.6.6.post1 0.7.3 0.8.0 0.8.4 0.8.5 0.9.0.1 0.9.1 0.9.2 0.10.0
    0.10.1.1 0.10.2 0.11.0 0.11.1 0.11.2 0.12.0 0.13.0 0.14.1 0.15.1 0.16.0 0.17.1 0.18.1 0.19.1 0.20.2 0.21.0
    0.22.1 0.23.0 0.24.0 0.25.1 0.26.0 0.27.1 0.28.0 0.29.0 0.30.0 0.31.0 0.32.0 0.33.0
    """.split()
)
"""The releases whose sources were searched for log lines; a wording's first and last are among these."""

NEWEST = len(RELEASES) - 1


def index(release: str) -> int:
    """Give the place of a release in RELEASES. Raises ValueError where it is none."""
    return RELEASES.index(release)


class Span(NamedTuple):
    """Consecutive releases, by place in RELEASES, both ends included."""

    low: int = 0
    high: int = NEWEST

    def meet(self, other: Span) -> Span | None:
        """Give the releases common to both, None where there are none."""
        low, high = max(self.low, other.low), min(self.high, other.high)
        return Span(low, high) if low <= high else None


@functools.cache
def wording_span(first: str, last: str) -> Span:
    """Give every release that may print a wording seen in the examined releases `first` to `last`.

    The change itself lies between examined neighbours, so the span reaches up to, but not into, both.
    """
    if first not in EXAMINED or last not in EXAMINED:
        return Span(index(first), index(last))
    before, after = EXAMINED.index(first) - 1, EXAMINED.index(last) + 1
    low = index(EXAMINED[before]) + 1 if before >= 0 else 0
    high = index(EXAMINED[after]) - 1 if after < len(EXAMINED) else NEWEST
    return Span(low, high)


class EngineVersion(NamedTuple):
    """What is known of the release that wrote a log."""

    stated: str | None
    span: Span
    note: str | None = None
    """Why the span is what it is, where the statement alone does not say."""

    @property
    def low(self) -> str:
        """The oldest release that may have written the log; the stated one where it is newer than all known."""
        return self.stated if self.stated and self._is_newer else RELEASES[self.span.low]

    @property
    def high(self) -> str:
        """The newest release that may have written the log."""
        return self.stated if self.stated and self._is_newer else RELEASES[self.span.high]

    @property
    def _is_newer(self) -> bool:
        return self.note == NEWER_THAN_KNOWN


NEWER_THAN_KNOWN = "newer than the newest release known here; read by the rules of the newest"


def _from_statement(stated: str) -> tuple[Span, str | None]:
    if stated in RELEASES:
        return Span(index(stated), index(stated)), None
    from packaging.version import InvalidVersion, Version  # most logs state a plain release

    try:
        version = Version(stated)
    except InvalidVersion:
        shown = "".join(c if c.isprintable() else "?" for c in stated[:60])
        return Span(), f"'{shown}' is no version number; the wording of the lines decides"
    known = [Version(r) for r in RELEASES]
    if version.is_devrelease or version.is_prerelease:
        if version.release < (0, 2):
            return Span(), "a development build without a number; the wording of the lines decides"
        base = max((i for i, v in enumerate(known) if v.release < version.release), default=0)
        return Span(base), "a development build: its number is a lower bound, the wording of the lines decides"
    public = Version(version.public)
    if public > known[-1]:
        return Span(NEWEST, NEWEST), NEWER_THAN_KNOWN
    place = max((i for i, v in enumerate(known) if v <= public), default=0)
    return Span(place, place), None if known[place] == public else f"read as {RELEASES[place]}"


def narrow(stated: str | None, wordings: Iterable[tuple[str, str]]) -> EngineVersion:
    """Give the releases that a stated version and the wordings of a log leave open.

    `wordings` are the (first, last) releases of every rule that matched. A plain release number stands; a development
    build's, or none, is narrowed by the wordings, as far as they agree with one another.
    """
    if stated is None:
        span: Span = Span()
        note: str | None = "the log states no version; narrowed by the wording of its lines"
    else:
        span, note = _from_statement(stated)
        if span.low == span.high:
            return EngineVersion(stated, span, note)
    worded = Span()
    for first, last in sorted(set(wordings), key=lambda w: index(w[1]) - index(w[0])):
        worded = worded.meet(wording_span(first, last)) or worded  # a fork may mix wordings: the narrowest win
    return EngineVersion(stated, span.meet(worded) or worded, note)
