"""Each finding on a log that shows it and on one that must not; what every rule must say of itself."""

from __future__ import annotations

import inspect

import pytest

from kvforensics.explanation import explain
from kvforensics.findings import RULES, Verdict
from kvforensics.findings.finding import SEVERITIES
from tests.kvforensics.findings.starts import PAIRS

SPECIFIED = """
request-does-not-fit no-kv-memory graphs-charged-to-kv graph-estimate-not-charged graphs-outside-budget graph-estimate-off
oom-at-load oom-at-profile oom-at-kv-allocation oom-at-kernel-warmup oom-at-capture oom-at-sampler-warmup oom-at-runtime
budget-exceeds-free-memory memory-held-by-others seqs-exceed-state-blocks uma-device tokens-are-not-capacity explicit-kv-memory
kv-suggestion-wrong blocks-overridden batched-tokens-eat-kv drafter-cost kv-dtype-no-gain kv-scales-missing block-inflated
padding-waste hybrid-manager-disabled ranks-differ auto-fit-reduced pool-below-max-len barely-fits encoder-profile-cost
cold-compile-inflates-peak free-memory-grew mm-ipc-reserved sleep-mode-accounting whole-gpu-by-design per-rank-not-total
unexplained-memory cpu-offload-active kv-offload-active host-memory lora-cost cpu-backend restart-loop died-after-start
cause-cut-off slow-start not-a-memory-failure unexplained-failure healthy
""".split()


def verdicts(log: str) -> tuple[Verdict, ...]:
    """What the rules say of each start-up of a log."""
    return explain(log.encode()).verdicts


def ids(log: str) -> set[str]:
    """Every finding of a log."""
    return {finding.id for verdict in verdicts(log) for finding in verdict.findings}


@pytest.mark.parametrize("identifier", [rule.id for rule in RULES])
def test_it_is_found_where_it_stands(identifier: str) -> None:
    """The positive log shows the finding, with evidence that lies in the log."""
    log = PAIRS[identifier].positive
    found = [f for v in verdicts(log) for f in v.findings if f.id == identifier]
    assert found
    assert all(1 <= line <= log.count("\n") + 1 for f in found for line in f.evidence)
    assert all(f.evidence == tuple(sorted(set(f.evidence))) and f.evidence for f in found)


@pytest.mark.parametrize("identifier", [rule.id for rule in RULES])
def test_it_is_not_found_where_it_does_not_hold(identifier: str) -> None:
    """The negative log, as near to the positive one as may be, does not."""
    assert identifier not in ids(PAIRS[identifier].negative)


def test_every_specified_finding_has_a_rule() -> None:
    assert sorted(rule.id for rule in RULES) == sorted(SPECIFIED)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_documents_itself(rule: object) -> None:
    """Severities from worst to best, sentences, facts, and thresholds that name their source and stand in the module."""
    assert rule.severities == tuple(s for s in SEVERITIES if s in rule.severities)  # type: ignore[attr-defined]
    assert rule.says.endswith(".")  # type: ignore[attr-defined]
    assert rule.holds.endswith(".")  # type: ignore[attr-defined]
    assert rule.needs  # type: ignore[attr-defined]
    assert set(rule.after) <= set(PAIRS)  # type: ignore[attr-defined]
    module = inspect.getmodule(rule.check)  # type: ignore[attr-defined]
    for threshold in rule.thresholds:  # type: ignore[attr-defined]
        assert getattr(module, threshold.name) is threshold
        assert len(threshold.source) > 20


def test_each_id_has_both_logs() -> None:
    assert set(PAIRS) == set(SPECIFIED)


def test_no_finding_advises_a_start_that_died_of_memory_to_take_more() -> None:
    """Graphs are charged by default, and that is worth a note; but not to take the charge back, nor a larger budget."""
    found = [
        f for v in verdicts(PAIRS["oom-at-capture"].positive) for f in v.findings if f.id == "graphs-charged-to-kv"
    ]
    assert [f.actions for f in found] == [()]
    healthy = [f for v in verdicts(PAIRS["graphs-charged-to-kv"].positive) for f in v.findings]
    assert next(f for f in healthy if f.id == "graphs-charged-to-kv").actions
