"""The commands `probe` and `check`."""

from __future__ import annotations

import sys
from pathlib import Path  # noqa: TC003 - typer reads the annotations at run time
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kvforensics import options
from kvforensics.errors import ExitCode, UsageFault
from kvforensics.report.look import Look
from kvforensics.terminal import complain, ended, write

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvforensics.checking import Check, Reading
    from kvforensics.probing import ProbeReport, Request
    from kvforensics.report.document import Document

FORMATS = ("table", "markdown", "json")
INTERRUPTED = 130
"""The code of a process that Ctrl-C ended, by the shell's convention."""
OwnForm = Annotated[str | None, typer.Option("--format", help="table, markdown or json; else as --out's name says.")]
_BY_SUFFIX = {".json": "json", ".md": "markdown", ".markdown": "markdown"}


class Output(NamedTuple):
    """Where an answer goes, and in which form."""

    form: str
    look: Look
    file: Path | None


def register(app: typer.Typer) -> None:
    """Add both commands to the command line."""
    app.command("probe")(probe_command)
    app.command("check")(check_command)


def probe_command(
    model: Annotated[str | None, typer.Option("--model", metavar="X", help=options.MODEL_HELP)] = None,
    log: Annotated[
        str | None, typer.Option(metavar="LOG", help="Take model, flags and release from a log, and check it.")
    ] = None,
    engine: Annotated[str | None, typer.Option(help="vllm or torch; vllm where it is, with a CUDA device.")] = None,
    device: Annotated[
        str | None, typer.Option(help="cuda, cuda:1, sim:H100-80GB, sim:24GiB,used=3GiB; simulated without a card.")
    ] = None,
    engine_version: Annotated[
        str | None, typer.Option(help="The release whose sequence the torch engine follows; the newest known.")
    ] = None,
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
    tolerance: Annotated[str, typer.Option(help="With --log: what may lie outside, such as 10MiB.")] = "0",
    startup: Annotated[str, typer.Option(help="With --log: which start-up, its number from 1 or last.")] = "last",
    form: OwnForm = None,
    out: options.Out = None,
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
            data_parallel_size, decode_context_parallel_size, options.size_in_bytes(kv_cache_memory),
        )  # fmt: skip
        request = Request(
            model or "", flags, engine, device, engine_version, repeat, share, timeout, load_format,
            str(python) if python else sys.executable, keep,
        )  # fmt: skip
        output = _output(form, out, Look(width, ascii_only))
        if log is not None:
            return _probe_log(
                request, log, options.chosen_startup(startup), options.size_in_bytes(tolerance) or 0, output
            )
        return _probe(request, output)

    raise typer.Exit(_left_clean(ask))


def check_command(
    log: options.Log,
    probe: Annotated[
        Path | None,
        typer.Argument(metavar="[PROBE.json]", help="What probe --format json wrote; without, it probes."),
    ] = None,
    tolerance: options.Tolerance = "0",
    startup: options.StartUp = "last",
    form: OwnForm = None,
    out: options.Out = None,
    width: options.Width = None,
    ascii_only: options.AsciiOnly = False,
) -> None:
    """Put what a log's ledger says beside what a probe measured, term by term; code 1 if a term lies outside."""

    def ask() -> int:
        output = _output(form, out, Look(width, ascii_only))
        return _check(log, probe, options.chosen_startup(startup), options.size_in_bytes(tolerance) or 0, output)

    raise typer.Exit(_left_clean(ask))


def _left_clean(ask: Callable[[], int]) -> int:
    """Give the exit code, also of what the system refuses and of Ctrl-C: no process is left whatever it is."""
    try:
        return ended(ask)
    except OSError as fault:
        complain(UsageFault(f"the system refuses: {fault.strerror or fault} {fault.filename or ''}"))
        return ExitCode.USAGE
    except KeyboardInterrupt:
        complain(UsageFault("interrupted; no process is left"))
        return INTERRUPTED


