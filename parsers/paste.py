"""What terminals, browsers and word processors leave in a text: colours, markup, blanks and quotes that are none."""

from __future__ import annotations

import functools
import re

_ESCAPE = r"(?:\x1b|\x9b|\ufffd|\u241b|\^\[|\\x1[bB]|\\u001[bB]|\\033|\\e|#033)"
_TAG = "a|b|br|code|div|em|font|i|li|p|pre|span|strong|t[dhr]"

PATTERNS = {
    # With its escape byte, or what a viewer made of it, any control sequence; without, only colours are beyond doubt.
    "colour": rf"{_ESCAPE}\[[0-9;?]{{0,20}}[A-Za-z]|{_ESCAPE}[\]_P][^\x07\x1b]{{0,200}}(?:\x07|\x1b\\)"
    r"|\[\d{1,3}(?:;\d{1,3}){0,4}m|\x1b(?=\s|$)",
    "tag": rf"<(/?)({_TAG})(?:\s[^<>]{{0,300}})?/?>",
    "entity": r"&(?:amp|lt|gt|quot|apos|nbsp|#\d{2,5}|#x[0-9a-fA-F]{2,4});",
}

_BLANKS_AND_QUOTES = str.maketrans(
    {"\xa0": " ", "\u202f": " ", "\ufeff": "", "\u200b": "", "\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"'}
)


@functools.cache
def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(PATTERNS[name])


def plain(text: str) -> str:
    """Drop terminal control sequences, with or without their escape byte, HTML, and what pasting adds unseen."""
    if "[" in text or "\x1b" in text:
        text = _pattern("colour").sub("", text)
    if ("<" in text and ">" in text) or "&" in text:
        text = _less_markup(text)
    return text if text.isascii() else text.translate(_BLANKS_AND_QUOTES)


def _less_markup(text: str) -> str:
    """Drop the tags that a page puts around log lines, and undo its entities; a table's cells stay apart."""
    import html

    text = _pattern("tag").sub(lambda tag: "\t" if tag[2] in {"td", "th"} and tag[1] else "", text)
    return _pattern("entity").sub(lambda entity: html.unescape(entity[0]), text)


def is_marked(text: str) -> bool:
    """Whether `plain` may have something to do, colours without their escape byte apart."""
    return "\x1b" in text or "</" in text or "<br" in text or ("&" in text and ";" in text) or not text.isascii()
