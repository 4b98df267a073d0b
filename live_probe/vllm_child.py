"""The process that `vllm_engine` starts: builds the engine and leaves. Run as `python -m live_probe.vllm_child FILE`."""

from __future__ import annotations

import sys

from live_probe.child_process import asked_of_child, end_with_parent

WORKER = "live_probe.vllm_worker.ProbeWorker"


def main(arguments: list[str]) -> None:
    """Start vLLM with the LLM arguments that a file holds; the workers journal the rest."""
    end_with_parent()
    from vllm import LLM

    LLM(**{"worker_cls": WORKER, **asked_of_child(arguments)})


if __name__ == "__main__":
    main(sys.argv[1:])
