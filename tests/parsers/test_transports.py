"""A log says the same through every transport and every paste: the law over whole logs."""

from __future__ import annotations

import csv
import functools
import html
import io
import json
from pathlib import Path

import pytest

from parsers.log import read_log

LOGS = sorted((Path(__file__).parents[2] / "sample_logs").glob("*.log"))
STAMP = "2026-01-05T08:09:00.123456789Z"
DAY = "Jan 05 08:09:00"


def by_line(wrap):
    return lambda text: "".join(wrap(number, line) + "\n" for number, line in enumerate(text.splitlines()))


def pieces(number, line):
    half = min(number % 10, len(line))  # behind the prefix a cut may hide the words that a line is found by
    return f"{STAMP} stderr P {line[:half]}\n{STAMP} stderr F {line[half:]}" if half else f"{STAMP} stderr F {line}"


def as_json(**record):
    return by_line(lambda _, line: json.dumps({key: line if value == "@" else value for key, value in record.items()}))


def rows(header, *columns):
    def wrap(text):
        out = io.StringIO()
        writer = csv.writer(out)
        writer.writerow(header)
        for line in text.splitlines():
            writer.writerow([line if column == "@" else column for column in columns])
        return out.getvalue()

    return wrap


def listed(record, indent):
    return lambda text: json.dumps(
        [{key: line if value == "@" else value for key, value in record.items()} for line in text.splitlines()],
        indent=indent,
    )


def yaml(number, line):
    told = json.dumps(line) if number % 2 else "'" + line.replace("'", "''") + "'"
    return f"---\ninsertId: x{number}\ntextPayload: {told}\ntimestamp: '{STAMP}'"


def coloured_in_bytes(number, line):
    message = json.dumps(list(line.encode()), separators=(",", ":")) if number % 2 else json.dumps(line)
    return f'{{"_HOSTNAME":"gpu1","MESSAGE":{message}}}'


TRANSPORTS = {
    "kubectl --timestamps": by_line(lambda _, line: f"{STAMP} {line}"),
    "kubectl --prefix": by_line(lambda _, line: f"[pod/vllm-7d9f-abcde/vllm] {line}"),
    "CRI in pieces": by_line(pieces),
    "docker json-file": by_line(lambda _, line: json.dumps({"log": line + "\n", "stream": "stderr", "time": STAMP})),
    "compose": by_line(lambda _, line: f"vllm-1  | {line}"),
    "stern --timestamps": by_line(lambda _, line: f"vllm-7d9f-abcde vllm {STAMP} {line}"),
    "journald": by_line(lambda _, line: f"{DAY} host1 vllm[12]: {line}"),
    "journald, bytes of coloured lines": by_line(coloured_in_bytes),
    "journald, verbose": by_line(
        lambda _, line: f"Mon 2026-01-05 08:09:00 UTC [s=a;i=1]\n    _PID=12\n    MESSAGE={line}"
    ),
    "srun": by_line(lambda _, line: f"0: {line}"),
    "logfmt": by_line(lambda _, line: f'time="{STAMP}" level=info msg={json.dumps(line)}'),
    "a collector's record": as_json(ts=STAMP, level="info", message="@"),
    "logcli": by_line(lambda _, line: f"{STAMP} {{}} {line}"),
    "Loki as CSV": rows(
        ("Time", "labels", "Line", "tsNs"), "2026-01-05 08:09:00.123", '{"pod":"vllm-0"}', "@", "17360"
    ),
    "Loki through jq": lambda text: json.dumps({"values": [["1736", line] for line in text.splitlines()]}, indent=2),
    "Datadog as CSV": rows(("Date", "Host", "Service", "Message"), STAMP, "i-1", "vllm", "@"),
    "CloudWatch tail": by_line(lambda _, line: f"2026-01-05T08:09:00.123000+00:00 ecs/vllm/{'0a' * 16} {line}"),
    "CloudWatch as CSV": rows(("timestamp", "message"), "1736064540000", "@"),
    "CloudWatch as JSON": listed({"timestamp": 1736064540000, "message": "@"}, 4),
    "GCP as JSON": listed({"insertId": "x", "severity": "INFO", "textPayload": "@"}, 2),
    "GCP as YAML": by_line(yaml),
    "GCP's console": by_line(lambda _, line: f"INFO {STAMP} [resource.labels.containerName: vllm] {line}"),
    "supervisor": by_line(lambda _, line: f"2026-01-05 08:09:00,123 DEBG 'vllm' stderr output:\n{line}"),
    "ts": by_line(lambda _, line: f"{DAY} {line}"),
    "ts, seconds": by_line(lambda _, line: f"1736064540.123456 {line}"),
    "cat -n": by_line(lambda number, line: f"{number:6d}\t{line}"),
    "quoted": by_line(lambda _, line: f"> {line}"),
    "listed": by_line(lambda number, line: f"{'  ' if number % 9 else '- '}{line}"),
    "a page": lambda text: f"<pre><code>{html.escape(text)}</code></pre>",
    "a page's lines": by_line(lambda _, line: f'<span class="line">{html.escape(line)}</span><br>'),
    "a page's table": by_line(lambda n, line: f"<tr><td>{n}</td><td><code>{html.escape(line)}</code></td></tr>"),
    "no-break spaces": lambda text: text.replace(" ", "\xa0"),
    "typographic quotes": lambda text: text.replace("'", "\u2019"),
    "blanks at the end": by_line(lambda _, line: f"{line}  \t"),
    "carriage returns": lambda text: text.replace("\n", "\r\n"),
}


def told(printed):
    """Give a figure or word; of settings that end in a comma (0.6.4) nobody can tell where they end."""
    return printed.name, printed.text[:400] if printed.form == "rest" else printed.text


@functools.cache
def said(data):
    return [
        [(s.kind, [told(p) for p in s.fields], s.record.speaker.pid) for s in start.statements]
        for start in read_log(data).startups
    ]


@pytest.mark.parametrize("name", TRANSPORTS)
def test_a_log_says_the_same_through(name):
    wrap = TRANSPORTS[name]
    for path in LOGS:
        text = path.read_text()
        assert said(wrap(text).encode()) == said(text.encode()), path.name


def test_a_number_takes_no_digits_of_another_line():
    """A bar, a clock or a list below a figure is not its last digits."""
    line = "INFO 11-14 10:20:59 [config.py:9] Using max model len 8192\n"
    for following in ("100%|##########| 51/51", "12:01 it hangs", "2026-01-05 08:09:00,123 DEBG 'vllm' stderr output:"):
        (start,) = read_log((line + following).encode()).startups
        assert start.statements[0].text("max_model_len") == "8192"
