"""How a start ended."""

from __future__ import annotations

import pytest

from kvforensics.explanation import explain

UP = (
    "(EngineCore_DP0 pid=7) INFO 04-21 07:00:00 [gpu_worker.py:9] Available KV cache memory: 53.11 GiB\n"
    "(EngineCore_DP0 pid=7) INFO 04-21 07:00:09 [gpu_model_runner.py:9] Graph capturing finished in 3 secs, took 0.62 GiB\n"
)
DIED = (
    "({name} pid=7) Traceback (most recent call last):\n"
    "({name} pid=7) RuntimeError: DataLoader worker is killed by signal: Killed.\n"
)


@pytest.mark.parametrize(
    ("name", "outcome"), [("TaskRunner", "unfinished"), ("EngineCore_DP0", "failed"), ("Worker_TP1", "failed")]
)
def test_a_trainers_end_is_no_failed_start_of_its_engine(name, outcome):
    assert explain((UP + DIED.format(name=name)).encode()).startups[0].outcome == outcome


def test_before_its_engine_is_up_an_actors_error_ends_the_start():
    assert (
        explain((UP.splitlines()[0] + "\n" + DIED.format(name="ServeReplica")).encode()).startups[0].outcome == "failed"
    )


def test_an_exception_without_a_message_is_a_cause():
    said = "(EngineCore_DP0 pid=7) ERROR 04-21 07:00:10 [core.py:9] "
    padding = "\n".join(f"{said}    frame {n}" for n in range(20))
    report = explain(f"{UP}{said}Traceback (most recent call last):\n{padding}\n{said}AssertionError\n".encode())
    assert ["AssertionError" in f.detail for f in report.verdicts[0].findings if f.id == "not-a-memory-failure"] == [
        True
    ]
