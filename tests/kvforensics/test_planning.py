"""The `plan` and `calibrate` commands: answers, verdicts, scans, exit codes, and logs held against predictions."""

import json

import pytest
from typer.testing import CliRunner

from kvforensics import calibration, planning
from kvforensics.app import whole_app
from kvforensics.calibration import calibrate, error_of, summary
from kvforensics.errors import UsageFault
from kvforensics.planning import NoConfig, Request, config_of, plan, scanned
from kvforensics.report import plan_json
from kvforensics.report.plan_table import aligned, marked
from reconstruct.interval import Interval

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
GIB = 1 << 30


@pytest.fixture
def run():
    """Run a command line and give its exit code, its answer and its complaint."""

    def call(*arguments):
        result = CliRunner().invoke(whole_app(), list(arguments))
        return result.exit_code, result.stdout, result.stderr

    return call


def test_plan_answers_in_json(run):
    """Schema, verdict, quantity objects with origins, settings with their defaults."""
    code, out, _ = run("plan", LLAMA, "--gpu", "H100-80GB", "--engine-version", "0.19.0", "--max-model-len", "8192",
                       "--format", "json")  # fmt: skip
    found = json.loads(out)
    assert (code, found["schema"], found["outcome"]) == (0, "kvforensics.plan/1", "starts")
    rank = found["engines"][0]["ranks"][0]
    memory = rank["quantities"]["available_kv_cache_memory"]
    assert memory["low"] < rank["expected"]["available_kv_cache_memory"] < memory["high"]
    assert (memory["unit"], memory["origin"]) == ("B", "modelled")
    assert rank["quantities"]["model_memory"]["origin"] == "config"
    assert found["config"]["defaults"] == ["gpu_memory_utilization", "max_num_seqs", "max_num_batched_tokens"]
    assert found["engines"][0]["capacity"]["quantities"]["bytes_per_block"]["low"] == 2 << 20


def test_plan_as_text_names_check_and_change(run):
    """A start that fails: which check, and what would make it start."""
    code, out, _ = run("plan", "meta-llama/Llama-3.3-70B-Instruct", "--gpu", "H100", "--count", "4", "--ascii")
    assert code == 0
    assert "does not start, fails at: weights" in " ".join(out.split())
    assert "--tensor-parallel-size 4" in out
    assert out.isascii()


@pytest.mark.parametrize("width", [None, 80, 120])
def test_a_plan_fills_the_columns_asked_for_or_eighty(run, width):
    """Headline, facts and sentences are wrapped; figures fit from 80 columns on."""
    asked = ["plan", "meta-llama/Llama-3.3-70B-Instruct", "--gpu", "H100"]
    _, out, _ = run(*asked, *(["--width", str(width)] if width else []))
    longest = max(map(len, out.splitlines()))
    assert longest <= (width or 80)
    assert longest > (width or 80) - 20


def test_a_later_start_finds_its_graphs(run):
    """The first compiles; not told which, the band holds both, and says what the later one likely has more."""
    asked = ["Qwen/Qwen2.5-7B-Instruct", "--gpu", "A40", "--engine-version", "0.25.1", "--max-model-len", "32768"]
    first, later, either = (
        json.loads(run("plan", *asked, "--format", "json", *flag)[1])
        for flag in (["--first-start"], ["--later-start"], [])
    )
    assert [found["config"]["compiles"] for found in (first, later, either)] == [True, False, None]
    low, high, both = (
        found["engines"][0]["ranks"][0]["quantities"]["available_kv_cache_memory"] for found in (first, later, either)
    )
    assert low["low"] == both["low"]
    assert high["high"] == low["high"] == both["high"]
    assert any("likely has 0.7" in reason for reason in either["not_modelled"])
    assert not any("compiles" in reason for found in (first, later) for reason in found["not_modelled"])


