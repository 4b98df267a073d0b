"""How long a pass over a large log takes, against ripgrep with five of the same literals, and how much memory.

    python benchmarks/streaming.py [GIGABYTES] [--keep PATH]

Writes a log of request and throughput lines with a start-up every 300 MB, reads it once so that it is warm, then times both
in the same run. The budget is 12 times ripgrep's time and 150 MB.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent))

FIVE = (
    "Model loading took ",
    "Available KV cache memory: ",
    "GPU KV cache size: ",
    "tokens per request: ",
    "Free memory on device ",
)
WORDS = (
    "the tokens of a memory cache in block model and for attention is layer that request budget to with GPU kernel profile "
    "weights free graph size context which are long available reserved it on as by page swap pool device total be from"
).split()
STARTUP_EVERY = 300 << 20
PAGE = 16 << 20
"""Bytes of random lines that are written again and again: making them costs more than writing them."""

STARTUP = """\
(APIServer pid=1) INFO 07-25 14:46:05 [api_utils.py:273] non-default args: {'model_tag': 'org/model-7b', 'max_model_len': 8192}
(EngineCore pid=71) INFO 07-25 14:46:48 [core.py:116] Initializing a V1 LLM engine (v0.26.0) with config: model='org/model-7b'
(EngineCore pid=71) INFO 07-25 14:47:20 [gpu_model_runner.py:4879] Model loading took 14.99 GiB memory and 17.888750 seconds
(EngineCore pid=71) INFO 07-25 14:47:51 [gpu_worker.py:276] Available KV cache memory: 52.37 GiB
(EngineCore pid=71) INFO 07-25 14:47:51 [kv_cache_utils.py:849] GPU KV cache size: 428,992 tokens
(EngineCore pid=71) INFO 07-25 14:47:51 [kv_cache_utils.py:853] Maximum concurrency for 8,192 tokens per request: 52.37x
(EngineCore pid=71) INFO 07-25 14:48:22 [gpu_model_runner.py:6134] Graph capturing finished in 7 secs, took 0.64 GiB
(APIServer pid=1) INFO:     Application startup complete.
"""


class Timing(NamedTuple):
    """One way to pass over the file."""

    seconds: float
    found: int
    peak_mb: float = 0.0


def say(text: str) -> None:
    """Write one line of the result."""
    sys.stdout.write(text + "\n")


def line(number: int, draw: random.Random) -> str:
    """Write one line as a busy server does: half requests, the rest access and throughput lines."""
    kind = draw.random()
    if kind < 0.5:
        prompt = " ".join(draw.choices(WORDS, k=draw.randint(10, 120)))
        return (
            f"(APIServer pid=1) INFO 07-25 15:{number % 60:02d}:46 [logger.py:40] Received request "
            f"cmpl-{draw.getrandbits(64):016x}: prompt: '{prompt}', params: SamplingParams(n=1, temperature=0.7, "
            f"max_tokens={draw.randint(1, 999)}), prompt_token_ids: None, lora_request: None.\n"
        )
    if kind < 0.8:
        peer = f"10.0.0.{number % 255}:5{number % 9999:04d}"
        return f'(APIServer pid=1) INFO:     {peer} - "POST /v1/completions HTTP/1.1" 200 OK\n'
    return (
        f"(APIServer pid=1) INFO 07-25 15:{number % 60:02d}:56 [loggers.py:123] Engine 000: Avg prompt throughput: "
        f"{draw.uniform(0, 999):.1f} tokens/s, Avg generation throughput: {draw.uniform(0, 999):.1f} tokens/s, "
        f"Running: {number % 99} reqs, Waiting: 0 reqs, GPU KV cache usage: {draw.uniform(0, 99):.1f}%, "
        "Prefix cache hit rate: 12.0%\n"
    )


def write(path: Path, size: int) -> None:
    """Write the log."""
    draw = random.Random(1)  # noqa: S311 - the same file each time
    page: list[bytes] = []
    length = 0
    while length < PAGE:
        page.append(line(len(page), draw).encode())
        length += len(page[-1])
    body = b"".join(page)
    with path.open("wb") as file:
        written = next_startup = 0
        while written < size:
            if written >= next_startup:
                hour = f" {14 + next_startup // STARTUP_EVERY % 10}:"  # a launch of its own, not a copy of the first
                written += file.write(STARTUP.replace(" 14:", hour).encode())
                next_startup += STARTUP_EVERY
            written += file.write(body)


def passing(path: Path) -> Timing:
    """Pass over the file as the program does, up to the decoded candidate lines."""
    from parsers.candidates import clusters
    from parsers.marks import fading, fragments, words
    from parsers.source import open_source

    start = time.perf_counter()
    chunks = open_source(path).chunks()
    found = sum(line.hit for c in clusters(chunks, fragments(), fading=fading(), words=words()) for line in c.lines)
    return Timing(time.perf_counter() - start, found)


def explained(path: Path) -> Timing:
    """Run the command itself, as a user would."""
    command = [sys.executable, "-m", "kvforensics", "explain", str(path), "--format", "json"]
    start = time.perf_counter()
    run = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent.parent)  # noqa: S603 - ours
    answer = run.stdout.read() if run.stdout else ""
    _, _, used = os.wait4(
        run.pid, 0
    )  # its own peak: getrusage would give the largest child's, and ripgrep maps the file
    return Timing(time.perf_counter() - start, answer.count('"outcome"'), used.ru_maxrss / 1024)


def reference(path: Path) -> tuple[str, Timing]:
    """Time ripgrep, or grep where it is missing."""
    expressions = [argument for text in FIVE for argument in ("-e", text)]
    tool = shutil.which("rg")
    command = [tool, "-c", "-j1", "-F", *expressions] if tool else ["grep", "-c", "-F", *expressions]
    start = time.perf_counter()
    run = subprocess.run([*command, str(path)], capture_output=True, text=True, check=False)  # noqa: S603 - our own words
    return command[0], Timing(time.perf_counter() - start, int(run.stdout or 0))


def main() -> None:
    """Print the ratio and the peak memory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gigabytes", nargs="?", type=float, default=1.0)
    parser.add_argument("--keep", type=Path, help="write the log here and keep it")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.keep or Path(folder) / "server.log"
        if not path.exists():
            write(path, int(arguments.gigabytes * 1e9))
        reference(path)  # warms the page cache
        tool, theirs = min((reference(path) for _ in range(3)), key=lambda item: item[1].seconds)
        say(f"{path.stat().st_size / 1e9:.2f} GB; {tool}: {theirs.seconds:.2f} s, {theirs.found} lines")
        command = explained(path)
        for name, timing in (("search alone", passing(path)), ("kvforensics explain", command)):
            say(
                f"{name}: {timing.seconds:.2f} s, {timing.found} found, ratio {timing.seconds / theirs.seconds:.1f} (12 allowed)"
            )
    say(f"peak memory of the command: {command.peak_mb:.0f} MB (150 allowed)")


if __name__ == "__main__":
    main()
