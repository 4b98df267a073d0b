"""The process that `vllm_engine` starts: builds the engine and leaves. Run as `python -m live_probe.vllm_child FILE`."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from live_probe.child_process import ENGINES, asked_of_child, end_with_parent

WORKER = "live_probe.vllm_worker.ProbeWorker"


def main(arguments: list[str]) -> None:
    """Start vLLM with the arguments that a file holds; the workers journal the rest."""
    end_with_parent()
    asked = {"worker_cls": WORKER, **asked_of_child(arguments)}
    if asked.get("data_parallel_size", 1) > 1:
        os.environ[ENGINES] = str(asked["data_parallel_size"])
        asyncio.run(_start_all(asked))
        return
    from vllm import LLM

    LLM(**asked)


async def _start_all(asked: dict[str, Any]) -> None:
    """Start data-parallel engines as the server does: LLM refuses more than one (0.18 on) or runs its part of them alone."""
    from vllm import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    AsyncLLM.from_engine_args(AsyncEngineArgs(**asked)).shutdown()


if __name__ == "__main__":
    main(sys.argv[1:])