def _probe(request: Request, output: Output) -> int:
    if not request.model:
        raise UsageFault("probe needs --model X or --log LOG")
    from kvforensics.probe_progress import progress
    from kvforensics.probing import probe

    report = probe(request, progress(request.repeat))
    _deliver(_probe_text(report, output), output)
    return _code(report)


def _probe_log(request: Request, log: str, which: str | int, tolerance: int, output: Output) -> int:
    report, check = _measured(request, log, which, tolerance)
    _deliver(_both_text(report, check, log, output), output)
    return _code(report) or _verdict(check)


def _check(log: str, probe: Path | None, which: str | int, tolerance: int, output: Output) -> int:
    if probe is None:
        from kvforensics.probing import Request

        report, check = _measured(Request(""), log, which, tolerance)
        _deliver(_check_text(check, log, output), output)
        return _code(report) or _verdict(check)
    from kvforensics.checking import check as compare
    from kvforensics.probe_from_log import logged

    reading = _reading(probe)
    check = compare(logged(log, which).startup, reading, tolerance)
    _deliver(_check_text(check, log, output), output)
    return _verdict(check)


def _measured(request: Request, log: str, which: str | int, tolerance: int) -> tuple[ProbeReport, Check]:
    """Probe as a log says, and check it against what was measured."""
    from kvforensics.checking import check, reading_of
    from kvforensics.probe_from_log import logged
    from kvforensics.probe_progress import progress
    from kvforensics.probing import probe

    told = logged(log, which)
    model = request.model or told.model
    if not model:
        raise UsageFault(f"{log} names no model: add --model X")
    asked = request._replace(
        model=model, flags=request.flags.over(told.flags), card=told.card,
        engine_version=request.engine_version or told.version,
    )  # fmt: skip
    report = probe(asked, progress(request.repeat))
    return report, check(told.startup, reading_of(report), tolerance)


def _reading(path: Path) -> Reading:
    from kvforensics.report.probe_json import UnreadableProbe, read

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
        return INTERRUPTED
    return ExitCode.FOUND if report.died else ExitCode.ANSWERED


def _verdict(check: Check) -> int:
    from kvforensics.checking import NOTHING, OUTSIDE

    return {OUTSIDE: ExitCode.FOUND, NOTHING: ExitCode.NOTHING}.get(check.verdict, ExitCode.ANSWERED)


def _probe_text(report: ProbeReport, output: Output) -> str:
    if output.form == "json":
        from kvforensics.report.probe_json import render

        return render(report)
    from kvforensics.report.probe_document import probe_document

    return _people((probe_document(report, output.look),), output)


def _check_text(check: Check, log: str, output: Output) -> str:
    if output.form == "json":
        from kvforensics.report.check_json import render

        return render(check, log)
    from kvforensics.report.check_document import check_document

    return _people((check_document(check, log, output.look),), output)


def _both_text(report: ProbeReport, check: Check, log: str, output: Output) -> str:
    if output.form == "json":
        import json

        from kvforensics.report.check_json import check_object
        from kvforensics.report.probe_json import probe_object

        return json.dumps({**probe_object(report), "check": check_object(check, log)}, ensure_ascii=False)
    from kvforensics.report.check_document import check_document
    from kvforensics.report.probe_document import probe_document

    return _people((probe_document(report, output.look), check_document(check, log, output.look)), output)


def _people(documents: tuple[Document, ...], output: Output) -> str:
    from kvforensics.report.document import rendered

    return rendered(documents, output.form, output.look, colour=output.file is None and sys.stdout.isatty())


def _deliver(text: str, output: Output) -> None:
    if output.file is None:
        write(text)
        return
    from kvforensics.output_file import write_whole

    write_whole(output.file, text)


def _output(form: str | None, file: Path | None, look: Look) -> Output:
    """Settle where the answer goes before anything is begun; a file's name tells its form where --format does not."""
    if form is None:
        form = _BY_SUFFIX.get(file.suffix.lower(), "table") if file else "table"
    options.check_choice("--format", form, FORMATS)
    if file is not None:
        from kvforensics.output_file import check_writable

        check_writable(file)
    return Output(form, look, file)
