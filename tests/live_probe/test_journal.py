"""Journals on disk: nothing lost, and a killed start told from a finished one."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from live_probe.journal import Journal, JournalError, ProcessList, read_journal
from live_probe.measurement import DeviceProcess, Environment, Failure, Measurement, NotMeasured, Snapshot, Unread

HERE = Environment("card", False, "vllm", "0.33.0", "2.13", "550", ("pid 1",))


def snapshot(step, when, free=5):
    return Snapshot(step, when, "rank 1", free, 10, 1, 2, 3, 0.5)


def written(path, *entries):
    journal = Journal(path)
    for entry in entries:
        journal.write(entry)
    return path


def test_a_start_comes_back_as_it_was_written(tmp_path):
    """Every type of entry; the later of two figures counts, and a figure ends its absence."""
    path = written(
        tmp_path / "deep" / "rank-1.jsonl",
        HERE,
        snapshot("load_model", "before"),
        NotMeasured("model_memory", "not yet"),
        NotMeasured("total_consumed", "never"),
        NotMeasured("total_consumed", "not profiled"),
        Measurement("model_memory", 7),
        Measurement("model_memory", 8, "B", "a - b", ("load_model",)),
        snapshot("load_model", "after"),
    )
    record = read_journal(path, run=2)
    assert (record.rank, record.run, record.environment, record.outcome) == ("rank 1", 2, HERE, "ready")
    assert record.measurements == (Measurement("model_memory", 8, "B", "a - b", ("load_model",)),)
    assert record.missing == (NotMeasured("total_consumed", "not profiled"),)
    assert [s.when for s in record.snapshots] == ["before", "after"]
    assert isinstance(record.processes, Unread)
    assert record.value("model_memory") == 8
    with pytest.raises(KeyError):
        record.value("total_consumed")


def test_a_step_without_an_end_was_killed(tmp_path):
    """The innermost one, with what was free when it began."""
    path = written(
        tmp_path / "a.jsonl",
        HERE,
        snapshot("load_model", "before"),
        snapshot("load_model", "after"),
        snapshot("determine_available_memory", "before"),
        snapshot("profile_run", "before", free=4),
    )
    failure = read_journal(path).failure
    assert failure == Failure("profile_run", "killed", "the process ended inside this step", 4, 10)
    assert read_journal(path).outcome == "failed"


def test_a_failure_that_was_noted_stands(tmp_path):
    """The first one: an outer step only passes it on."""
    failure = Failure("profile_run", "OutOfMemoryError", "no room", 1, 10)
    path = written(tmp_path / "a.jsonl", HERE, snapshot("profile_run", "before"), failure, Failure("x", "y", "z", 0, 0))
    assert read_journal(path).failure == failure


def test_half_a_last_line_is_left_out(tmp_path):
    """The death of a process can cut what it was writing."""
    path = written(tmp_path / "a.jsonl", HERE, Measurement("model_memory", 7))
    path.write_text(path.read_text() + '{"kind": "meas')
    assert read_journal(path).value("model_memory") == 7


def test_what_is_no_journal_is_refused(tmp_path):
    """Nothing stated, nothing known."""
    path = written(tmp_path / "a.jsonl", Measurement("model_memory", 7))
    with pytest.raises(JournalError, match="environment"):
        read_journal(path)


def test_lines_are_json_objects_with_whole_bytes(tmp_path):
    """Readable without this package."""
    path = written(tmp_path / "a.jsonl", HERE, Measurement("model_memory", (1 << 53) + 1))
    assert json.loads(path.read_text().splitlines()[1])["value"]["value"] == (1 << 53) + 1


@given(st.text(), st.integers(-(1 << 60), 1 << 60))
def test_any_text_and_number_survive(tmp_path_factory, text, number):
    """Messages of engines hold anything."""
    path = tmp_path_factory.mktemp("journal") / "a.jsonl"
    written(path, HERE, Measurement("m", number), Failure("s", "k", text, number, 0))
    record = read_journal(path)
    assert (record.value("m"), record.failure.message) == (number, text)


@pytest.mark.parametrize(
    "listed", [(), (DeviceProcess(7, 5), DeviceProcess(8, Unread("hidden"))), Unread("NVML is not readable")]
)
def test_processes_come_back_as_they_were(tmp_path, listed):
    """Sizes, sizes that the driver hides, and a list that could not be read."""
    journal = Journal(tmp_path / "rank-0.jsonl")
    journal.write(HERE)
    journal.write(ProcessList(listed))
    assert read_journal(tmp_path / "rank-0.jsonl").processes == listed


@pytest.mark.parametrize(
    ("name", "rank"),
    [("rank-0", "rank 0"), ("rank-12-4711", "rank 12"), ("dp-3-rank-1-4711", "dp 3 rank 1"), ("other", "other")],
)
def test_a_journal_without_a_snapshot_is_known_by_its_name(tmp_path, name, rank):
    """The worker writes its environment before it has chosen a device."""
    Journal(tmp_path / f"{name}.jsonl").write(Environment("card", False, "vllm", "0.33.0", "2.13", "550"))
    assert read_journal(tmp_path / f"{name}.jsonl").rank == rank
