"""The command line as people and pipelines meet it: answers, refusals in one line, exit codes, whatever the streams."""

from __future__ import annotations

import gc
import gzip
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import zstandard

import kvforensics
from kvforensics import app, cli

ROOT = Path(__file__).parent.parent.parent
LOG = str(ROOT / "sample_logs" / "vllm-0.33.0-single.log")
LOOP = str(ROOT / "sample_logs" / "vllm-0.22.1-crash-loop.log")
COMMANDS = sorted(command.name or command.callback.__name__ for command in app.whole_app().registered_commands)

FOREIGN = {
    "SGLang": (
        "[2025-05-01 10:00:00] server_args=ServerArgs(model_path='m', mem_fraction_static=0.88)\n"
        "[2025-05-01 10:00:09 TP0] Memory pool end. avail mem=9.21 GB\n"
        "[2025-05-01 10:00:09 TP0] max_total_num_tokens=441234, chunked_prefill_size=8192\n"
    ),
    "TensorRT-LLM": (
        "[TensorRT-LLM] TensorRT-LLM version: 0.18.0\n"
        "[TRT-LLM] [I] Allocated 41.20 GiB for max tokens in paged KV cache (337504).\n"
    ),
    "llama.cpp": (
        "llama_model_load: error loading model\nllama_kv_cache: size = 4096.00 MiB ( 32768 cells, 32 layers)\n"
        "llama_context: CUDA0 compute buffer size = 560.00 MiB\n"
    ),
}
"""A few lines of our own in the manner of other engines."""


class Ran:
    """What one run of the command line left."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def refused_in_one_line(self) -> bool:
        return self.err.startswith("kvforensics: ") and self.err.count("\n") == 1 and not self.out


@pytest.fixture
def run(monkeypatch, capsys):
    """Run the command line in this process."""

    def ran(*arguments: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["kvforensics", *arguments])
        threshold = gc.get_threshold()
        try:
            with pytest.raises(SystemExit) as end:
                cli.main()
        finally:
            gc.set_threshold(*threshold)
            gc.unfreeze()
        return Ran(int(end.value.code or 0), *capsys.readouterr())

    return ran


def apart(*arguments: str, command: str = "", **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run it in a process of its own; `command` may put `$K` into a shell line."""
    clean = {k: v for k, v in os.environ.items() if k not in {"NO_COLOR", "FORCE_COLOR", "PYTHONIOENCODING", "COLUMNS"}}
    environment = {**clean, "PYTHONPATH": str(ROOT), "K": f"{sys.executable} -m kvforensics", "L": LOG, **environment}
    line = ["bash", "-c", command] if command else [sys.executable, "-m", "kvforensics", *arguments]
    return subprocess.run(line, capture_output=True, check=False, env=environment, timeout=60)


def test_a_log_is_answered(run):
    ran = run("explain", LOG)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("vLLM 0.33.0, V1: ready")


@pytest.mark.parametrize(
    ("name", "content", "code", "says"),
    [
        ("missing.log", None, 2, "no such file"),
        ("folder", "", 2, "directory"),
        ("empty.log", b"", 3, "empty"),
        ("blank.log", b"\n \n\n", 3, "no line of a vLLM start-up"),
        ("notes.txt", b"dear diary\n", 3, "no line of a vLLM start-up in 1 lines"),
        ("image.png", bytes(range(256)) * 20, 3, "no text"),
        ("zeros.log", b"\0" * 4096, 3, "no text"),
        ("broken.log.gz", b"\x1f\x8bnonsense", 2, "gzip"),
        ("broken.log.zst", b"\x28\xb5\x2f\xfdnonsense", 2, "zstd"),
        *((f"{engine}.log", text.encode(), 3, f"a log of {engine}") for engine, text in FOREIGN.items()),
    ],
)
def test_what_cannot_be_explained_is_refused_in_one_line(run, tmp_path, name, content, code, says):
    path = tmp_path / name
    if name == "folder":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    for form in ("table", "markdown", "json"):
        ran = run("explain", str(path), "--format", form)
        assert ran.refused_in_one_line
        assert ran.code == code
        assert says in ran.err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_no_permission(run, tmp_path):
    path = tmp_path / "server.log"
    path.write_text("x", encoding="utf-8")
    path.chmod(0)
    ran = run("explain", str(path))
    assert ran.refused_in_one_line
    assert (ran.code, "permission" in ran.err) == (2, True)


@pytest.mark.parametrize("name", ["", "\0", "a\nb", "x" * 5000, "\udcff"])
def test_paths_that_name_nothing(run, name):
    ran = run("explain", name)
    assert ran.refused_in_one_line
    assert ran.code == 2


def written(tmp_path: Path, name: str, data: bytes) -> str:
    (tmp_path / name).write_bytes(data)
    return str(tmp_path / name)


