"""Whatever is done to a log, `explain` answers or refuses in one line, and every format says what can be read back."""

from __future__ import annotations

import functools
import gzip
import json
import re
import time
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from kvforensics.errors import ExitCode, code_of, expected
from kvforensics.explanation import explain
from kvforensics.report import json as report_json
from kvforensics.report import markdown, table
from kvforensics.report.look import Look
from tests.render import lines, strategies

SAMPLES = Path(__file__).parent.parent / "sample_logs"
SHORT = sorted(p for p in SAMPLES.glob("*.log") if p.stat().st_size < 20_000)
BRIEF = settings(max_examples=30)
PATIENCE = 20.0
"""Seconds that no input may take, on a machine several times slower than a usual one."""
COUNTED = {"B", "tokens", "blocks"}

NUMBERS = (
    "0", "-1", "-0.00", "0.0", "0.0001", "nan", "inf", "-inf", "True", "None", "", ".", "1.2.3", "1e999", "1e-999",
    "1e39", "1e400000", "1" + "0" * 400, "9" * 5000, "9" * 20, "9223372036854775808", "1,000,000", "1_000", "٣", "²",
)  # fmt: skip
"""What may stand in place of a figure."""

STRANGE = (
    b"\0", b"\xed\xa0\x80", b"\xff\xfe", b"\x1b[31m", b"\x1b]0;x\x07", "\x9b2J".encode(), b"[/red]", b"[bold]", b"\\", b"|",
    b"\r", b"\x0c", "\u2028".encode(), "\u202e".encode(), b"'", b'"', b"{", b"}", b"(", b")", b"`", b"<!--", b"](http://x)",
)  # fmt: skip
"""What may stand in between: half characters, terminal codes, markup of three kinds, broken quotes."""


@functools.cache
def sample(path: Path) -> bytes:
    return path.read_bytes()