def test_scan_is_a_table_of_combinations(run):
    """Two axes give every combination; one that is refused says why."""
    code, out, _ = run("plan", LLAMA, "--gpu", "H100", "--max-model-len", "8192", "--scan", "tp=1,3", "--scan",
                       "kv-cache-dtype=auto,fp8", "--format", "json")  # fmt: skip
    rows = json.loads(out)["scan"]
    assert code == 0
    assert [row["settings"]["tp"] for row in rows] == ["1", "1", "3", "3"]
    assert [row["outcome"] for row in rows] == ["starts", "starts", "does not start", "does not start"]
    tokens = [row["engines"][0]["capacity"]["quantities"]["kv_cache_tokens"]["low"] for row in rows[:2]]
    assert tokens[1] > 1.9 * tokens[0]


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        ((LLAMA, "--gpu", "H9000"), 2, "no such card"),
        (("someone/unheard-of", "--gpu", "H100"), 2, "no config of someone/unheard-of"),
        ((LLAMA, "--gpu", "H100", "--tp", "8", "--count", "4"), 2, "asks for 8 cards"),
        ((LLAMA, "--gpu", "H100", "--engine-version", "0.99.0"), 3, "newer than"),
        ((LLAMA, "--gpu", "H100", "--format", "yaml"), 2, "choose one of table, markdown, json"),
        ((LLAMA, "--gpu", "H100", "--scan", "colour=red"), 2, "write name=value"),
        ((LLAMA, "--gpu", "H100", "--scan", "tp=two"), 2, "is no number"),
        ((LLAMA, "--gpu", "H100", "--set", "model_memory=much"), 2, "is no size"),
        (("ai21labs/Jamba-v0.1", "--gpu", "H100"), 3, "not its weights"),
    ],
)
def test_bad_questions_end_in_one_line(run, arguments, code, complaint):
    """Exit codes of the contract: 2 for usage, 3 for what is beyond the tool; one line each."""
    found, out, said = run("plan", *arguments)
    assert (found, out) == (code, "")
    assert complaint in said
    assert said.startswith("kvforensics: ")
    assert said.count("\n") == 1


def test_stated_facts_reach_the_prediction(run):
    """--set, --total-memory, --kv-cache-memory and --used-elsewhere."""
    base = ["plan", LLAMA, "--gpu", "H100", "--max-model-len", "8192", "--format", "json"]
    _, out, _ = run(*base, "--set", "model_memory=20GiB", "--total-memory", "64GiB", "--used-elsewhere", "3GiB")
    quantities = json.loads(out)["engines"][0]["ranks"][0]["quantities"]
    assert quantities["model_memory"]["origin"] == "given"
    assert quantities["total_memory"]["high"] == 64 * GIB
    assert quantities["initial_free_memory"]["high"] < 61 * GIB
    _, out, _ = run(*base, "--kv-cache-memory", "10GiB")
    assert json.loads(out)["engines"][0]["capacity"]["quantities"]["num_blocks"]["low"] == 5120


def test_config_comes_from_file_folder_cache_path_or_table(tmp_path):
    """A file, a folder, a name in a folder of configs, a path into a cache, the table; never a similar name."""
    config = dict(config_of(LLAMA), num_hidden_layers=4)
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "me--mine.json").write_text(json.dumps(config))
    assert config_of(str(tmp_path))["num_hidden_layers"] == 4
    assert config_of(str(tmp_path / "config.json"))["num_hidden_layers"] == 4
    assert config_of("me/mine", tmp_path)["num_hidden_layers"] == 4
    cached = "/hub/models--meta-llama--Llama-3.1-8B-Instruct/snapshots/0e9e39f249a1"
    assert config_of(cached)["num_hidden_layers"] == 32
    with pytest.raises(NoConfig):
        config_of("meta-llama/Llama-3.1-8B-Instruct-mine")
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(UsageFault):
        config_of(str(tmp_path))


def test_a_scan_may_not_be_endless():
    """Sixty-four plans at most."""
    with pytest.raises(UsageFault, match="64 at most"):
        scanned(Request(LLAMA, "H100"), ["max-num-seqs=" + ",".join(map(str, range(1, 66)))])


def test_json_of_a_refused_launch_has_no_engine():
    """What fails before anything is allocated has checks and no ledger."""
    found = json.loads(plan_json.render(plan(Request("Qwen/Qwen3-14B", "H100", tensor_parallel_size=5))))
    assert (found["engines"], found["fails_at"]["check"]) == ([], "configuration")