def test_one_answer_whatever_the_container(run, tmp_path):
    """Plain, compressed and UTF-16 logs are the same log."""
    data = Path(LOG).read_bytes()
    copies = [
        written(tmp_path, "a.gz", gzip.compress(data)),
        written(tmp_path, "a.zst", zstandard.compress(data)),
        written(tmp_path, "a16", data.decode().encode("utf-16")),
        written(tmp_path, "crlf", data.replace(b"\n", b"\r\n")),
    ]
    ran = run("explain", LOG, *copies, "--format", "json")
    assert ran.code == 0
    answers = [json.loads(line) for line in ran.out.splitlines()]
    assert len(answers) == 5
    assert all(answer["startups"] == answers[0]["startups"] for answer in answers)


def test_standard_input(run, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(Path(LOG).read_bytes())))
    ran = run("explain", "-", "--format", "json")
    assert (ran.code, json.loads(ran.out)["source"]["name"]) == (0, "<stdin>")


def test_several_inputs_end_with_the_worst_code(run, tmp_path):
    """Reports of what can be explained, a line of complaint for each of the rest."""
    empty, missing = written(tmp_path, "empty.log", b""), str(tmp_path / "missing.log")
    ran = run("explain", empty, LOG, missing, LOG, "--format", "json")
    assert ran.code == 3
    assert [json.loads(line)["source"]["name"] for line in ran.out.splitlines()] == [LOG, LOG]
    assert len(ran.err.splitlines()) == 2
    assert run("explain", LOG, missing).code == 2


@pytest.mark.parametrize(
    "options",
    [
        ("--format", "xml"), ("--format",), ("--width", "3"), ("--width", "x"), ("--width", "9999"), ("--nonsense",),
        ("--startup", "0"), ("--startup", "-1"), ("--startup", "²"), ("--startup", "first"), ("--startup", "2"),
        ("--startup", "9" * 5000), ("--fail-on", "bad"), ("--gpu", "nope"), ("--gpu", ""), ("--config", "/nowhere"),
        ("--config", LOG), ("--set", "nonsense=1"), ("--set", "num_blocks"), ("--set", "num_blocks="),
        ("--set", "num_blocks=nan"), ("--set", "num_blocks=-5"), ("--set", "num_blocks=" + "9" * 5000),
        ("--set", "block_size=0"), ("--set", "gpu_memory_utilization=nan"), ("--set", "gpu_memory_utilization=0"),
        ("--set", "gpu_memory_utilization=-1"), ("--set", "gpu_memory_utilization=1e300"), ("--set", "model_memory=-5GiB"),
        ("--set", "model_memory=1e400GiB"), ("--set", "model_memory=4 parsecs"), ("--total-memory", ""),
        ("--total-memory", "0"), ("--total-memory", "-5GiB"), ("--total-memory", "nan"), ("--total-memory", ".GiB"),
        ("--total-memory", "1.2.3GiB"), ("--total-memory", "9" * 5000),
    ],
)  # fmt: skip
def test_bad_usage_is_told_in_one_line(run, options):
    ran = run("explain", LOG, *options)
    assert ran.refused_in_one_line
    assert ran.code == 2
    assert len(ran.err) < 700


@pytest.mark.parametrize(
    "arguments", [("explain",), ("nonsense",), ("--nonsense",), ("lines", "--engine-version", "x")]
)
def test_bad_commands_are_told_in_one_line(run, arguments):
    ran = run(*arguments)
    assert ran.refused_in_one_line
    assert ran.code == 2


@pytest.mark.parametrize(
    ("option", "value", "name", "origin"),
    [
        ("--total-memory", "79.19GiB", "total_memory", "given"),
        ("--total-memory", "85028896768", "total_memory", "given"),
        ("--gpu", "H100-80GB", "total_memory", "catalogue"),
        ("--set", "initial_free_memory=78.5GiB", "initial_free_memory", "given"),
    ],
)
def test_facts_that_the_user_adds(run, option, value, name, origin):
    """0.17.1 prints no total and no free memory at INFO; the report marks whose word it is."""
    log = str(ROOT / "sample_logs" / "vllm-0.17.1-single.log")
    ran = run("explain", log, "--format", "json", option, value)
    rank = json.loads(ran.out)["startups"][0]["engines"][0]["ranks"][0]
    assert ran.code == 0
    assert rank["quantities"][name]["origin"] == origin
    assert name not in rank["missing"]


def test_startups_are_chosen(run):
    assert "this is 1 of" in run("explain", LOOP, "--startup", "1").out
    everything = run("explain", LOOP, "--startup", "all").out
    assert everything.count("vLLM 0.22.1, V1:") == everything.count(" of 3; ") == 3
    told = " ".join(run("explain", LOOP).out.split())  # eighty columns may break the sentence
    assert "this is 3 of 3; number 1 failed, 2 failed (--startup N or all shows them)" in told


@pytest.mark.parametrize("form", ["table", "markdown"])
@pytest.mark.parametrize("log", [LOG, LOOP])
def test_ascii_is_ascii(run, form, log):
    assert run("explain", log, "--ascii", "--format", form).out.isascii()


