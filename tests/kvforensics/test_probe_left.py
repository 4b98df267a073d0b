"""Reports from the folder of a probe that was killed itself."""

import json

import pytest

from kvforensics.errors import UsageFault
from kvforensics.probe_flags import Flags
from kvforensics.probe_left import ASKED_NAME, Asked, read_asked, records_left, write_asked
from kvforensics.probing import left
from live_probe.cards_here import CardHere, EngineHere
from live_probe.child_process import BY_USER, ENDING_NAME, UNSEEN
from live_probe.journal import Journal
from live_probe.measurement import DeviceProcess, Environment, Failure, Measurement, Snapshot, Unread

CARD = CardHere("NVIDIA H100 80GB HBM3", "550", "no", "no", 80 << 30, 0, (DeviceProcess(7, Unread("not told")),))
ASKED = Asked(
    "org/model", Flags(gpu_memory_utilization=0.8, tensor_parallel_size=2), "vllm", "cuda", ("a note",), None, "auto",
    share=False, here=EngineHere("0.33.0", (CARD, CARD)),
)  # fmt: skip


def left_by_vllm(folder, *endings):
    """A folder as a killed probe of two ranks leaves it, a run for each ending, the last one without."""
    folder.mkdir()
    write_asked(folder, ASKED)
    for run, ending in enumerate((*endings, None)):
        place = folder / f"run-{run}"
        for rank in range(2):
            journal = Journal(place / f"rank-{rank}.jsonl")
            journal.write(Environment("card", False, "vllm", "0.33.0", "2.13", "not read"))
            journal.write(Measurement("total_memory", 80 << 30))
            journal.write(Snapshot("load_model", "before", f"rank {rank}", 5, 10, 1, 2, 3, 0.1))
            if ending is not None or rank == 0:
                journal.write(Snapshot("load_model", "after", f"rank {rank}", 4, 10, 1, 2, 3, 0.2))
                journal.write(Measurement("model_memory", 7 + rank))
        if ending is not None:
            (place / ENDING_NAME).write_text(ending + "\n")


def test_what_was_asked_comes_back(tmp_path):
    """For both engines."""
    for asked in (ASKED, ASKED._replace(engine="torch", here=None, config={"layers": [1, {"a": None}]})):
        write_asked(tmp_path, asked)
        assert read_asked(tmp_path) == asked


def test_every_run_is_told_by_its_ending(tmp_path):
    """The ones that ended before are what they were; of the last each rank has its step, cards and flags are those asked."""
    left_by_vllm(tmp_path / "left", *[""] * 10, "the engine ended with exit code 1", BY_USER)
    report = left(tmp_path / "left")
    assert [startup.outcome for startup in report.startups] == ["ready"] * 10 + ["failed", "unfinished", "failed"]
    first, second = report.records[-2:]
    assert (first.failure.kind, first.failure.message, first.value("model_memory")) == ("EngineDied", UNSEEN, 7)
    assert (second.failure.step, second.failure.kind) == ("load_model", "killed")
    assert second.failure.message.endswith(UNSEEN)
    assert [record.run for record in report.records[-2:]] == [12, 12]
    assert (first.environment.driver, first.processes) == ("550", CARD.processes)
    assert report.startups[0].settings.get("tensor_parallel_size") == 2
    assert report.startups[0].settings.get("max_num_seqs") == 1024  # what a server takes on this card
    assert report.notes[0] == "a note"
    assert report.died
    assert not report.interrupted


def test_who_interrupted_before_the_first_step_refused_nothing(tmp_path):
    """It is a start that was not finished, no error."""
    left_by_vllm(tmp_path / "left")
    for path in (tmp_path / "left" / "run-0").iterdir():
        path.unlink()
    (tmp_path / "left" / "run-0" / ENDING_NAME).write_text(BY_USER + "\n")
    (startup,) = left(tmp_path / "left").startups
    assert startup.outcome == "unfinished"


def test_what_the_engine_refused_is_refused_again(tmp_path):
    """The journal names the kind."""
    left_by_vllm(tmp_path / "left")
    journal = Journal(tmp_path / "left" / "run-0" / "rank-0.jsonl")
    journal.write(Failure("start", "SharedDeviceError", "others hold it", 0, 0))
    with pytest.raises(UsageFault, match="others hold it"):
        left(tmp_path / "left")


def test_what_is_no_probes_folder_is_refused(tmp_path):
    """Each in one sentence: nothing there, no start begun, damaged files."""
    with pytest.raises(UsageFault, match="no folder of a probe"):
        left(tmp_path)
    left_by_vllm(tmp_path / "left")
    (tmp_path / "left" / "run-0").rename(tmp_path / "elsewhere")
    with pytest.raises(UsageFault, match="no journal"):
        left(tmp_path / "left")
    (tmp_path / "elsewhere").rename(tmp_path / "left" / "run-0")
    journal = tmp_path / "left" / "run-0" / "rank-0.jsonl"
    whole = journal.read_text()
    for damage in (
        "}\n",
        '{"kind": "snapshot", "value": {"x": 1}}\n',
        '{"kind": "y", "value": {}}\n',
        "[" * 9999 + "\n",
    ):
        journal.write_text(whole + damage)
        with pytest.raises(UsageFault, match="damaged"):
            records_left(tmp_path / "left", "vllm")
    asked = tmp_path / "left" / ASKED_NAME
    for damage in ("", "{}", "[]", json.dumps({**json.loads(asked.read_text()), "more": 1}), "[" * 9999):
        asked.write_text(damage)
        with pytest.raises(UsageFault, match="damaged"):
            left(tmp_path / "left")