def test_a_plan_imports_no_torch():
    """0.2 s leave no room for it: nothing of the command reaches torch, pandas or rich."""
    import subprocess
    import sys

    code = (
        "import sys; from kvforensics.planning import Request, plan; from kvforensics.report import plan_json, plan_table\n"
        f"plan_json.render(plan(Request({LLAMA!r}, 'H100')))\n"
        "assert not {'torch', 'pandas', 'rich', 'numpy'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def printed(prediction):
    """Write the lines of a 0.19.0 start-up whose figures are the prediction's likely ones."""
    likely = prediction.expected[0]

    def gib(name):
        return f"{likely[name] / GIB:.2f}"

    prefix = "(EngineCore pid=7) INFO 04-22 19:59:33 "
    debug = "(EngineCore pid=7) DEBUG 04-22 19:59:33 "
    rest = "speculative_config=None, tokenizer='x', dtype=torch.bfloat16, max_seq_len=8192, tensor_parallel_size=1, "
    launch = f"{{'model': '{LLAMA}', 'max_model_len': 8192, 'gpu_memory_utilization': 0.95}}"
    settings = f"model='{LLAMA}', {rest}pipeline_parallel_size=1, data_parallel_size=1, enforce_eager=False"
    peak, other, weights = (gib(n) for n in ("torch_peak_increase", "non_torch_increase", "model_memory"))
    snapshot = (
        "torch_peak=0.0GiB, free_memory=78.64GiB, total_memory=79.15GiB, cuda_memory=0.51GiB, torch_memory=0.0GiB, "
    )
    snapshot += "non_torch_memory=0.51GiB, timestamp=1.0"
    terms = f"Total non KV cache memory: {gib('non_kv_cache_memory')}GiB; torch peak memory increase: {peak}GiB; "
    terms += f"non-torch forward increase memory: {other}GiB; weights memory: {weights}GiB."
    lines = [
        f"(APIServer pid=1) INFO 04-22 19:59:30 [entrypoints/utils.py:233] non-default args: {launch}",
        f"{prefix}[v1/engine/core.py:105] Initializing a V1 LLM engine (v0.19.0) with config: {settings}",
        f"{debug}[v1/worker/gpu_worker.py:260] worker init memory snapshot: {snapshot}",
        f"{prefix}[v1/worker/gpu_model_runner.py:4820] Model loading took {weights} GiB memory and 7.0 seconds",
        f"{debug}[v1/worker/gpu_worker.py:370] Memory profiling takes 4.47 seconds. {terms}",
        f"{prefix}[v1/worker/gpu_worker.py:436] Available KV cache memory: {gib('available_kv_cache_memory')} GiB",
    ]
    return "\n".join(lines)


def test_calibration_finds_its_own_prediction_in_a_log(tmp_path):
    """A log that prints the likely values: every term inside its band, hardly an error."""
    prediction = plan(Request(LLAMA, "H100", engine_version="0.19.0", max_model_len=8192, gpu_memory_utilization=0.95))
    (tmp_path / "start.log").write_text(printed(prediction.prediction))
    found = calibrate([tmp_path], "H100-80GB", None)
    terms = {row.term for row in found.rows}
    assert {"model_memory", "transient_peak_headroom", "non_torch_increase", "available_kv_cache_memory"} <= terms
    assert all(row.inside for row in found.rows)
    assert all(abs(row.error) < 0.005 for row in found.rows if row.term != "initial_free_memory")
    assert {row.kind for row in found.rows} == {"dense"}


def test_calibration_says_what_it_did_not_compare(tmp_path, run):
    """Other engines, unknown models, empty files: a reason each, and the command still answers."""
    (tmp_path / "empty.log").write_text("")
    (tmp_path / "notes.txt").write_text("nothing of an engine\n")
    code, out, _ = run("calibrate", str(tmp_path))
    assert code == 0
    assert out.count("not compared") == 2
    assert run("calibrate", str(tmp_path / "missing"))[0] == 2


def test_an_error_is_the_distance_to_what_the_log_allows():
    """Inside the rounding there is no error; outside it counts from the nearer end."""
    assert error_of(105, Interval(100, 110)) == 0
    assert error_of(120, Interval(100, 110)) == pytest.approx(10 / 105)
    assert error_of(90, Interval(100, 110)) == pytest.approx(-10 / 105)


def test_summary_counts_a_repeated_start_once():
    """The same model and figures in two logs are one point."""
    row = calibration.Row("a", "m", "0.19.0", "dense", "r", "model_memory", Interval(0, 10), 5, Interval(5, 5))
    assert summary([row, row._replace(log="b")])[0].figures == 1


def test_tables_line_up():
    """Columns as wide as their cells, figures to the right; Markdown escapes pipes."""
    assert aligned(["a", "n"], [["x", "1"], ["yy", "10"]]).splitlines() == ["a    n", "x    1", "yy  10"]
    assert marked(["a"], [["x|y"]]).splitlines()[-1] == "| x\\|y |"


def test_short_names_of_a_scan():
    """`tp` stands for the option it abbreviates, and shows as it was written."""
    rows = scanned(Request(LLAMA, "H100", max_model_len=4096), ["tp=1,2"])
    assert [row.settings for row in rows] == [(("tp", "1"),), (("tp", "2"),)]
    assert rows[1].prediction.scenario.launch.tensor_parallel_size == 2
    assert planning.LARGEST_SCAN == 64
