"""Every sentence the tool understands, grouped by what it is about."""

from __future__ import annotations

from parsers.rules import capacity, failure, graphs, memory, progress, settings

RULES = settings.RULES + memory.RULES + graphs.RULES + capacity.RULES + failure.RULES + progress.RULES
