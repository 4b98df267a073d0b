"""The shipped samples: what a report says of each is so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvforensics.explanation import explain

SAMPLES = sorted((Path(__file__).parent.parent / "sample_logs").glob("*.log"))


def truth_of(log):
    return json.loads(log.with_name(log.name.removesuffix(".log") + ".ledger.json").read_text())


@pytest.mark.parametrize("log", SAMPLES, ids=lambda log: log.name)
def test_start_ups_versions_and_outcomes_are_those_of_the_sample(log):
    report, truth = explain(str(log)), truth_of(log)
    assert [(s.version.stated, s.outcome) for s in report.startups if s.version.stated] == [
        (t["version"], t["outcome"])
        for t, s in zip(truth["startups"], report.startups, strict=True)
        if s.version.stated
    ]


@pytest.mark.parametrize("log", SAMPLES, ids=lambda log: log.name)
def test_every_capacity_figure_holds_the_exact_one(log):
    report, truth = explain(str(log)), truth_of(log)
    for startup, true_startup in zip(report.startups, truth["startups"], strict=True):
        for engine, true_engine in zip(startup.engines, true_startup["engines"], strict=False):
            exact = true_engine["capacity"]["quantities"]
            for name, quantity in engine.capacity.quantities.items():
                if name in exact:
                    value = exact[name]["low"] if isinstance(exact[name], dict) else exact[name]
                    assert quantity.interval.contains(value), (name, quantity, value)


@pytest.mark.parametrize("log", SAMPLES, ids=lambda log: log.name)
def test_no_sample_contradicts_itself(log):
    assert [c for s in explain(str(log)).startups for c in s.conflicts] == []
