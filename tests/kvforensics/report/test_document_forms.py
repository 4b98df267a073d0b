"""Every command that answers with documents, in every form: whole, inert whatever it quotes, masked unless asked otherwise."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from kvforensics.app import whole_app
from kvforensics.comparison import compare
from kvforensics.output import FORMATS
from kvforensics.report.compare_document import compare_document
from kvforensics.report.document import Document, Figure, Grid, Listing, rendered
from kvforensics.report.look import Look
from kvforensics.report.whatif_document import whatif_document
from kvforensics.whatif import Ask, what_if
from reconstruct.change import Change
from reconstruct.interval import Interval
from tests.kvforensics.report.pages import measured, needs_chromium, parsed
from tests.kvforensics.start_ups import start
from tests.render import lines

SAMPLES = Path(__file__).parents[3] / "sample_logs"
ONE, TWO = (str(SAMPLES / f"vllm-{name}.log") for name in ("0.27.1-single", "0.33.0-single"))
COMMANDS = {
    "whatif": ("whatif", ONE, "--gpu-memory-utilization", "0.95", "--max-model-len", "4096"),
    "target": ("whatif", ONE, "--target", "tokens=300000"),
    "compare": ("compare", ONE, TWO),
    "blocks": ("blocks", "google/gemma-3-27b-it", "--memory", "41.73GiB", "--pp", "2"),
    "plan": ("plan", "Qwen/Qwen3-14B", "--gpu", "H100-80GB", "--max-model-len", "8192"),
}
BRIEF = {
    "whatif": ("what if", "memory", "start", "do", "log"),
    "target": ("target", "memory", "start", "do", "log"),
    "compare": ("before", "after", "change", "moved by", "why"),
    "blocks": ("model", "block", "holds", "length", "as"),
    "plan": ("plan", "verdict", "pool", "do", "as"),
}
PEOPLE = tuple(form for form in FORMATS if form not in {"json", "csv"})
PLAIN = Look(90)


def run(*arguments):
    done = CliRunner().invoke(whole_app(), list(arguments))
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture(autouse=True)
def _no_local_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))


# -- Commands --


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_holds_what_stdout_would_have_shown(command, form, tmp_path):
    file = tmp_path / "answer"
    code, text, _ = run(*COMMANDS[command], "--format", form)
    assert code == 0
    assert run(*COMMANDS[command], "--format", form, "--out", str(file)) == (0, "", "")
    assert file.read_text(encoding="utf-8") == text
    assert [p.name for p in tmp_path.iterdir()] == ["answer"]


@pytest.mark.parametrize("form", ["table", "markdown", "jira", "slack"])
@pytest.mark.parametrize("command", COMMANDS)
def test_brief_is_five_lines(command, form):
    code, text, _ = run(*COMMANDS[command], "--brief", "--format", form)
    assert code == 0
    for line, label in zip(text.splitlines(), BRIEF[command], strict=True):
        assert re.match(rf"(- \*\*|\* \*|• \*)?{label}\b", line)


def test_brief_tells_what_moves_and_what_to_paste():
    text = run(*COMMANDS["whatif"], "--brief")[1]
    assert "13.8816 ±0.0008 GiB today, then 17.7 ±0.2 GiB" in text
    assert "do        --gpu-memory-utilization 0.95 --max-model-len 4096" in text
    assert (
        "cheapest pair: --gpu-memory-utilization 0.9032 --kv-cache-dtype fp8" in run(*COMMANDS["target"], "--brief")[1]
    )
    assert "C +543,328" in run(*COMMANDS["compare"], "--brief")[1]


@pytest.mark.parametrize("command", COMMANDS)
def test_misuse_is_code_2_and_leaves_no_file(command, tmp_path):
    asked = COMMANDS[command]
    for wrong in (("--brief", "--format", "html"), ("--format", "pdf"), ("--out", str(tmp_path / "no" / "file"))):
        code, text, error = run(*asked, *wrong)
        assert (code, text, len(error.splitlines())) == (2, "", 1)
    file = tmp_path / "old"
    file.write_text("old")
    assert run(asked[0], str(tmp_path / "none"), *asked[2:], "--out", str(file))[0] == 2
    assert file.read_text() == "old"


# -- Forms --


def plain(word):
    """Give a document in which one text stands wherever foreign text may."""
    grid = Grid(word, ("", "", "n"), ((word, "a", "1"), ("b", word, "2")), ("n",))
    figure = Figure(word, "today", word, "", "num_blocks", Interval(1, None), "blocks", "printed")
    return Document(word, "open", (("log", word),), (grid, Listing(word, (word, "c"))), (f"note {word}",), (figure,))


def marks(text, special):
    """Give what is left of a text as markup: its special characters that nothing escapes."""
    return [mark for mark in re.sub(r"\\.|`@`", "", text) if mark in special]


hostile = st.text(alphabet=st.sampled_from("a 1_*`<>[](){}|~#!^+-=?:;@\\&\"'$/.%"), min_size=1, max_size=30).map(
    lambda text: " ".join(text.split()) or "x"
)
NASTY = (
    "[red]x[/red]", "<script>alert(1)</script>", "a|b", "{code}x{code}", "*x*", "`x`", "``` x", "=cmd()", "_x_",
    "</style>", "<!channel>", "||x||", "\\| \\\\", "![x](http://a)", ":smile:", "@here", "~x~", "&lt;", "[~bob]",
)  # fmt: skip


def both(test):
    """Try a test with all nasty texts, and with whatever is made of their characters."""
    for text in NASTY:
        test = example(text)(test)
    return settings(deadline=None, max_examples=150)(given(hostile)(test))


@both
def test_html_shows_any_text_as_text(text):
    page, other = (parsed(rendered((plain(words),), "html", PLAIN, colour=False)) for words in (text, "x"))
    tags, plain_tags = ([tag for tag in one.tags if tag != "span"] for one in (page, other))  # a flag stands in one
    assert sorted(tags) == sorted(plain_tags)
    assert "".join(page.words).count(text) >= 6


@both
def test_jira_takes_no_text_for_markup(text):
    special = "{}[]|*^~!#"
    made = rendered((plain(text),), "jira", PLAIN, colour=False).replace("&#92;", "")
    assert marks(made, special) == marks(rendered((plain("x"),), "jira", PLAIN, colour=False), special)
    assert "\\\\" not in made


@both
def test_markdown_takes_no_text_for_markup(text):
    special = "`*[]<|~$"
    made = rendered((plain(text),), "markdown", PLAIN, colour=False)
    assert marks(made, special) == marks(rendered((plain("x"),), "markdown", PLAIN, colour=False), special)
    assert not re.search(r"(?<!`)@[^\W_]", made)


@both
def test_slack_takes_no_text_for_markup(text):
    made = rendered((plain(text),), "slack", PLAIN, colour=False)
    assert not re.search(r"[<>]|&(?!amp;|lt;|gt;)", made)
    blocks = made.split("```")
    assert len(blocks) == 3
    assert "`" not in blocks[1]
    for line in (blocks[0] + blocks[2]).splitlines():
        outside = re.sub(r"`[^`]*`", "", line).removeprefix(":large_orange_circle: ").removeprefix("• ")
        assert "`" not in outside
        assert re.fullmatch(r"\*[^*~]*\*|[^*~]*", outside)
        assert not re.search(r":[\w+'-]+:|@\w", outside)


@both
def test_csv_holds_any_text_and_no_formula(text):
    rows = list(csv.reader(io.StringIO(rendered((plain(text),), "csv", PLAIN, colour=False))))
    assert rows[1][0].removeprefix("'") == text.removeprefix("'")
    assert not any(cell.startswith(tuple("=+-@|\t")) for cell in rows[1])
    assert rows[1][5:] == ["1", "", "blocks", "printed"]


@both
def test_pictures_and_tables_show_any_text_as_text(text):
    made = rendered((plain(text),), "svg", PLAIN, colour=False)
    words = "".join(ElementTree.fromstring(made).itertext()).replace("\xa0", " ")
    assert text in words
    shown = rendered((plain(text),), "table", PLAIN, colour=False)
    assert text in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize("form", [*PEOPLE, "csv"])
def test_ascii_is_ascii_in_every_form(form):
    for command in ("whatif", "compare", "blocks"):
        assert run(*COMMANDS[command], "--format", form, "--ascii")[1].isascii()


@pytest.mark.parametrize("command", COMMANDS)
def test_html_is_alone_and_asks_nobody(command):
    page = parsed(run(*COMMANDS[command], "--format", "html")[1])
    assert not {"script", "img", "link", "iframe"} & set(page.tags)
    assert not {"src", "href"} & {name for name, _ in page.attributes}


def test_svg_fetches_nothing():
    text = run(*COMMANDS["compare"], "--format", "svg")[1]
    assert ElementTree.fromstring(text).tag.endswith("svg")
    assert "url(http" not in text


@pytest.mark.parametrize("form", FORMATS)
def test_every_form_masks_unless_told_otherwise(form, tmp_path):
    secret = start(model="/home/alice/models/hf_abcdefghijklmnop")
    home = tmp_path / "home" / "alice"
    home.mkdir(parents=True)
    log = home / "a.log"
    log.write_text(lines.render(secret))
    for asked in (("whatif", str(log), "--max-model-len", "4096"), ("compare", str(log), str(log))):
        masked = run(*asked, "--format", form, "--width", "200")[1]
        assert "alice" not in masked
        assert "hf_abc" not in masked
        if form != "json":  # neither command's JSON names the model
            kept = run(*asked, "--format", form, "--width", "200", "--no-redact")[1]
            assert "alice" in kept


# -- Figures and bars --


@pytest.mark.parametrize("command", ["whatif", "compare", "blocks"])
def test_csv_holds_every_figure_of_the_json(command):
    rows = list(csv.DictReader(io.StringIO(run(*COMMANDS[command], "--format", "csv")[1])))
    answer = json.loads(run(*COMMANDS[command], "--format", "json")[1])
    found = {(r["side"], r["part"], r["quantity"]): (r["low"], r["high"]) for r in rows}

    def cells(interval):
        return tuple("" if interval[end] is None else str(interval[end]) for end in ("low", "high"))

    if command == "whatif":
        for term in answer["terms"]:
            for side, end in (("today", "before"), ("then", "after"), ("change", "change")):
                assert found[side, "", term["name"]] == cells(term[end])
    elif command == "compare":
        for part in answer["parts"]:
            for name in ("available_kv_cache_memory", "num_blocks", "kv_cache_tokens"):
                assert found["log 1 to log 2", part["name"], name] == cells(part[name])
    else:
        assert {key[2]: ends for key, ends in found.items()} == {n: cells(q) for n, q in answer["quantities"].items()}


def test_both_sides_are_drawn_on_one_scale():
    """R grows with u by the same share of T as its bar does."""
    answer = what_if(lines.render(start("0.30.0", u=0.5)).encode(), Change(gpu_memory_utilization=0.75), Ask())
    grid = whatif_document(answer, PLAIN).blocks[0]
    bars = {row[0].removeprefix("-"): bar for row, bar in zip(grid.rows, grid.bars, strict=True)}
    assert bars["T"].sides[0] == bars["T"].sides[1]
    assert [side.sure[1] for side in bars["R"].sides] == pytest.approx([0.5, 0.75], abs=0.01)
    for today, then in (bars["M"].sides, bars["tokens"].sides):
        assert today.sure[1] < then.sure[1]
    lost = {name: bars[name].sides[1].open[0] for name in ("C", "H")}
    assert lost["H"] < lost["C"] < bars["R"].sides[1].sure[1]


def test_logs_of_two_cards_share_the_larger_ones_scale():
    grid = compare_document(compare([ONE, TWO]), PLAIN).blocks[0]
    bars = {row[0]: bar for row, bar in zip(grid.rows, grid.bars, strict=True) if bar}
    assert max(side.sure[1] for side in bars["T"].sides) <= 1
    assert bars["tokens"].sides[0].sure[1] == pytest.approx(151616 / 455552, abs=0.001)


@needs_chromium
def test_chromium_draws_both_sides(tmp_path):
    page = run(*COMMANDS["whatif"], "--format", "html")[1]
    asked = "[...document.querySelectorAll('tr.budget .sure')].map(e => e.offsetWidth / e.parentNode.offsetWidth)"
    assert measured(page, asked, tmp_path) == pytest.approx([0.9, 0.95], abs=0.01)


@needs_chromium
@pytest.mark.parametrize("width", [500, 1000])
@pytest.mark.parametrize("command", COMMANDS)
def test_chromium_finds_room_for_every_page(command, width, tmp_path):
    """No page is wider than its window, and where there is room no table scrolls."""
    page = run(*COMMANDS[command], "--format", "html")[1]
    asked = (
        "[document.documentElement.scrollWidth <= innerWidth,"
        "[...document.querySelectorAll('.scroll')].every(e => e.scrollWidth <= e.clientWidth)]"
    )
    fits, unscrolled = measured(page, asked, tmp_path, width)
    assert fits
    assert unscrolled or width < 1000
