"""How long `kvforensics explain` takes on a log, against importing what any such program must import.

    python benchmarks/startup.py [LOG] [--best-of N]

Prints the ratio of the two wall times, each the best of N, and whether pandas or torch came along. The budget is 2.5.
"""

from __future__ import annotations

import argparse
import compileall
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("parsers", "reconstruct", "live_probe", "kvforensics")
HEAVY = ("pandas", "torch", "numpy")
BASE = "import typer, rich"
EXPLAIN = "from kvforensics.cli import main; main()"
"""What the installed script runs."""

AND_LIST = f"""
import atexit, sys
atexit.register(lambda: print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr))
{EXPLAIN}
"""


def run(code: str, arguments: list[str]) -> tuple[float, str]:
    """Run Python code in a fresh interpreter; give seconds and what it wrote to stderr. Ends here where it fails."""
    start = time.perf_counter()
    done = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - start
    if done.returncode:
        sys.exit(f"{code!r} failed: {done.stderr.strip()}")
    return seconds, done.stderr.strip()


def main() -> None:
    """Print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", nargs="?", type=Path, help="default: the largest of sample_logs")
    parser.add_argument("--best-of", type=int, default=7)
    chosen = parser.parse_args()
    log = chosen.log or max((ROOT / "sample_logs").rglob("*.log"), key=lambda path: path.stat().st_size, default=None)
    if log is None:
        parser.error("sample_logs holds no log yet; pass one")
    # An installer compiles what it installs, typer and rich among it; a checkout may not have been.
    for package in PACKAGES:
        compileall.compile_dir(ROOT / package, quiet=1)
    arguments = ["explain", str(log.resolve())]
    # In turns, so that a busy machine slows both.
    times = [(run(BASE, [])[0], run(EXPLAIN, arguments)[0]) for _ in range(chosen.best_of)]
    base, ours = min(t for t, _ in times), min(t for _, t in times)
    heavy = run(AND_LIST, arguments)[1].splitlines()
    lines = log.read_bytes().count(b"\n")
    sys.stdout.write(
        f"{BASE}: {base:.3f} s; explain {log.name} ({lines} lines): {ours:.3f} s; ratio {ours / base:.2f}\n"
    )
    sys.stdout.write(f"imported of {', '.join(HEAVY)}: {heavy[-1] if heavy else 'nothing was run'}\n")


if __name__ == "__main__":
    main()
