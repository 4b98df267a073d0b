"""The answer to `blocks`, laid out for people."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from kvforensics.report.brief_lines import BriefLine
from kvforensics.report.document import Document, Grid, Listing, figures_of
from kvforensics.report.redaction import quoted
from kvforensics.report.sizes import bytes_text, gib_text, ratio, whole
from reconstruct.interval import Interval
from reconstruct.planner.spec import MAMBA, MLA_LIKE
from reconstruct.quantities import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvforensics.blocks import Blocks, LikeLayers
    from kvforensics.report.look import Look
    from reconstruct.ledger import Quantity
    from reconstruct.planner.result import GroupPlan, RankPlan
    from reconstruct.planner.spec import LayerSpec

MOODS = {"starts": "good", "may start": "open", "does not start": "bad", "fits no stated memory": "plain"}
SOURCES = {
    "given": "config {place}",
    "cache": "local Hugging Face cache",
    "catalogue": "catalogue, by this id",
    "hub": "Hugging Face hub",
}
MEANINGS = {
    "kv_pool_memory": "memory of one rank for the cache",
    "bytes_per_block": "bytes of one block, all layers of a rank",
    "block_size": "tokens in a block",
    "request_bytes_per_token": "bytes that each token of a request adds",
    "request_fixed_bytes": "bytes of a request whatever its length, windows full",
    "padding_share": "share of the blocks that holds no content",
    "num_blocks": "blocks in the pool",
    "kv_cache_bytes": "blocks x bytes of one",
    "unused_kv_memory": "memory that fills no block",
    "kv_cache_tokens": "tokens, as this release counts them",
    "max_model_len": "longest request asked for",
    "max_concurrency": "such requests at once",
    "longest_request": "longest request that fits",
}
"""Every figure in the order shown, and what it says."""
ONE_POOL = (
    "All groups take blocks from one pool: a block is one group's at a time, and the first layers of the groups share the "
    "same memory, the second layers theirs, and so on."
)
RUNS_SHOWN = 6
"""Runs of layer numbers named before the rest is counted."""


def blocks_document(found: Blocks, engines: int, look: Look) -> Document:
    """Lay out one answer; `engines` is the data-parallel size."""
    plan = found.plan
    stages = _distinct(plan.ranks) if plan else []
    several = plan is not None and len({rank.stage for rank in plan.ranks}) > 1
    body: list[Grid | Listing] = [_figures(found)] if found.account.quantities else []
    if found.layers:
        body.append(_layers(found.layers, several=several))
    for names, rank in stages:
        body += _stage(rank, f" of {names}" if several else "")
    missing = _missing(found)
    if missing:
        body.append(Listing("Missing", missing))
    headline, facts = _headline(found, look), _facts(found, engines, look)
    return Document(
        headline,
        MOODS[found.outcome],
        facts,
        tuple(body),
        figures=tuple(figures_of(found.account, quoted(found.model, mask=look.redact))),
        brief=_brief(found, headline, dict(facts)),
    )


def _brief(found: Blocks, headline: str, facts: dict[str, str]) -> tuple[BriefLine, ...]:
    reason = facts.get("refused") or facts.get("at the low end")
    return (
        BriefLine("model", headline),
        BriefLine("block", _told(found, "bytes_per_block", "block_size") or "no block: the launch is refused"),
        BriefLine("holds", _told(found, "num_blocks", "kv_cache_tokens", "max_concurrency") or "not known"),
        BriefLine("length", reason or _told(found, "longest_request", "max_model_len") or "not known"),
        BriefLine("as", f"{facts['parallel']}; {facts['dtypes']}; {facts['config']}"),
    )


def _told(found: Blocks, *names: str) -> str:
    held = found.account.quantities
    return "; ".join(f"{MEANINGS[name]}: {_value(held[name])}" for name in names if name in held)


def _headline(found: Blocks, look: Look) -> str:
    version = found.launch.engine_version
    name = quoted(found.model, mask=look.redact)
    if found.memory is None and not found.reason:
        return f"{name} on vLLM {version}: the cache's layout"
    memory = f" with {gib_text(found.memory)} for the cache" if found.memory else ""
    return f"{name} on vLLM {version}{memory}: {found.outcome}"


def _facts(found: Blocks, engines: int, look: Look) -> tuple[tuple[str, str], ...]:
    launch = found.launch
    source = SOURCES[found.found.source].format(place=quoted(found.found.place, mask=look.redact))
    parallel = f"TP {launch.tensor_parallel_size}, PP {launch.pipeline_parallel_size}"
    parallel += f", DCP {launch.decode_context_parallel_size}" if launch.decode_context_parallel_size > 1 else ""
    parallel += f", DP {engines}: each engine has a cache like this" if engines > 1 else ""
    draft = launch.speculative_config
    rows = (
        ("config", source),
        ("parallel", parallel),
        ("dtypes", f"model {launch.dtype}, cache {launch.kv_cache_dtype}"),
        ("draft", f"{draft.method}, {draft.num_speculative_tokens} tokens" if draft else ""),
        ("device", launch.device),
        (
            "refused" if found.outcome == "does not start" else "at the low end",
            quoted(found.reason, mask=look.redact, most=400),
        ),
    )
    return tuple((label, text) for label, text in rows if text)


def _figures(found: Blocks) -> Grid:
    held = found.account.quantities
    rows = [(_symbol(name), MEANINGS[name], _value(held[name]), held[name].origin) for name in MEANINGS if name in held]
    return Grid("One rank", ("", "", "value", "source"), tuple(rows))


def _symbol(name: str) -> str:
    return name if name not in BY_NAME else BY_NAME[name].symbol or name


def _value(quantity: Quantity) -> str:
    interval = quantity.interval
    if quantity.name in {"bytes_per_block", "request_fixed_bytes"}:
        return bytes_text(interval)
    if quantity.unit == "B/token":
        return f"{ratio(interval)} B"
    if quantity.name == "padding_share":
        return _percent(interval.high or 0)
    if quantity.unit == "B":
        return gib_text(interval)
    return ratio(interval) if quantity.unit == "1" else whole(interval)


def _percent(share: float) -> str:
    return f"{100 * share:.2f}".rstrip("0").rstrip(".") + " %"


def _layers(layers: Sequence[LikeLayers], *, several: bool) -> Grid:
    heads = ("layers", "count", "kind", "block", "stores")
    rows = []
    for like in layers:
        place = f"stage {like.stage}: " if several else ""
        spec = like.spec
        rows.append(
            (place + numbers(like.layers), str(len(like.layers)), kind(spec), str(spec.block_size), _stores(spec))
        )
    return Grid("Layers", heads, tuple(rows), ("count", "block"))


def kind(spec: LayerSpec) -> str:
    """Name a spec's kind, with its window."""
    name = spec.kind.removesuffix("Spec")
    if spec.sliding_window is not None:
        return f"{name} {spec.sliding_window}"
    if spec.attention_chunk_size is not None:
        return f"{name} {spec.attention_chunk_size}"
    return name


