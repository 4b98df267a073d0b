"""Hold `whatif` against pairs of real logs that differ in settings: `python check_whatif_pairs.py FOLDER [CARD [CONFIGS]]`.

Every log of a model is changed into every other by the settings that differ; the other's true M, blocks and tokens must lie
in what is predicted. CONFIGS is a folder of config.json files named org--model.json. No part of the test suite.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kvforensics.explanation import NothingToExplain, explain
from kvforensics.planning import NoConfig, config_of
from reconstruct.change import Change, effect, tightest
from reconstruct.interval import Interval
from reconstruct.rounding import GIB

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconstruct.change import Effect
    from reconstruct.ledger import StartUpLedger

SETTINGS = (
    "gpu_memory_utilization", "kv_cache_dtype", "max_model_len", "max_num_batched_tokens", "max_num_seqs",
    "tensor_parallel_size", "pipeline_parallel_size", "enforce_eager",
)  # fmt: skip
HELD = ("dtype", "load_format", "data_parallel_size", "enable_lora", "speculative_config", "num_gpu_blocks_override")
FIGURES = ("available_kv_cache_memory", "num_blocks", "kv_cache_tokens", "max_concurrency")
SUFFIXES = {"-fp8-dynamic": "fp8"}
"""Checkpoints quantised as `--quantization` would quantise them while loading."""


class Start(NamedTuple):
    name: str
    base: str
    quantized: str | None
    startup: StartUpLedger


def starts(folder: Path) -> list[Start]:
    found = []
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        try:
            startup = explain(str(path)).startups[-1]
        except (NothingToExplain, ValueError):
            continue
        model = startup.settings.text("model")
        if startup.outcome != "ready" or model is None or not startup.engines:
            continue
        name = model.rpartition("/")[2]
        suffix = next((s for s in SUFFIXES if name.endswith(s)), None)
        base = (name.removesuffix(suffix) if suffix else name).casefold()
        found.append(Start(path.name, base, SUFFIXES.get(suffix or ""), startup))
    return found


def change_between(first: Start, second: Start) -> Change | None:
    """The change that turns one start into the other; None where something else differs too."""
    a, b = first.startup, second.startup
    if first.base != second.base or a.version.span != b.version.span or second.quantized == first.quantized is not None:
        return None
    if any(a.settings.get(name) != b.settings.get(name) for name in HELD) or (first.quantized and not second.quantized):
        return None
    totals = [s.startup.engines[0].ranks[0].account.interval("total_memory") for s in (first, second)]
    if totals[0].meet(totals[1]) is None:
        return None
    asked = {n: b.settings.get(n) for n in SETTINGS if a.settings.get(n) != b.settings.get(n)}
    if any(value is None for value in asked.values()):
        return None
    if second.quantized and not first.quantized:
        asked["quantization"] = second.quantized
    elif a.settings.get("quantization") != b.settings.get("quantization"):
        return None
    return Change(**asked) if asked else Change()  # type: ignore[arg-type]


def truth(start: Start, name: str) -> Interval:
    engine = tightest(start.startup.engines)
    if name == "available_kv_cache_memory":
        pools = [r.account.interval(name) for r in engine.ranks]
        lows, highs = [p.low for p in pools], [p.high for p in pools if p.high is not None]
        low = None if None in lows else min(v for v in lows if v is not None)
        return Interval(low, min(highs, default=None))  # the poorest rank's, which need not have printed it
    return engine.capacity.interval(name)


def judged(found: Effect, second: Start) -> tuple[bool, list[str]]:
    cells, inside = [], True
    for name in FIGURES:
        predicted, real = found.after(name), truth(second, name)
        hit = predicted.meet(real) is not None
        inside &= hit
        width = "open" if predicted.width is None else (
            f"{predicted.width / GIB:.3f} GiB" if name == FIGURES[0] else f"{predicted.width:.6g}"
        )  # fmt: skip
        share = f" ({predicted.width / real.high:.2%})" if predicted.width is not None and real.high else ""
        cells.append(f"{name} {'in' if hit else 'OUT'} width {width}{share}")
    return inside, cells


def config(start: Start, configs: Path | None) -> Mapping[str, object] | None:
    try:
        return config_of(start.startup.settings.text("model") or "", configs)
    except NoConfig:
        return None


def main() -> int:
    folder, card = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None
    configs = Path(sys.argv[3]) if len(sys.argv) > 3 else None
    found = starts(folder)
    hits = pairs = 0
    lines: list[str] = []
    for first in found:
        for second in found:
            change = change_between(first, second) if first is not second else None
            if change is None:
                continue
            predicted = effect(first.startup, change, config(first, configs), card)
            inside, cells = judged(predicted, second)
            pairs, hits = pairs + 1, hits + inside
            asked = " ".join(change.flags) or "the same settings"
            mark = "in " if inside else "OUT"
            lines.append(f"{mark} {len(change.named)} {first.name} -> {second.name}: {asked}: {predicted.outcome}")
            lines += [f"      {cell}" for cell in cells]
    sys.stdout.write("\n".join([*lines, f"{hits} of {pairs} pairs inside"]) + "\n")
    return 0 if hits == pairs else 1


if __name__ == "__main__":
    sys.exit(main())