def refuse_constant(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


def check_intervals(value: object) -> None:
    """Every interval in a JSON document has its ends in order, and whole ends where things are counted."""
    if isinstance(value, dict):
        low, high = value.get("low"), value.get("high")
        if isinstance(low, int | float) and isinstance(high, int | float):
            assert low <= high, value
        if value.get("unit") in COUNTED:
            assert all(end is None or type(end) is int for end in (low, high)), value
        for inner in value.values():
            check_intervals(inner)
    elif isinstance(value, list):
        for inner in value:
            check_intervals(inner)


def check_text(text: str, *, ascii_only: bool = False) -> None:
    strange = {c for c in text if c != "\n" and not c.isprintable()}
    assert not strange, strange
    assert text.isascii() or not ascii_only


def check(data: bytes) -> bool:
    """Explain and render in every format; give whether there was a start-up. Fails on any but the expected errors."""
    begun = time.monotonic()
    try:
        report = explain(data)
    except expected() as error:
        assert code_of(error) in {ExitCode.USAGE, ExitCode.NOTHING}
        assert str(error).strip()
        assert "\n" not in str(error)
        return False
    document = report_json.render(report)
    assert document.isprintable()
    check_intervals(json.loads(document, parse_constant=refuse_constant))
    for width in (40, 80, 120):
        text = table.render(report, Look(width, width == 80, all_ranks=True, startup="all"), colour=False)
        check_text(text, ascii_only=width == 80)
        assert all(cell_len(line) <= width for line in text.split("\n"))
    check_text(markdown.render(report, Look(startup="all", all_ranks=True)))
    check_text(markdown.render(report, Look(ascii_only=True)), ascii_only=True)
    assert time.monotonic() - begun < PATIENCE
    return True


samples = st.sampled_from(SHORT)
SEEDS = st.integers(0, 1 << 32)
"""Damage at many places is drawn from a seed: hypothesis itself would take longer than what it tests."""


@BRIEF
@given(samples, st.integers(min_value=0))
def test_logs_cut_at_any_line(path, place):
    parts = sample(path).splitlines(keepends=True)
    check(b"".join(parts[: place % (len(parts) + 1)]))


def quantities(report):
    """Give the interval of each figure that the first start-up states: (engine, rank or none, name) to its ends."""
    found = {}
    for engine in report.startups[0].engines:
        for account, who in ((engine.capacity, None), *((rank.account, rank.name) for rank in engine.ranks)):
            found |= {(engine.dp, who, name): quantity.interval for name, quantity in account.quantities.items()}
    return found


@pytest.mark.parametrize("path", SHORT, ids=lambda path: path.stem)
def test_a_cut_log_knows_less(path):
    """Wherever a log ends, no figure excludes what its rest goes on to say: no setting is taken for final too early."""
    parts = sample(path).splitlines(keepends=True)
    whole = quantities(explain(sample(path)))
    for end in range(1, len(parts), 1 + len(parts) // 12):
        try:
            known = quantities(explain(b"".join(parts[:end])))
        except expected():
            continue
        for name, interval in known.items():
            assert name not in whole or interval.meet(whole[name]) is not None, (end, name, interval, whole[name])


@BRIEF
@given(st.data())
def test_lines_spliced_shuffled_dropped_and_repeated(data):
    first, second = (sample(data.draw(samples)).splitlines(keepends=True) for _ in range(2))
    mix = first[: data.draw(st.integers(0, len(first)))] + second[data.draw(st.integers(0, len(second))) :]
    random = Random(data.draw(SEEDS))
    for change in data.draw(st.lists(st.sampled_from(("shuffle", "drop", "repeat", "weave")), max_size=3)):
        if change == "shuffle":
            random.shuffle(mix)
        elif change == "drop":
            share = random.random()
            mix = [line for line in mix if random.random() > share]
        elif change == "repeat":
            mix = [line for line in mix for _ in range(random.choice((1, 1, 2)))]
        else:
            mix = [line for pair in zip(mix, second, strict=False) for line in pair]
    check(b"".join(mix))


@BRIEF
@given(samples, st.data())
def test_figures_that_no_engine_prints(path, data):
    random = Random(data.draw(SEEDS))
    share = data.draw(st.sampled_from((0.01, 0.05, 0.3)))
    text = sample(path).decode()
    check(
        re.sub(
            r"(?<![\d.])\d+(?:\.\d+)?", lambda m: random.choice(NUMBERS) if random.random() < share else m[0], text
        ).encode()
    )


@BRIEF
@given(samples, st.data())
def test_strange_bytes_anywhere(path, data):
    random = Random(data.draw(SEEDS))
    damaged = bytearray(sample(path))
    for _ in range(data.draw(st.sampled_from((1, 10, 60)))):
        at = random.randrange(len(damaged))
        if random.random() < 0.5:
            damaged[at:at] = random.choice(STRANGE)
        else:
            damaged[at] ^= 1 << random.randrange(8)
    check(bytes(damaged))


@BRIEF
@given(strategies.truths(), st.data())
def test_rendered_logs_with_characters_gone(truth, data):
    text = lines.render(truth)
    random = Random(data.draw(SEEDS))
    kept = [c for c in text if random.random() > 0.002]
    check("".join(kept).encode())


@BRIEF
@given(st.binary(max_size=4000), st.booleans(), samples)
def test_random_bytes_alone_and_before_a_log(noise, alone, path):
    check(noise if alone else noise + b"\n" + sample(path))


SETTINGS = (
    "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "decode_context_parallel_size", "max_seq_len",
    "max_model_len", "block_size", "gpu_memory_utilization", "kv_cache_memory_bytes", "num_gpu_blocks_override",
    "max_num_seqs", "max_num_batched_tokens", "kv_cache_dtype", "model", "quantization",
)  # fmt: skip


@settings(BRIEF, max_examples=60)
@given(samples, st.sampled_from(SETTINGS), st.sampled_from((*NUMBERS, "1e-300", "1e300", "3", "1000000007", "'[b]|`'")))
def test_settings_that_no_engine_takes(path, name, value):
    text = re.sub(rf"(?<![\w'])({name}=)(?:'[^']*'|[^\s,()]+)", lambda m: m[1] + value, sample(path).decode())
    stated = re.sub(rf"('{name}': )(?:'[^']*'|[^\s,{{}}]+)", lambda m: m[1] + value, text)
    if f"'{name}': " not in stated:
        stated = stated.replace("non-default args: {", f"non-default args: {{'{name}': {value}, ")
    check(stated.encode())


PREFIX = "INFO 01-05 08:09:00 [gpu_worker.py:99] "


def long_inputs() -> dict[str, bytes]:
    """Inputs of megabytes, each before or inside a whole log."""
    log = sample(SAMPLES / "vllm-0.33.0-single.log")
    return {
        "one line": b"A" * 5_000_000 + b"\n" + log,
        "one record": (PREFIX + "GiB " * 1_000_000 + "\n").encode() + log,
        "one figure": log.replace(b" GiB", b"1" * 1_000_000 + b" GiB", 1),
        "one name": log.replace(b"meta-llama", b"m" * 2_000_000),
        "arguments": (PREFIX + "non-default args: {" + "'a': 1, " * 300_000 + "}\n").encode() + log,
        "brackets": (PREFIX + "Available KV cache memory: " + "(" * 1_000_000 + "\n").encode() + log,
        "spaces": (PREFIX + "Available KV cache memory:" + " " * 1_000_000 + "1.0 GiB\n").encode() + log,
        "processes": b"(Worker pid=1) " * 100_000 + b"x\n" + log,
        "nested JSON": b'{"log":' * 50_000 + b"1" + b"}" * 50_000 + b"\n" + log,
        "colours": b"\x1b[31;" * 200_000 + b"\n" + log,
        "exceptions": b"ValueError: " * 100_000 + b"\n" + log,
        "carriage returns": b"\r" * 1_000_000 + log,
        "zeros": b"\0" * 1_000_000 + log,
        "bomb": gzip.compress(b"\n" * 20_000_000 + log),
    }


@pytest.mark.parametrize("name", long_inputs())
def test_long_inputs_take_no_time(name):
    """A hundred times the figures of a log, in a time that no one would call hanging."""
    check(long_inputs()[name])


ENCODED = {
    "UTF-16": lambda text: text.encode("utf-16"),
    "UTF-16 big-endian": lambda text: b"\xfe\xff" + text.encode("utf-16-be"),
    "UTF-32": lambda text: text.encode("utf-32"),
    "UTF-16 cut in a character": lambda text: text.encode("utf-16")[:-1],
    "a lone surrogate": lambda text: b"\xff\xfe" + ("\ud800" + text).encode("utf-16-le", "surrogatepass"),
    "CRLF": lambda text: text.replace("\n", "\r\n").encode(),
    "another 8-bit encoding": lambda text: text.replace("meta", "m\xe9ta").encode("latin-1", "replace"),
    "gzip in gzip": lambda text: gzip.compress(gzip.compress(text.encode())),
    "gzip cut": lambda text: gzip.compress(text.encode())[:-40],
}


@pytest.mark.parametrize("name", ENCODED)
def test_encodings(name):
    text = sample(SAMPLES / "vllm-0.33.0-single.log").decode()
    assert check(ENCODED[name](text)) is not name.startswith("gzip in")


@pytest.mark.parametrize(
    "name",
    [
        "[bold red]x[/bold red][/][link=http://a]b",
        "\x1b]0;title\x07\x9b31m\x1b[2J",
        "](http://x)<img src=x>|`` ` $a$ &amp; @team #1 **b** __c__ ~~d~~ <!--",
        "\u202e\u2066x\u2028\u2029\u0085\u200b",
        "\U0001f469\u200d\U0001f467:smile:" * 40,
        "漢字" * 200,
    ],
)
def test_hostile_names_are_text(name):
    """A model, and a worker, may be called anything."""
    text = sample(SAMPLES / "vllm-0.26.0-tp2.log").decode()
    model = re.search(r"model='([^']*)'", text)
    assert model
    assert "Worker_TP1" in text
    assert check(text.replace(model[1], name).replace("Worker_TP1", f"Worker_TP1{name[:8]}").encode())
