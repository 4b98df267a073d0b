"""The commands in this process and in one of their own, and an interpreter with a stand-in of torch and vLLM."""

import sys
import time
from pathlib import Path

from typer.testing import CliRunner

from kvforensics.app import whole_app

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "sample_logs" / "vllm-0.33.0-single.log"
STAND_IN_TORCH = """
class cuda:
    is_available = staticmethod(lambda: bool(CARDS))
    device_count = staticmethod(lambda: CARDS)
    init = staticmethod(lambda: None)
    set_device = staticmethod(lambda device: None)
    mem_get_info = staticmethod(lambda index: (80 << 30, 85028896768))
    memory_stats = staticmethod(lambda index: {})
    class get_device_properties:
        name, multi_processor_count = "NVIDIA H100 80GB HBM3", 132
        def __init__(self, index): pass
class device:
    def __init__(self, *names): pass
CARDS, __version__ = 0, "2.13"
"""
STAND_IN_VLLM = """
import json, os, subprocess, sys, time
from pathlib import Path
from live_probe.journal import Journal
from live_probe.measurement import Environment, Measurement, Snapshot

class LLM:
    def __init__(self, worker_cls, model, load_format, skip_tokenizer_init, **flags):
        folder = Path(os.environ["KVFORENSICS_PROBE_DIR"])
        (folder / "asked").write_text(json.dumps({"model": model, **flags}))
        for rank in range(flags.get("tensor_parallel_size", 1)):
            journal = Journal(folder / f"rank-{rank}.jsonl")
            journal.write(Environment("card", False, "vllm", "0.33.0", "2.13", "550"))
            journal.write(Snapshot("load_model", "before", f"rank {rank}", 5 << 30, 10 << 30, 1, 2, 3, 0.1))
            journal.write(Snapshot("load_model", "after", f"rank {rank}", 4 << 30, 10 << 30, 1, 2, 3, 0.2))
            journal.write(Measurement("model_memory", 7 + rank))
        if flags.get("quantization") == "hangs":
            worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
            (folder / "worker.pid").write_text(str(worker.pid))
            time.sleep(60)
        if flags.get("quantization") == "fails":
            raise SystemExit(1)
"""


def run(*arguments):
    """Exit code, stdout and stderr."""
    result = CliRunner().invoke(whole_app(), [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def command(*arguments):
    return [sys.executable, "-m", "kvforensics", *(str(argument) for argument in arguments)]


def alive(pid):
    """Whether a process is there and not only waiting to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(pid):
    """Whether a process ends within a few seconds."""
    deadline = time.monotonic() + 8
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not alive(pid)
