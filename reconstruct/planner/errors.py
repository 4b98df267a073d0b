"""The ways in which a plan can fail to exist."""

from __future__ import annotations


class WouldNotStart(ValueError):
    """The engine itself refuses this start; the message says why and what would help."""


class Unsupported(ValueError):
    """The answer is not known here; the message names what is missing. Raised instead of a guess."""


class BadSetting(ValueError):
    """A launch setting or layer spec that is unknown or of the wrong type; the message names it."""
