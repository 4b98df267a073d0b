"""Each wrapper is peeled, says what it knows, and nests in the others."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsers.envelope import peel, stretches
from parsers.paste import plain

STAMP = "2024-04-21T15:12:15.440123456Z"
LINE = "(EngineCore_0 pid=132) INFO 10-08 13:12:44 [core.py:9] GPU KV cache size: 6,654 tokens"
BARE = "INFO 10-08 13:12:44 [core.py:9] GPU KV cache size: 6,654 tokens"


def as_json(**fields):
    return lambda line: json.dumps({key: value.replace("@", line) for key, value in fields.items()})


def nested(line):
    return json.dumps({"textPayload": line, "resource": {"labels": {"pod_name": "p-1"}}})


def logfmt(line):
    return f'time="{STAMP}" level=info msg={json.dumps(line)} pod=p-2'


WRAPPERS = {
    "kubectl --timestamps": (lambda line: f"{STAMP} {line}", None),
    "kubectl --prefix": (lambda line: f"[pod/vllm-0/main] {line}", "vllm-0/main"),
    "cri": (lambda line: f"{STAMP} stdout F {line}", None),
    "docker json-file": (as_json(log="@\n", stream="stderr", time=STAMP), None),
    "fluent-bit": (as_json(log="@", stream="stdout", logtag="F", pod_name="p-3"), "p-3"),
    "compose": (lambda line: f"vllm-llm-1  | {line}", "vllm-llm-1"),
    "compose, coloured": (lambda line: f"\x1b[36mvllm_1    |\x1b[0m {line}", "vllm_1"),
    "journald": (lambda line: f"Dec 07 18:59:17 host1 bash[10337]: {line}", "host1"),
    "journald, one digit": (lambda line: f"Dec  7 18:59:17 host1 vllm[7]: {line}", "host1"),
    "journald, iso": (lambda line: f"2025-12-07T18:59:17+0000 host1 vllm[7]: {line}", "host1"),
    "journald, json": (as_json(MESSAGE="@", _HOSTNAME="host2"), "host2"),
    "syslog": (lambda line: f"<30>1 {STAMP} host3 vllm 12 - - {line}", "host3"),
    "srun": (lambda line: f"0: {line}", "0"),
    "srun, padded": (lambda line: f"  7: {line}", "7"),
    "pdsh": (lambda line: f"node4: {line}", "node4"),
    "logfmt": (logfmt, "p-2"),
    "cloud record": (nested, "p-1"),
    "loki": (lambda line: f'{{app="vllm", pod="vllm-1"}} {line}', "vllm-1"),
    "actions": (lambda line: f"job\tstart\t{STAMP} {line}", None),
    "bracketed time": (lambda line: f"[2024-04-21 15:12:15] {line}", None),
    "quote": (lambda line: f"> > {line}", None),
    "fence": (lambda line: f"```{line}", None),
    "grep -n": (lambda line: f"75:{line}", None),
    "grep -n, file": (lambda line: f"server.log:75:{line}", None),
    "torchrun": (lambda line: f"[default0]:{line}", None),
}
OUTSIDE = {
    key: WRAPPERS[key] for key in WRAPPERS if key not in {"fence", "grep -n, file", "actions", "bracketed time", "pdsh"}
}
AMBIGUOUS = {("grep -n", "srun, padded")}
"""`75:  7: ` reads as task 75 too."""


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_wrapper_comes_off_and_says_who(name):
    wrap, host = WRAPPERS[name]
    text, envelope = peel(wrap(LINE), peel("").envelope)
    if envelope.stream:
        text, envelope = peel(text, envelope._replace(stream=None))
    assert (text, envelope.name, envelope.pid, envelope.host) == (BARE, "EngineCore_0", 132, host)


@pytest.mark.parametrize(
    ("outer", "inner"), [pair for pair in itertools.permutations(OUTSIDE, 2) if pair not in AMBIGUOUS]
)
def test_wrappers_nest(outer, inner):
    """Two layers in any order; the hosts add up from the outside in."""
    wrapped = OUTSIDE[outer][0](OUTSIDE[inner][0](LINE))
    text, envelope = peel(wrapped)
    while envelope.stream:
        text, envelope = peel(text, envelope._replace(stream=None))
    hosts = [host for host in (OUTSIDE[outer][1], OUTSIDE[inner][1]) if host]
    assert (text, envelope.pid, envelope.host) == (BARE, 132, "/".join(hosts) or None)


def test_rays_address_tells_the_machine():
    line = f"0: (EngineCore_0 pid=132) (RayWorkerWrapper pid=206, ip=10.0.0.1) {BARE}"
    text, envelope = peel(line)
    assert (text, envelope.name, envelope.pid, envelope.host) == (BARE, "RayWorkerWrapper", 206, "10.0.0.1")


def test_ray_before_it_knows_the_name():
    assert peel("(pid=690, ip=10.0.0.3) text")[1][2:5] == (None, 690, "10.0.0.3")


ESCAPES = ["\x1b", "", "\ufffd", "\u241b", "^[", "\\x1b", "\\u001b", "\\033", "\\e", "#033"]


@pytest.mark.parametrize("escape", ESCAPES)
def test_colour_goes_with_and_without_its_escape_byte(escape):
    line = f"{escape}[1;36m(Worker_TP0 pid=7){escape}[0;0m {escape}[32mINFO{escape}[0m x[1] [10, 20]"
    assert plain(line) == "(Worker_TP0 pid=7) INFO x[1] [10, 20]"


def test_other_control_sequences_go_with_their_escape_byte_only():
    assert plain("\x1b[2K\x1b[1A\x1b]0;title\x07text [2K]") == "text [2K]"


def test_a_record_out_of_a_page_is_a_record():
    assert peel("{&quot;message&quot;: &quot;text&quot;}").text == "text"


def test_pasted_blanks():
    assert plain("\ufeffINFO\xa0x") == "INFO x"


def test_python_loggers_own_record_is_taken_as_it_stands():
    """vLLM 0.32 and later: nothing in the message is a wrapper, whatever it looks like."""
    record = {
        "asctime": "2026-11-29 22:05:06,938",
        "levelname": "INFO",
        "name": "vllm.v1",
        "processName": "VllmWorker-0",
        "process": 18073,
        "message": "0: (x pid=1) y",
        "vllm_process_name": "Worker",
    }
    text, envelope = peel(json.dumps(record))
    assert (text, envelope.name, envelope.pid) == ("0: (x pid=1) y", "Worker", 18073)
    assert envelope.logged == ("INFO", "2026-11-29 22:05:06,938", None, True)
    del record["vllm_process_name"]
    assert peel(json.dumps(record)).envelope.name == "VllmWorker-0"


def test_journald_prints_coloured_lines_as_numbers():
    record = json.dumps({"MESSAGE": list(f"\x1b[36m{LINE}\x1b[0m".encode())})
    assert peel(record).text == BARE


def test_a_record_cut_off_in_the_middle_still_gives_its_line():
    assert peel('{"time":"x","log":"' + LINE).text == BARE
    assert peel(f'    "message": "{LINE}",').text == BARE


@pytest.mark.parametrize(
    "line",
    [
        '{"prompt": "INFO 10-08 13:12:44 [core.py:9] x"}',
        "{'a': 1}",
        "[W1207 23:57:12.053 ProcessGroupNCCL.cpp:927] Warning",
        "world_size=2 rank=1 local_rank=1 distributed_init_method=tcp://x",
        "# GPU blocks: 3631, # CPU blocks: 512",
        "model.safetensors:   0%|          | 0.00/2.36G [00:00<?, ?B/s]",
        "    raise ValueError('x')",
        "INFO     | x",
    ],
)
def test_what_is_no_wrapper_stays(line):
    assert peel(line).text == line


def test_pieces_are_announced():
    first = peel(f"{STAMP} stdout P half a li")
    assert (first.text, first.envelope.stream, first.envelope.partial) == ("half a li", "stdout", True)
    long = "x" * 16384
    assert peel(json.dumps({"log": long, "stream": "stdout"})).envelope.partial
    assert not peel(json.dumps({"log": "short, newline dropped", "stream": "stdout"})).envelope.partial
    assert not peel(json.dumps({"log": long + "\n", "stream": "stdout"})).envelope.partial


def test_carriage_returns_part_a_line():
    line = f"{STAMP} stderr F (Worker pid=1) 50%|#\r100%|##\r\r(EngineCore pid=2) INFO x"
    text, envelope = peel(line)
    parts = list(stretches(peel(text, envelope._replace(stream=None))))
    assert [(p.text, p.envelope.pid) for p in parts] == [("50%|#", 1), ("100%|##", None), ("INFO x", 2)]


@given(st.text(max_size=200), st.sampled_from(sorted(WRAPPERS)))
def test_no_text_fails(text, name):
    for line in (text, WRAPPERS[name][0](text), "{" + text + "}", '{"' + text):
        assert not any(sign in part.text for part in stretches(peel(line)) for sign in "\r\n")


def test_hostile_nesting_is_bounded():
    assert peel('{"a":' * 100_000 + "}" * 100_000).text
    assert peel("> " * 100_000).text
