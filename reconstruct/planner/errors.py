"""The ways in which a plan can fail to exist."""

from __future__ import annotations


class WouldNotStart(ValueError):  # noqa: N818 - named after what the engine does, as the public contract fixes it
    """The engine itself refuses this start; the message says why and what would help."""


class Unsupported(ValueError):  # noqa: N818 - the public contract fixes the name
    """The answer is not known here; the message names what is missing. Raised instead of a guess."""


class BadSetting(ValueError):  # noqa: N818 - reads as what it is at the raise site
    """A launch setting or layer spec that is unknown or of the wrong type; the message names it."""
