"""The ledger as a pandas frame; the one place that imports pandas."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from kvforensics.explanation import Report

COLUMNS = ("startup", "dp", "rank", "quantity", "low", "high", "unit", "origin", "lines")


def to_frame(report: Report) -> pd.DataFrame:
    """Give one row for each quantity; `rank` is None for an engine's own. Ends stay exact: the columns hold objects."""
    rows = [
        (i, engine.dp, rank, q.name, q.interval.low, q.interval.high, q.unit, q.origin, q.lines)
        for i, startup in enumerate(report.startups)
        for engine in startup.engines
        for rank, account in [*((r.name, r.account) for r in engine.ranks), (None, engine.capacity)]
        for q in account.quantities.values()
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS), dtype=object)