def _stores(spec: LayerSpec) -> str:
    """Say what a layer keeps of a token, or of a sequence."""
    if spec.kind == MAMBA:
        return ", ".join(
            f"{'x'.join(map(str, shape))} {dtype}" for shape, dtype in zip(spec.shapes, spec.dtypes, strict=True)
        )
    quantised = "" if spec.kv_quant_mode == "NONE" else f", {spec.kv_quant_mode.lower()}"
    if spec.kind in MLA_LIKE:
        return f"{spec.head_size} {spec.dtype}{quantised}"
    values = spec.head_size_v or spec.head_size
    width = f"2 x {spec.head_size}" if values == spec.head_size else f"({spec.head_size} + {values})"
    return f"{spec.num_kv_heads} heads x {width} {spec.dtype}{quantised}"


def _stage(rank: RankPlan, where: str) -> list[Grid | Listing]:
    """Give a stage's groups: which layers share what, and where padding goes."""
    heads = ("group", "kind", "layers", "page, B", "block", "padding", "blocks of a request")
    rows = tuple(_group(i, group) for i, group in enumerate(rank.groups, start=1))
    title = f"Groups{where}: {bytes_text(Interval.exactly(rank.bytes_per_block))} a block"
    grid = Grid(title, heads, rows, ("page, B", "block", "padding", "blocks of a request"))
    return [grid, Listing("Who shares what", _sharing(rank))] if len(rank.groups) > 1 else [grid]


def _group(number: int, group: GroupPlan) -> tuple[str, ...]:
    pages = sorted(set(group.pages))
    sizes = " / ".join(f"{page:,}" for page in pages)
    blocks = f"{group.blocks_per_request:,}" + ("" if group.grows else ", fixed")
    name = group.kind.removesuffix("Spec")
    share = _percent(group.padding_share)
    return (str(number), name, numbers(group.layers), sizes, str(group.block_size), share, blocks)


def _sharing(rank: RankPlan) -> tuple[str, ...]:
    """Say how groups lie over each other, and what that wastes."""
    narrow: dict[int, list[int]] = {}
    padded: dict[int, list[int]] = {}
    for i, group in enumerate(rank.groups, start=1):
        narrow.setdefault(group.padding_bytes, []).append(i)
        padded.setdefault(group.page_padding_bytes, []).append(i)
    found = [ONE_POOL]
    for size, groups in narrow.items():
        if size:
            found.append(
                f"{_named(groups)}: {bytes_text(Interval.exactly(size))} of a block stay empty, a group is wider."
            )
    for size, groups in padded.items():
        if size:
            found.append(
                f"{_named(groups)}: pages padded by {bytes_text(Interval.exactly(size))} a block, to be alike."
            )
    return tuple(found)


def _named(groups: Sequence[int]) -> str:
    return f"Group {groups[0]}" if len(groups) == 1 else f"Groups {numbers(groups)}"


def _distinct(ranks: Sequence[RankPlan]) -> list[tuple[str, RankPlan]]:
    """Give one rank of each stage; stages come in order."""
    first: dict[int, RankPlan] = {}
    for rank in ranks:
        first.setdefault(rank.stage, rank)
    return [(f"stage {stage}", first[stage]) for stage in sorted(first)]


def _missing(found: Blocks) -> tuple[str, ...]:
    reasons: dict[str, list[str]] = {}
    for missing in found.account.missing.values():
        reasons.setdefault(missing.reason, []).append(_symbol(missing.name))
    return tuple(f"{', '.join(names)}: {reason}" for reason, names in reasons.items())


def numbers(layers: Sequence[int]) -> str:
    """Give numbers in runs, `0-27` or `0-2, 4-6 and 9 more`; every k-th one as `0-22 step 2`."""
    if not layers:
        return "none"
    if len(layers) == 1:
        return str(layers[0])
    steps = {b - a for a, b in pairwise(layers)}
    if steps == {1}:
        return f"{layers[0]}-{layers[-1]}"
    if len(steps) == 1 and len(layers) > 2:
        return f"{layers[0]}-{layers[-1]} step {steps.pop()}"
    runs: list[list[int]] = []
    for layer in layers:
        if runs and layer == runs[-1][-1] + 1:
            runs[-1].append(layer)
        else:
            runs.append([layer])
    texts = [f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
    more = f" and {len(texts) - RUNS_SHOWN} more" if len(texts) > RUNS_SHOWN + 1 else ""
    return ", ".join(texts[:RUNS_SHOWN] if more else texts) + more
