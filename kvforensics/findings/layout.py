"""How the cache is laid out: dtype without gain, scales, inflated blocks, padding, windows priced at full length."""

from __future__ import annotations

from kvforensics.findings.case import DEFAULT_BLOCK, Case, low, merged, printed
from kvforensics.findings.finding import NOTE, WARNING, Action, Cost, Finding, FindingRule, Threshold
from kvforensics.report.sizes import gib_text, whole
from reconstruct.interval import ANYTHING, Interval

INFLATED = Threshold("INFLATED", 2, "twice the asked block: a short request then wastes more than a plain block")
LARGEST_ASKED = Threshold(
    "LARGEST_ASKED", 256, "the largest --block-size that vLLM's choices offer, where none is stated"
)
PADDING_SMALL = Threshold("PADDING_SMALL", 1.0, "per cent; below it padding is smaller than the planner's own rounding")
PADDING_LARGE = Threshold("PADDING_LARGE", 5.0, "per cent; from here it is worth another layout or release")


def _smaller_dtype(case: Case) -> str | None:
    asked = case.ledger.settings.text("kv_cache_dtype") or ""
    told = [t for s in case.of("kv_cache_dtype_used") if (t := s.text("kv_cache_dtype_used"))]
    names = [*told, asked]
    return next((n for n in names if n.startswith(("fp8", "int8", "nvfp4", "turboquant"))), None)


def _kv_dtype_no_gain(case: Case) -> Finding | None:
    dtype, pinned = _smaller_dtype(case), case.of("attention_block_size")
    if dtype is None or not pinned:
        return None
    size = printed(pinned[-1], "block_size")
    detail = (
        f"The KV cache is {dtype}, but the state page of the model pins the bytes of a block: the block grew to "
        f"{whole(size)} tokens instead "
        "of becoming smaller. Long requests gain; short ones, and the state blocks, do not."
    )
    lines = merged(case.lines("attention_block_size", "kv_cache_dtype_used"), case.setting_lines("kv_cache_dtype"))
    return Finding("kv-dtype-no-gain", NOTE, f"{dtype} makes no block smaller", detail, lines)


def _kv_scales_missing(case: Case) -> Finding | None:
    ones = [s for s in case.of("kv_scale") if float(s.text("scale") or 0) == 1]
    missing = case.of("scale_missing")
    if not (ones or missing):
        return None
    detail = (
        "The checkpoint brings no scales for an fp8 KV cache, so 1.0 is used. That is a question of accuracy, "
        "not of capacity: the pool holds as many tokens with scales as without."
    )
    action = Action("a checkpoint with k/v scales", (), "")
    lines = merged(tuple(s.line for s in ones), case.lines("scale_missing"))
    return Finding("kv-scales-missing", NOTE, "fp8 KV without scales", detail, lines, actions=(action,))


def _block_inflated(case: Case) -> Finding | None:
    said = case.of("attention_block_size")
    if not said:
        return None
    size = printed(said[-1], "block_size")
    settings = case.ledger.settings
    asked = settings.number("block_size") or (DEFAULT_BLOCK if settings.lists_changes else int(LARGEST_ASKED.value))
    inflated = low(size) >= INFLATED.value * asked
    detail = (
        f"The attention block was raised to {whole(size)} tokens so that its page is not smaller than the "
        f"state's page. A request occupies whole blocks: one of 100 tokens holds {whole(size)}."
    )
    severity = WARNING if inflated else NOTE
    return Finding(
        "block-inflated", severity, f"A block holds {whole(size)} tokens", detail, tuple(s.line for s in said)
    )


def _padding_waste(case: Case) -> Finding | None:
    said = [s for s in case.of("padding_layers", "mamba_padding") if s.text("waste_percent")]
    if not said:
        return None
    worst = max(said, key=lambda s: float(s.text("waste_percent") or 0))
    share = float(worst.text("waste_percent") or 0)
    pool = case.value("kv_pool_memory")
    top = None if pool.high is None or pool.high < 0 else int(pool.high * share / 100)
    if worst.kind == "padding_layers":
        layers = worst.text("padding_layers")
        detail = (
            f"{layers} layers are added so that the cache groups are alike; at most {share} % of the pool is wasted."
        )
    else:
        detail = f"The state page is padded by {share} % to the attention page; as much of the state blocks is wasted."
    detail += f" That is {gib_text(Interval(None, top))} here." if top else ""
    severity = WARNING if share >= PADDING_LARGE.value else NOTE
    if share < PADDING_SMALL.value:
        detail += " It is too small to matter."
    cost = case.cost(Interval(0, top)) if top is not None else Cost(Interval(0, None), Interval(0, None))
    lines = tuple(s.line for s in said)
    return Finding("padding-waste", severity, f"Up to {share} % of the pool is padding", detail, lines, cost)


def _hybrid_manager_disabled(case: Case) -> Finding | None:
    said = case.of("hybrid_manager_disabled", "windows_unified")
    if not said:
        return None
    general = all(s.text("reason") for s in said)
    reason = next((s.text("reason") for s in said if s.text("reason")), None)
    detail = "Layers with a sliding window are given cache for the full length, as if they had none."
    if general:
        detail = f"The manager that keeps windowed layers small is off ({reason}). "
        detail += "A model without such layers loses nothing by it."
    action = Action(
        "a release or setting that keeps the hybrid manager", (), "the feature that turned it off may be wanted"
    )
    lines = tuple(s.line for s in said)
    severity = NOTE if general else WARNING
    cost = Cost(Interval(0, None), Interval(0, None)) if case.value("kv_pool_memory") != ANYTHING else Cost()
    return Finding(
        "hybrid-manager-disabled", severity, "Windowed layers are priced at full length", detail, lines, cost, (action,)
    )


RULES = (
    FindingRule(
        "kv-dtype-no-gain",
        (NOTE,),
        "Which dtype is in force, and the state page that pins the block.",
        "A smaller KV dtype was asked for, and the block's bytes are pinned by a state page.",
        ("kv_cache_dtype", "attention_block_size"),
        _kv_dtype_no_gain,
    ),
    FindingRule(
        "kv-scales-missing",
        (NOTE,),
        "That it is accuracy, not capacity.",
        "The engine warns that fp8 KV falls back to scales of 1.0.",
        ("kv_scale", "scale_missing"),
        _kv_scales_missing,
    ),
    FindingRule(
        "block-inflated",
        (WARNING, NOTE),
        "Tokens per block, and what a short request holds.",
        "The attention block was raised to match a state page; a note below twice the asked size.",
        ("attention_block_size", "block_size"),
        _block_inflated,
        (INFLATED, LARGEST_ASKED),
    ),
    FindingRule(
        "padding-waste",
        (WARNING, NOTE),
        "The share wasted.",
        "The planner added padding layers or padded a state page; a warning from 5 %.",
        ("padding_layers", "mamba_padding", "kv_pool_memory"),
        _padding_waste,
        (PADDING_SMALL, PADDING_LARGE),
    ),
    FindingRule(
        "hybrid-manager-disabled",
        (WARNING, NOTE),
        "That windowed layers cost full length.",
        "The engine says so; a note where the reason given is general and the model may have no such layers.",
        ("hybrid_manager_disabled", "windows_unified"),
        _hybrid_manager_disabled,
    ),
)
