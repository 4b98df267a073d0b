"""The engine's prefix of every era becomes a record; everything else says that it has none."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsers.candidates import PhysicalLine
from parsers.prefix import records
from parsers.record import Record, Speaker
from tests.parsers.test_envelope import ESCAPES, WRAPPERS


def read(*lines):
    return records([PhysicalLine(number, line) for number, line in enumerate(lines, 1)])


def one(line):
    (record,) = read(line)
    return record


LOCATIONS = {"0.2": "worker.py:267]", "0.8": "[worker.py:267]", "debug": "[v1/worker/gpu_worker.py:455]"}
PROCESSES = [
    ("", None, None),
    ("(VllmWorkerProcess pid=233) ", "VllmWorkerProcess", 233),
    ("(VllmWorker rank=1 pid=46) ", "VllmWorker rank=1", 46),
    ("(VllmWorker PP0_TP1 pid=46) ", "VllmWorker PP0_TP1", 46),
    ("(Worker_DP0_PP1_TP3_EP3 pid=1234567) ", "Worker_DP0_PP1_TP3_EP3", 1234567),
    ("(EngineCore_DP0 pid=9) ", "EngineCore_DP0", 9),
    ("(RayWorkerWrapper pid=314) ", "RayWorkerWrapper", 314),
    ("(EngineCore_0 pid=1) (RayWorkerWrapper pid=314) ", "RayWorkerWrapper", 314),
    ("(vLLMHttpServer pid=5) (Worker pid=6) ", "Worker", 6),
]


def cyan(process):
    return f"\x1b[1;36m{process.strip()}\x1b[0;0m " if process else ""


COLOURS = [
    lambda process, level, time, where: f"{process}{level} {time} {where} ",
    lambda process, level, time, where: f"{cyan(process)}{level} {time} {where} ",
    lambda process, level, time, where: (
        f"{cyan(process)}\x1b[32m{level}\x1b[0m \x1b[90m{time}\x1b[0m \x1b[90m{where}\x1b[0m "
    ),
]
TAGS = ["", "[node3] ", "my-service: ", "prod>"]
MESSAGES = st.one_of(
    st.sampled_from(
        [
            "Available KV cache memory: 74.05 GiB",
            "# GPU blocks: 3631, # CPU blocks: 512",
            "Using {'a': [1, 2]} \"quoted\" \\ and \\n",
            "         █     █  version 0.22.0",
        ]
    ),
    st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S"]), min_size=1, max_size=40).filter(
        lambda text: not any(sign in text for sign in ("\ufffd", "\u241b", "[", "^", "\\", "#", "%"))
    ),
)


@given(
    st.sampled_from(["none", *sorted(WRAPPERS)]),
    st.sampled_from(PROCESSES),
    st.sampled_from(["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]),
    st.sampled_from(sorted(LOCATIONS)),
    st.sampled_from(range(len(COLOURS))),
    st.sampled_from(TAGS),
    st.booleans(),
    MESSAGES,
)
def test_any_wrapper_around_any_prefix_gives_back_what_was_logged(
    wrapper, process, level, location, colour, tag, tag_first, message
):
    """VLLM_LOGGING_PREFIX stands behind the process up to 0.30, before it from 0.31."""
    text, name, pid = process
    where = LOCATIONS[location]
    head = COLOURS[colour]("" if tag_first else text, tag + text * tag_first + level, "10-08 13:12:44", where)
    if wrapper == "pdsh" and (colour or not text or tag):
        return  # told from text by the prefix right behind it
    wrap, host = WRAPPERS.get(wrapper, (lambda line: line, None))
    record = one(wrap(head + message))
    assert record.text == message
    if text.startswith("(vLLMHttpServer"):  # an actor that started this engine among others
        host = f"{host}/vLLMHttpServer pid=5" if host else "vLLMHttpServer pid=5"
    assert record.speaker == Speaker(name, pid, host)
    assert (record.prefixed, record.level, record.time) == (True, level, "10-08 13:12:44")
    assert record.file == where.strip("[]").partition(":")[0]


@pytest.mark.parametrize("end", ["", " "])
def test_an_empty_message(end):
    assert one(f"(APIServer pid=1) INFO 07-25 14:46:05 [api_utils.py:345]{end}").text == ""


def test_the_process_prefix_alone_says_who_but_is_no_engine_prefix():
    record = one("\x1b[1;36m(EngineCore pid=2691)\x1b[0;0m ValueError: Free memory on device")
    assert record == Record(1, "ValueError: Free memory on device", speaker=Speaker("EngineCore", 2691))


def test_a_line_without_prefix_inherits_nothing():
    first, second = read("(Worker pid=1) INFO 10-08 13:12:44 [a.py:1] Available KV cache mem", "ory: 7.08 GiB")
    assert (first.prefixed, first.text) == (True, "Available KV cache mem")
    assert second == Record(2, "ory: 7.08 GiB")


def test_crlf_and_multi_line_messages():
    """The formatter writes a carriage return and the whole prefix again before each further line."""
    got = read("INFO 10-08 13:12:44 [a.py:1] one\r", "INFO 10-08 13:12:44 [a.py:1] two\r")
    assert [(r.line, r.text, r.prefixed) for r in got] == [(1, "one", True), (2, "two", True)]


@pytest.mark.parametrize("escape", ESCAPES)
@pytest.mark.parametrize("fold", ["", "{e}[32m [repeated 15x across cluster]{e}[0m"])
def test_ray_coloured_and_folded(escape, fold):
    head = f"{escape}[36m(RayWorkerWrapper pid=314, ip=10.0.0.3){escape}[0m "
    record = one(head + "INFO 04-16 10:28:07 [cuda.py:207] Using FlashMLA backend." + fold.format(e=escape))
    assert (record.text, record.speaker) == ("Using FlashMLA backend.", Speaker("RayWorkerWrapper", 314, "10.0.0.3"))


@pytest.mark.parametrize(
    "tail",
    [
        " [repeated 3x across cluster]",
        " [repeated 3x across cluster] (Ray deduplicates logs by default. Set RAY_DEDUP_LOGS=0 or see https://x.)",
    ],
)
def test_ray_folded_without_colour(tail):
    assert one(f"(RayWorkerWrapper pid=3) INFO 04-16 10:28:07 [a.py:2] took 7.3 GiB{tail}").text == "took 7.3 GiB"


def test_a_progress_bar_shares_the_line():
    bar = "Capturing CUDA graphs (decode, FULL):  50%|##5  | 1/2 [00:00<00:00, 9.91it/s]"
    record = "(EngineCore pid=137) INFO 06-07 19:51:22 [a.py:4] took 1.64 GiB"
    for line in (f"{bar}\r{record}", f"{bar}{record}"):
        got = read(line)
        assert [(r.line, r.text, r.prefixed) for r in got] == [(1, bar, False), (1, "took 1.64 GiB", True)]
        assert got[1].speaker == Speaker("EngineCore", 137)


def test_records_that_lost_their_newlines_come_apart():
    """Notebooks drop newlines; two processes race for one line."""
    got = read(
        "INFO 02-06 13:56:39 model_runner.py:1116] took 2.2160 GB"
        "Loading safetensors checkpoint shards:   0% Completed | 0/1"
        "(Worker_TP1 pid=5) INFO 02-06 13:56:40 worker.py:2] next(EngineCore pid=6) ValueError: x"
    )
    assert [(r.text, r.prefixed, r.speaker.pid) for r in got] == [
        ("took 2.2160 GB", True, None),
        ("Loading safetensors checkpoint shards:   0% Completed | 0/1", False, None),
        ("next", True, 5),
        ("ValueError: x", False, 6),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "INFO 10-08 13:12:44 [logger.py:40] Received request x: prompt: '{q}', params: SamplingParams(n=1)",
        "INFO 10-08 13:12:44 [logger.py:40] see '{q}'",
        '{{"prompt": "{q}"}}',
        '{{"levelname": "INFO", "message": "a user wrote {q}"}}',
    ],
)
def test_a_quoted_log_is_no_log(line):
    quoted = "INFO 10-08 13:12:44 [gpu_worker.py:276] Available KV cache memory: 3.00 GiB"
    assert not one(line.format(q=quoted)).text.startswith("Available")


def test_json_records_of_the_engine():
    record = {
        "asctime": "2026-11-29 22:05:20,083",
        "levelname": "WARNING",
        "name": "vllm.v1.core.kv_cache_utils",
        "processName": "EngineCore",
        "process": 18083,
        "message": "first\nsecond",
        "vllm_process_name": "EngineCore",
    }
    got = read(json.dumps(record))
    who = Speaker("EngineCore", 18083)
    assert got == [Record(1, text, True, "WARNING", "11-29 22:05:20", None, who) for text in ("first", "second")]


def test_json_records_of_a_logging_config_in_front_of_which_the_process_stands():
    record = one('(EngineCore pid=7) {"levelname": "INFO", "message": "x"}')
    assert (record.text, record.speaker) == ("x", Speaker("EngineCore", 7))
    assert one('{"message": "Loading weights took 0.21 seconds"}').prefixed


@pytest.mark.parametrize(
    ("line", "level", "text"),
    [
        ("INFO:vllm.v1.worker.gpu_worker:Available KV cache memory: 7 GiB", "INFO", "Available KV cache memory: 7 GiB"),
        ("INFO:     Application startup complete.", "INFO", "Application startup complete."),
        ("2024-04-21 15:12:15,440 - vllm.engine - WARNING - hi", "WARNING", "hi"),
        ("2024-04-21 15:12:15,440 INFO usage_lib.py:467 -- Usage", "INFO", "Usage"),
        ("[2024-04-21 15:12:15,440] [ERROR] hi", "ERROR", "hi"),
        ("2024-04-21 15:12:15.440 | INFO     | vllm.worker:load:123 - hi", "INFO", "hi"),
        ("INFO 2025-12-07 23:57:05.928 inference.py:72] Creating", "INFO", "Creating"),
        ("22:07:58  INFO [model_runner.py:1115] Model loading took 6.5 GiB", "INFO", "Model loading took 6.5 GiB"),
        ("22:12:16.774710Z [error] vLLM model failed", "ERROR", "vLLM model failed"),
        ("[gpu_worker.py:276] Available KV cache memory: 7 GiB", None, "Available KV cache memory: 7 GiB"),
        ('level=warn ts=1 msg="took 3.5 GiB"', "WARNING", "took 3.5 GiB"),
    ],
)
def test_formats_of_pythons_logging(line, level, text):
    record = one(line)
    assert (record.prefixed, record.level, record.text) == (True, level, text)


@pytest.mark.parametrize("line", ["ValueError: x", "[rank0]: ValueError: x", "    ValueError: x", "> ValueError: x"])
def test_anything_else_is_unprefixed_and_clean(line):
    assert one(line)[1:3] == ("ValueError: x", False)


def test_one_leading_space_stays_since_a_terminal_may_have_broken_there():
    assert one(" GiB, more").text == " GiB, more"


def test_fences_and_blank_lines_give_no_record():
    assert read("```", "```text", "", "   ", "\r") == []


def test_a_tag_before_the_prefix_is_learnt_for_the_lines_that_follow():
    got = read("vLLM STDOUT: INFO 10-08 13:12:44 [a.py:1] x", "vLLM STDOUT: (EngineCore pid=5) ValueError: y", "other")
    assert [(r.text, r.prefixed, r.speaker.pid) for r in got] == [
        ("x", True, None),
        ("ValueError: y", False, 5),
        ("other", False, None),
    ]


@pytest.mark.parametrize(
    ("opening", "closing"), [("| ", " |"), ("- `", "`"), ('2024-01-01T00:00:00Z,"', '"'), ("* ", "")]
)
def test_table_cells_code_spans_and_lists(opening, closing):
    assert one(f"{opening}(Worker pid=1) INFO 10-08 13:12:44 [a.py:1] 7.08 GiB{closing}").text == "7.08 GiB"


@pytest.mark.parametrize("width", range(20, 62))
def test_a_terminal_that_breaks_the_prefix(width):
    """The record stands where its message begins; the rest of the message follows piece by piece."""
    line = "(EngineCore pid=137) INFO 06-07 19:51:22 [gpu_worker.py:455] Available KV cache memory: 7.08 GiB"
    pieces = [line[i : i + width] for i in range(0, len(line), width)]
    first, *others = read(*pieces, "(EngineCore pid=137) INFO 06-07 19:51:22 [gpu_worker.py:455] next")
    assert (first.prefixed, first.speaker, first.level) == (True, Speaker("EngineCore", 137), "INFO")
    assert "".join(r.text for r in (first, *others[:-1])) == "Available KV cache memory: 7.08 GiB"
    assert [r.prefixed for r in others] == [False] * (len(others) - 1) + [True]
    assert [r.line for r in others] == list(range(first.line + 1, len(pieces) + 2))


PREFIX = "(EngineCore pid=137) INFO 06-07 19:51:22 [gpu_worker.py:455]"


@pytest.mark.parametrize(
    "pieces",
    [
        (PREFIX, " Available"),
        (PREFIX + " ", "Available"),
        (PREFIX[:37], PREFIX[37:] + " ", "Available"),
        (PREFIX[:37], PREFIX[37:], " Available"),
        (PREFIX[:30], PREFIX[30:40], PREFIX[40:] + " ", "Available"),
        (cyan("(Worker pid=1)") + PREFIX, " Available"),
        ("tag: " + PREFIX + " ", "Available"),
    ],
)
def test_a_prefix_that_ends_a_line_keeps_its_message(pieces):
    record, following = read(*pieces, PREFIX + " next")
    assert (record.line, record.text, record.prefixed) == (len(pieces), "Available", True)
    assert (following.line, following.text) == (len(pieces) + 1, "next")


@pytest.mark.parametrize("end", ["", " "])
@pytest.mark.parametrize("cut", [25, 37, len(PREFIX)])
def test_an_empty_message_takes_nothing_from_the_next_record(end, cut):
    got = read(PREFIX + end, PREFIX[:cut], PREFIX[cut:] + " next")
    assert [(r.line, r.text) for r in got] == [(1, ""), (3, "next")]


def test_a_false_start_of_a_prefix_is_given_back():
    got = read("(EngineCore pid=13", "(EngineCore pid=137) INFO 06-07 19:51:22 [a.py:4] x", "INFO 06-07 19:5")
    assert [(r.line, r.prefixed) for r in got] == [(1, False), (2, True), (3, False)]


def test_pieces_of_a_line_cut_by_the_runtime_are_joined_per_stream():
    got = read(
        "2024-04-21T15:12:15Z stdout P (EngineCore pid=1) INFO 06-07 19:48:0",
        "2024-04-21T15:12:15Z stderr F other",
        "2024-04-21T15:12:15Z stdout P 2 [x.py:1] Avail",
        "2024-04-21T15:12:16Z stdout F able memory",
        "2024-04-21T15:12:16Z stdout P left over",
    )
    assert [(r.line, r.text, r.prefixed) for r in got] == [
        (1, "Available memory", True),
        (2, "other", False),
        (5, "left over", False),
    ]


@given(st.lists(st.text(max_size=80), max_size=6))
def test_no_lines_fail_and_every_record_names_its_line(lines):
    got = read(*lines)
    assert all(1 <= r.line <= len(lines) for r in got)
    assert [r.line for r in got] == sorted(r.line for r in got)
