"""Compare what is found in a folder of real logs with what a reader of them expects.

    python -m tests.kvforensics.findings.check_expected FOLDER

FOLDER holds the logs under the names of `expected_ids.jsonl`, with `.log` or `.log.gz`. The table was written by reading the
logs. `pending` names ids that hold by reading but rest on lines that no parser rule takes yet. The exit code is 1 where
anything else differs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from kvforensics.explanation import NothingToExplain, explain

TABLE = Path(__file__).with_name("expected_ids.jsonl")


def compared(row: dict[str, Any], log: Path) -> list[str]:
    """Give one sentence for every start-up of a log whose findings differ from the expected ones."""
    try:
        verdicts = explain(str(log)).verdicts
    except NothingToExplain as error:
        return [str(error)]
    found = [{f.id for f in v.findings} for v in verdicts]
    wanted = [set(ids) for ids in row["startups"]]
    if len(found) != len(wanted):
        return [f"{len(found)} start-ups, expected {len(wanted)}"]
    pending = set(row.get("pending", ()))
    pairs = enumerate(zip(wanted, found, strict=True), start=1)
    return [
        f"start-up {i}: missing {sorted(want - have - pending)}, beyond {sorted(have - want)}"
        for i, (want, have) in pairs
        if want - have - pending or have - want
    ]


def main(folder: Path) -> int:
    """Print every difference and the score; give the exit code."""
    rows = [json.loads(line) for line in TABLE.read_text(encoding="utf-8").splitlines()]
    seen = bad = 0
    for row in rows:
        log = next((p for suffix in (".log", ".log.gz") if (p := folder / (row["log"] + suffix)).exists()), None)
        if log is None:
            continue
        seen += 1
        differences = compared(row, log)
        bad += bool(differences)
        for said in differences:
            sys.stdout.write(f"{row['log']}: {said}\n")
    sys.stdout.write(f"{seen - bad} of {seen} logs as expected ({len(rows)} in the table)\n")
    return int(bad > 0 or seen == 0)


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
