"""The process that `vllm_engine` starts: builds the engine and leaves. Run as `python -m live_probe.vllm_child JSON`."""

from __future__ import annotations

import json
import sys

from live_probe.child_process import end_with_parent

WORKER = "live_probe.vllm_worker.ProbeWorker"


def main(arguments: list[str]) -> None:
    """Start vLLM with the LLM arguments given as one JSON object; the workers journal the rest."""
    end_with_parent()
    from vllm import LLM

    LLM(**{"worker_cls": WORKER, **json.loads(arguments[0])})


if __name__ == "__main__":
    main(sys.argv[1:])
