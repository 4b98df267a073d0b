"""The commands `probe` and `check`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvforensics import choices, options
from kvforensics.errors import ExitCode, UsageFault
from kvforensics.output import FORMATS, Output, deliver, output, text_of
from kvforensics.report.look import Look
from kvforensics.terminal import complain, ended

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvforensics.checking import Check, Reading
    from kvforensics.probing import ProbeReport, Request
    from kvforensics.report.document import Document

FromLog = Annotated[
    str | None, typer.Option("--log", metavar="LOG", help="Take model, flags and release from a log, and check it.")
]
Device = Annotated[
    str | None, typer.Option(help="cuda, cuda:1, sim:H100-80GB, sim:24GiB,used=3GiB; simulated without a card.")
]
Left = Annotated[
    Path | None,
    typer.Option(
        "--from", metavar="FOLDER",
        help="Start nothing: report from what a probe left that was killed itself, its --keep folder or "
        "kvforensics-probe-... in $TMPDIR or /tmp.",
    ),
]  # fmt: skip
Sequence = Annotated[
    str | None, typer.Option(help="The release whose sequence the torch engine follows; the newest known.")
]
OwnForm = Annotated[
    str | None,
    typer.Option("--format", help=f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]}; else as --out's name says."),
]
_BY_SUFFIX = {
    ".json": "json", ".md": "markdown", ".markdown": "markdown", ".html": "html", ".svg": "svg", ".csv": "csv",
}  # fmt: skip


def register(app: typer.Typer) -> None:
    """Add both commands to the command line."""
    app.command("probe")(probe_command)
    app.command("check")(check_command)


def probe_command(
    model: Annotated[str | None, typer.Option("--model", metavar="X", help=options.MODEL_HELP)] = None,
    log: FromLog = None,
    engine: Annotated[str | None, typer.Option(help="vllm or torch; vllm where it is, with a CUDA device.")] = None,
    device: Device = None,
    engine_version: Sequence = None,
    gpu_memory_utilization: options.Utilization = None,
    max_model_len: options.Count = None,
    max_num_seqs: options.Count = None,
    max_num_batched_tokens: options.Count = None,
    block_size: options.Count = None,
    dtype: options.Dtype = None,
    kv_cache_dtype: options.CacheDtype = None,
    quantization: options.Quantization = None,
    enforce_eager: options.EagerSwitch = None,
    tensor_parallel_size: options.TensorParallel = None,
    pipeline_parallel_size: options.PipelineParallel = None,
    data_parallel_size: options.DataParallel = None,
    decode_context_parallel_size: options.ContextParallel = None,
    kv_cache_memory: options.CacheMemory = None,
    load_format: Annotated[
        str, typer.Option(help="How vLLM gets weights; dummy makes them up, in full size.")
    ] = "dummy",
    repeat: Annotated[int, typer.Option(min=1, max=20, help="Start-ups, each kept apart.")] = 1,
    share: Annotated[bool, typer.Option("--share", help="Run beside others that hold memory on the card.")] = False,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds that one start may take.")] = 1800,
    python: Annotated[Path | None, typer.Option(help="The interpreter that has vLLM or torch.")] = None,
    keep: Annotated[Path | None, typer.Option(help="A new folder for journals and the engine's own log.")] = None,
    left: Left = None,
    tolerance: Annotated[str, typer.Option(help="With --log: what may lie outside, such as 10MiB.")] = "0",
    startup: Annotated[str, typer.Option(help="With --log: which start-up, its number from 1 or last.")] = "last",
    form: OwnForm = None,
    out: options.Out = None,
    no_redact: options.NoRedact = False,
    width: options.Width = None,
    ascii_only: options.AsciiOnly = False,
) -> None:
    """Rerun an engine's start-up on this card, or a simulated one, and measure every term of its ledger."""
    from kvforensics.probe_flags import Flags
    from kvforensics.probing import Request

    def ask() -> int:
        flags = Flags(
            gpu_memory_utilization, max_model_len, max_num_seqs, max_num_batched_tokens, block_size, dtype,
            kv_cache_dtype, quantization, enforce_eager, tensor_parallel_size, pipeline_parallel_size,
            data_parallel_size, decode_context_parallel_size, choices.size_in_bytes(kv_cache_memory),
        )  # fmt: skip
        request = Request(
            model or "", flags, engine, device, engine_version, repeat, share, timeout, load_format,
            str(python) if python else sys.executable, keep,
        )  # fmt: skip
        asked = _output(form, out, Look(width, ascii_only, redact=not no_redact))
        if left is not None:
            if request.model or log is not None or flags.given:
                raise UsageFault("--from tells of starts that were: give it neither a model nor flags nor a log")
            return _probe_left(left, asked)
        if log is not None:
            return _probe_log(
                request, log, choices.chosen_startup(startup), choices.size_in_bytes(tolerance) or 0, asked
            )
        return _probe(request, asked)

    raise typer.Exit(_left_clean(ask))


def check_command(
    log: options.Log,
    probe: Annotated[
        Path | None,
        typer.Argument(metavar="[PROBE]", help="What probe --format json wrote, or its folder; without, it probes."),
    ] = None,
    tolerance: options.Tolerance = "0",
    startup: options.StartUp = "last",
    form: OwnForm = None,
    out: options.Out = None,
    no_redact: options.NoRedact = False,
    width: options.Width = None,
    ascii_only: options.AsciiOnly = False,
) -> None:
    """Put what a log's ledger says beside what a probe measured, term by term; code 1 if a term lies outside."""

    def ask() -> int:
        asked = _output(form, out, Look(width, ascii_only, redact=not no_redact))
        return _check(log, probe, choices.chosen_startup(startup), choices.size_in_bytes(tolerance) or 0, asked)

    raise typer.Exit(_left_clean(ask))