@pytest.mark.parametrize("width", [40, 80, 133, 400])
def test_width_is_kept(run, width):
    assert max(map(len, run("explain", LOG, "--width", str(width)).out.splitlines())) <= width


def test_fail_on_decides_the_code_alone(run):
    plain, strict = run("explain", LOG), run("explain", LOG, "--fail-on", "note")
    assert (plain.code, strict.code) == (0, 1)
    assert plain.out == strict.out


def test_version_and_help(run):
    assert run("--version").out.strip() == kvforensics.__version__
    ran = run("--help")
    assert ran.code == 0
    assert all(name in ran.out for name in COMMANDS)
    assert "Usage" in run().err


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_every_command_fits_a_terminal(run, command):
    ran = run(command, "--help")
    assert (ran.code, ran.err) == (0, "")
    assert max(map(len, ran.out.splitlines())) <= 80
    assert "╭" not in ran.out


def test_a_reader_who_leaves_changes_nothing():
    """A closed pipe is no failure, and the code still tells of the log."""
    ran = apart(command='$K explain $L $L $L --fail-on note --format json | head -c 10; echo " ${PIPESTATUS[0]}"')
    assert ran.stderr == b""
    assert ran.stdout.split()[-1] == b"1"


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("$K explain $L >&-", 0),
        ("$K explain nowhere 2>&-", 2),
        ("$K explain - <&-", 2),
        ("$K explain $L >/dev/full", 2),
    ],
)
def test_closed_and_full_streams(line, code):
    if "/dev/full" in line and not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    ran = apart(command=line)
    assert ran.returncode == code
    assert b"Traceback" not in ran.stderr
    assert ran.stderr.count(b"\n") <= 1


def test_output_in_ascii_and_without_colour():
    """An encoding that lacks a character gets another in its place; a pipe gets no colour unless it asks."""
    for environment in ({"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}):
        ran = apart("explain", LOG, **environment)
        assert (ran.returncode, ran.stderr) == (0, b"")
        assert ran.stdout.isascii()
    assert b"\x1b" not in apart("explain", LOG, NO_COLOR="1").stdout
    assert json.loads(apart("explain", LOG, "--format", "json", PYTHONIOENCODING="ascii").stdout)["startups"]


@pytest.mark.parametrize("form", ["table", "markdown", "json"])
def test_explain_imports_nothing_heavy(form):
    code = (
        "import sys; sys.argv = ['kvforensics', 'explain', *sys.argv[1:]]\n"
        "from kvforensics.cli import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        "heavy = {'pandas', 'numpy', 'torch', 'pydantic', 'huggingface_hub', 'vllm'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        [sys.executable, "-c", code, LOG, LOOP, "--format", form], capture_output=True, check=False, env=environment
    )
    assert ran.returncode == 0, ran.stderr.decode()


@pytest.mark.parametrize("logs", [(LOG,), (LOG, LOOP), ("no such file", LOG)])
def test_without_options_the_answer_is_the_same(run, logs):
    """`explain LOG` goes past the command line's parser; `--startup last`, the default, does not."""
    plain, parsed = run("explain", *logs), run("explain", *logs, "--startup", "last")
    assert vars(plain) == vars(parsed)


def test_explain_without_options_needs_no_command_line_parser():
    code = f"import sys; sys.argv = ['kvforensics', 'explain', {str(LOG)!r}]\nfrom kvforensics.cli import main\n"
    code += "try: main()\nexcept SystemExit as end: assert not end.code and 'typer' not in sys.modules, end.code"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, env=environment)
    assert ran.returncode == 0, ran.stderr.decode()


def test_a_fault_of_the_program_is_one_line(run, monkeypatch):
    def faulty(request):
        raise ZeroDivisionError("of its own")

    monkeypatch.setattr("kvforensics.explaining.run", faulty)
    ran = run("explain", LOG)
    assert (ran.code, ran.refused_in_one_line) == (70, True)
    assert "ZeroDivisionError: of its own" in ran.err
    monkeypatch.setenv(cli.SHOW_TRACEBACK, "1")
    with pytest.raises(ZeroDivisionError):
        cli.main()


def test_explain_as_a_function():
    """A path, bytes and lines give the same ledgers, and a frame with a row for each quantity."""
    path = Path(LOG)
    reports = [
        kvforensics.explain(source)
        for source in (LOG, path, path.read_bytes(), path.read_text().split("\n"), path.read_bytes().splitlines())
    ]
    frames = [report.to_frame() for report in reports]
    for frame in frames:
        pd.testing.assert_frame_equal(frame, frames[0])
    blocks = frames[0].set_index("quantity").loc["num_blocks"]
    assert blocks["unit"] == "blocks"
    assert blocks["low"] == blocks["high"] > 0
    with pytest.raises(kvforensics.NothingToExplain):
        kvforensics.explain(["no start-up"])
