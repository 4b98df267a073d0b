"""`findings`, `lines`, and the exit code of `explain --fail-on`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from kvforensics.app import app
from kvforensics.findings import RULES
from parsers.rules import RULES as SENTENCES
from tests.kvforensics.findings.starts import LOADING, READY

if TYPE_CHECKING:
    from pathlib import Path


def run(*arguments: str) -> tuple[int, str]:
    """Exit code and what was printed."""
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.output


def test_findings_lists_every_rule() -> None:
    code, text = run("findings")
    assert code == 0
    assert [line.split()[0] for line in text.splitlines()] == [rule.id for rule in RULES]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_finding_is_described_from_its_rule(rule: object) -> None:
    code, text = run("findings", rule.id)  # type: ignore[attr-defined]
    assert code == 0
    assert rule.holds in text  # type: ignore[attr-defined]
    assert all(threshold.source in text for threshold in rule.thresholds)  # type: ignore[attr-defined]


def test_an_unknown_finding_names_near_ones() -> None:
    code, text = run("findings", "oom-at-captur")
    assert code == 2
    assert "oom-at-capture" in text


def test_lines_lists_every_sentence_or_one_releases() -> None:
    """Fewer lines for one release, and none that it does not print."""
    _, everything = run("lines")
    code, some = run("lines", "--engine-version", "0.6.3")
    assert code == 0
    assert len(everything.splitlines()) == len(SENTENCES)
    assert "Available KV cache memory" in everything
    assert "Available KV cache memory" not in some
    assert "# GPU blocks" in some


def test_a_version_that_is_none_is_refused() -> None:
    assert run("lines", "--engine-version", "newest")[0] == 2


@pytest.mark.parametrize(
    ("log", "level", "code"), [(LOADING, "error", 1), (READY, "error", 0), (READY, "note", 1), (LOADING, "never", 0)]
)
def test_fail_on_decides_the_exit_code(tmp_path: Path, log: str, level: str, code: int) -> None:
    path = tmp_path / "server.log"
    path.write_text(log)
    assert run("explain", str(path), "--format", "json", "--fail-on", level)[0] == code


def test_fail_on_takes_only_severities(tmp_path: Path) -> None:
    assert run("explain", str(tmp_path / "x.log"), "--fail-on", "worse")[0] == 2
