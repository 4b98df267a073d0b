"""Every sentence the tool understands, grouped by what it is about."""

from __future__ import annotations

from parsers.rules import capacity, failure, graphs, host, memory, out_of_memory, progress, settings

RULES = (
    settings.RULES
    + memory.RULES
    + graphs.RULES
    + capacity.RULES
    + failure.RULES
    + out_of_memory.RULES
    + host.RULES
    + progress.RULES
)