def _left_clean(ask: Callable[[], int]) -> int:
    """Give the exit code, also of what the system refuses and of an end from outside: no process is left whatever it is."""
    from kvforensics.probe_signals import stopped_as_by_ctrl_c

    with stopped_as_by_ctrl_c() as code_of_end:
        try:
            return code_of_end(ended(ask))
        except OSError as fault:
            complain(UsageFault(f"the system refuses: {fault.strerror or fault} {fault.filename or ''}"))
            return ExitCode.USAGE
        except KeyboardInterrupt:
            complain(UsageFault("interrupted; no process is left"))
            return code_of_end(ExitCode.INTERRUPTED)


def _probe(request: Request, asked: Output) -> int:
    if not request.model:
        raise UsageFault("probe needs --model X, --log LOG or --from FOLDER")
    from kvforensics.probe_progress import progress
    from kvforensics.probing import probe

    report = probe(request, progress(request.repeat))
    _deliver(lambda: _probe_text(report, asked), asked)
    return _code(report)


def _deliver(text: Callable[[], str], asked: Output) -> None:
    """Write what a start may have taken long to give."""
    from kvforensics.probe_signals import unhurried

    with unhurried():
        deliver(text(), asked)


def _probe_left(folder: Path, asked: Output) -> int:
    from kvforensics.probing import left

    report = left(folder)
    deliver(_probe_text(report, asked), asked)
    return _code(report)


def _probe_log(request: Request, log: str, which: str | int, tolerance: int, asked: Output) -> int:
    report, check = _measured(request, log, which, tolerance)
    _deliver(lambda: _both_text(report, check, log, asked), asked)
    return _code(report) or _verdict(check)


def _check(log: str, probe: Path | None, which: str | int, tolerance: int, asked: Output) -> int:
    if probe is None:
        from kvforensics.probing import Request

        report, check = _measured(Request(""), log, which, tolerance)
        _deliver(lambda: _check_text(check, log, asked), asked)
        return _code(report) or _verdict(check)
    from kvforensics.checking import check as compare
    from kvforensics.probe_from_log import logged

    reading = _reading(probe)
    check = compare(logged(log, which).startup, reading, tolerance)
    deliver(_check_text(check, log, asked), asked)
    return _verdict(check)


def _measured(request: Request, log: str, which: str | int, tolerance: int) -> tuple[ProbeReport, Check]:
    """Probe as a log says, and check it against what was measured."""
    from kvforensics.checking import check, reading_of
    from kvforensics.probe_from_log import logged, model_here
    from kvforensics.probe_progress import progress
    from kvforensics.probing import probe

    told = logged(log, which)
    asked = request._replace(
        model=request.model or model_here(told, log), flags=request.flags.over(told.flags), card=told.card,
        engine_version=request.engine_version or told.version,
    )  # fmt: skip
    report = probe(asked, progress(request.repeat))
    return report, check(told.startup, reading_of(report), tolerance)


def _reading(path: Path) -> Reading:
    from kvforensics.report.probe_json import UnreadableProbe, read

    if path.is_dir():
        from kvforensics.checking import reading_of
        from kvforensics.probing import left

        return reading_of(left(path))
    try:
        return read(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise UnreadableProbe(f"cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise UnreadableProbe(f"{path} is no text; pass what kvforensics probe --format json wrote") from None


def _code(report: ProbeReport) -> int:
    if report.interrupted:
        from kvforensics.report.probe_document import last_words

        complain(UsageFault(f"{last_words(report)}; no process is left"))
        return ExitCode.INTERRUPTED
    return ExitCode.FOUND if report.died else ExitCode.ANSWERED


def _verdict(check: Check) -> int:
    from kvforensics.checking import NOTHING, OUTSIDE

    return {OUTSIDE: ExitCode.FOUND, NOTHING: ExitCode.NOTHING}.get(check.verdict, ExitCode.ANSWERED)


def _probe_text(report: ProbeReport, asked: Output) -> str:
    from kvforensics.report import probe_document, probe_json

    return text_of(
        lambda: (probe_document.probe_document(report, asked.look),), lambda: probe_json.render(report), asked
    )


def _check_text(check: Check, log: str, asked: Output) -> str:
    from kvforensics.report import check_document, check_json

    return text_of(
        lambda: (check_document.check_document(check, log, asked.look),), lambda: check_json.render(check, log), asked
    )


def _both_text(report: ProbeReport, check: Check, log: str, asked: Output) -> str:
    from kvforensics.report import check_document, probe_document

    def both() -> tuple[Document, ...]:
        look = asked.look
        return (probe_document.probe_document(report, look), check_document.check_document(check, log, look))

    def as_json() -> str:
        import json

        from kvforensics.report.check_json import check_object
        from kvforensics.report.probe_json import probe_object

        return json.dumps({**probe_object(report), "check": check_object(check, log)}, ensure_ascii=False)

    return text_of(both, as_json, asked)


def _output(form: str | None, file: Path | None, look: Look) -> Output:
    """Settle where the answer goes before anything is begun; a file's name tells its form where --format does not."""
    if form is None:
        form = _BY_SUFFIX.get(file.suffix.lower(), "table") if file else "table"
    return output(form, look, file)
