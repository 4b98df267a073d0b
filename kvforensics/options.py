"""Options that several commands share: how each is written, and what its text says."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvforensics.output import FORMATS

LOG_HELP = "A log file; - reads standard input. .gz and .zst too."
MODEL_HELP = "A model's id, its config.json, or a folder with one."

Log = Annotated[str, typer.Argument(metavar="LOG", help=LOG_HELP)]
Model = Annotated[str, typer.Argument(metavar="MODEL", help=MODEL_HELP)]
StartUp = Annotated[str, typer.Option("--startup", help="Which start-up: its number from 1, or last.")]
Form = Annotated[str, typer.Option("--format", help=f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]}.")]
Brief = Annotated[
    bool, typer.Option("--brief", help="Five lines for a ticket's first comment: table, markdown, jira or slack.")
]
NoRedact = Annotated[
    bool, typer.Option("--no-redact", help="Keep the names, addresses and keys that are masked in what is quoted.")
]
Out = Annotated[Path | None, typer.Option("--out", help="Write to a file, whole or not at all.")]
Width = Annotated[int | None, typer.Option(min=40, max=400, help="Columns to fill; the terminal's, else 80.")]
AsciiOnly = Annotated[bool, typer.Option("--ascii", help="No characters beyond ASCII.")]
Config = Annotated[
    Path | None, typer.Option(help="The model's config.json, or the folder that holds it: its cache geometry.")
]
Fetch = Annotated[bool, typer.Option("--fetch", help="Ask the Hugging Face hub for the config.")]
Gpu = Annotated[str | None, typer.Option(help="The card, such as H100-80GB: bounds its total memory.")]
TotalMemory = Annotated[str | None, typer.Option(help="What the driver reports: 79.19GiB or bytes.")]
Sets = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Add a fact the log lacks.")]
Tolerance = Annotated[str, typer.Option(help="What may lie outside, such as 10MiB.")]

Utilization = Annotated[float | None, typer.Option(min=0.01, max=1.0)]
Count = Annotated[int | None, typer.Option(min=1)]
"""Lengths, batches and block sizes: at least one, the engine's default where unset."""
TensorParallel = Annotated[int | None, typer.Option("--tensor-parallel-size", "--tp", min=1)]
PipelineParallel = Annotated[int | None, typer.Option("--pipeline-parallel-size", "--pp", min=1)]
DataParallel = Annotated[int | None, typer.Option("--data-parallel-size", "--dp", min=1)]
ContextParallel = Annotated[int | None, typer.Option("--decode-context-parallel-size", "--dcp", min=1)]
CacheDtype = Annotated[str | None, typer.Option(help="auto, fp8, bfloat16, ...")]
Dtype = Annotated[str | None, typer.Option(help="The model's: auto, bfloat16, float16, float32.")]
Quantization = Annotated[str | None, typer.Option(help="Quantise weights while loading: fp8, ...")]
EngineVersion = Annotated[str | None, typer.Option(help="A release of vLLM; the newest known by default.")]
CacheMemory = Annotated[
    str | None, typer.Option("--kv-cache-memory", "--kv-cache-memory-bytes", help="The pool: bytes or 40GiB.")
]
EagerSwitch = Annotated[bool | None, typer.Option("--enforce-eager/--no-enforce-eager")]
