"""What eats the budget before the pool: the activation peak, the encoder, cold compilation, drafters, adapters."""

from __future__ import annotations

from kvforensics.findings.case import DRAFTER, Case, low, merged, printed
from kvforensics.findings.finding import NOTE, WARNING, Action, Finding, FindingRule, Threshold, Unsaid
from kvforensics.report.sizes import gib_text, percent, whole
from parsers.tuples import NamedTuple
from reconstruct.interval import ANYTHING, Interval
from reconstruct.ledger import is_measured

OF_BUDGET = Threshold("OF_BUDGET", 0.10, "a tenth of the budget; 25 starts of 0.19.0 on H100 lie at 1.0 to 5.3 %")
OF_POOL = Threshold("OF_POOL", 0.50, "half as much as the pool: halving the peak then gains a quarter of it")
ABOVE_MODEL = Threshold(
    "ABOVE_MODEL", 0.10, "a tenth above the model's band; 27 starts of 0.19.0 on H100, all compiled anew, lie within it"
)
SURE_MODEL = Threshold("SURE_MODEL", 0.15, "half a band of the model's peak: a wider one answers nothing")
DECIDE_PEAK = (
    "model", "dtype", "quantization", "max_num_batched_tokens", "max_num_seqs", "tensor_parallel_size",
    "pipeline_parallel_size", "enforce_eager", "enable_lora", "speculative_config",
)  # fmt: skip
MODEL_FREE_METHODS = ("ngram", "suffix")
"""Speculation that needs no weights of its own."""


def _batched_tokens(case: Case) -> Finding | Unsaid | None:
    peak, budget, pool = (
        case.value(n) for n in ("transient_peak_headroom", "requested_memory", "available_kv_cache_memory")
    )
    if peak.low is None or peak.high is None:
        return Unsaid("batched-tokens-eat-kv", "the activation peak: no lines bound it on both sides")
    of_budget = budget.high is not None and peak.low >= OF_BUDGET.value * budget.high
    of_pool = pool.high is not None and pool.high > 0 and peak.low >= OF_POOL.value * pool.high
    if not (of_budget or of_pool):
        return None
    settings = case.ledger.settings
    batch, seqs = settings.number("max_num_batched_tokens"), settings.number("max_num_seqs")
    share = percent(peak, budget)
    detail = f"The profiled activation peak takes {gib_text(peak)}{f', {share} of the budget' if share else ''}. "
    detail += (
        "The encoder's profile is part of it. "
        if case.of("encoder_cache")
        else "Whether the forward pass or the sampler dominates, the log cannot tell. "
    )
    if batch:
        each = Interval(None, int(peak.high * 1000 / batch))
        detail += f"If it is the forward pass, 1,000 batched tokens cost {gib_text(each)}. "
    if seqs:
        detail += f"If it is the sampler, 100 sequences cost {gib_text(Interval(None, int(peak.high * 100 / seqs)))}."
    half = f"--max-num-batched-tokens {batch // 2}" if batch else "--max-num-batched-tokens half of now"
    actions = (
        Action(half, (), "slower prefill; no gain where the sampler dominates"),
        Action(f"--max-num-seqs {seqs // 2 if seqs else 'half of now'}", (), "fewer requests at a time"),
    )
    lines = merged(
        case.evidence("transient_peak_headroom", "requested_memory"), case.setting_lines("max_num_batched_tokens")
    )
    title = f"The activation peak takes {gib_text(peak)}"
    return Finding("batched-tokens-eat-kv", WARNING, title, detail.strip(), lines, case.cost(peak), actions)


def _encoder_profile(case: Case) -> Finding | Unsaid | None:
    said = case.of("encoder_cache")
    if not said:
        return None
    budget, batch = printed(said[0], "encoder_budget"), case.ledger.settings.number("max_num_batched_tokens")
    if batch is None:
        return Unsaid("encoder-profile-cost", "max_num_batched_tokens: no line states it")
    if low(budget) <= batch:
        return None
    items, what = said[0].text("items"), said[0].text("modality")
    detail = (
        f"The encoder was profiled with {items} {what} item(s) and a budget of {whole(budget)} tokens, more "
        f"than the {batch:,} batched tokens; its peak and its cache are taken from the pool. What share that "
        "is needs the model's config."
    )
    action = Action(
        "--limit-mm-per-prompt with fewer items, or --mm-processor-kwargs with a smaller size",
        (),
        "larger inputs are refused",
    )
    lines = merged(case.lines("encoder_cache"), case.setting_lines("max_num_batched_tokens"))
    title = f"The encoder is profiled with {whole(budget)} tokens"
    return Finding("encoder-profile-cost", NOTE, title, detail, lines, actions=(action,))


def above_model(case: Case) -> Interval | None:
    """Give what the peak surely has above the model's, where that is much and the model is sure of a start-up of this kind.

    The model's is that of a start whose graphs are compiled.
    """
    peak, band = case.value("transient_peak_headroom"), _model_peak(case)
    if case.rank and case.rank.loaded_peak is not None:
        band = case.rank.loaded_peak
    if band is None or band.low is None or band.high is None:
        return None
    sure = band.high - band.low <= SURE_MODEL.value * (band.low + band.high)
    return peak.minus(band) if sure and low(peak) >= (1 + ABOVE_MODEL.value) * band.high else None


def _model_peak(case: Case) -> Interval | None:
    """Give the model's band of H for this start."""
    figures = case.rank.modelled if case.rank else ()
    return next((f.interval for f in figures if f.name == "transient_peak_headroom"), None)


class _Inflation(NamedTuple):
    """What tells that compilation inflated the peak: in a title, in words, by how much, and on which further lines."""

    title: str
    detail: str
    gain: Interval
    lines: tuple[int, ...] = ()


def _cold_compile(case: Case) -> Finding | Unsaid | None:
    if not case.ledger.compiles:
        return None
    found = _above_warm_start(case) or _above_model(case) or _above_loaded(case)
    if found is None and case.rank and case.rank.modelled:
        return None
    if found is None:
        fact = "the model's own peak: needs its config and its card (--config, --gpu), or a warm start in the same log"
        return Unsaid("cold-compile-inflates-peak", fact)
    lines = merged(case.lines("compiled"), case.evidence("transient_peak_headroom"), found.lines)
    action = Action("start again with the compile cache kept", (), "")
    cost = case.cost(found.gain)
    return Finding("cold-compile-inflates-peak", NOTE, found.title, found.detail, lines, cost, (action,))


def _above_warm_start(case: Case) -> _Inflation | None:
    warm, gain = _warm_start(case)
    if warm is None:
        return None
    detail = (
        f"This start compiled and peaked {gib_text(gain)} above a start of the same launch in this log that loaded the "
    )
    detail += "compiled graphs: compilation inflated the profile."
    return _Inflation("Compilation inflated the peak", detail, gain, warm.lines("compile_cache_hit"))


def _above_model(case: Case) -> _Inflation | None:
    gain = above_model(case)
    if gain is None:
        return None
    detail = (
        f"This start compiled, and its peak is {gib_text(gain)} above what the model of this release has for these "
        "settings: compilation inflated the profile, or a kernel's workspace stands in it. A start with the compile cache "
        "kept tells."
    )
    return _Inflation("The peak is above the model's: compilation may have inflated it", detail, gain)


def _above_loaded(case: Case) -> _Inflation | None:
    """Tell what compiling may have taken where no line bounds the peak."""
    whole, loaded = _model_peak(case), case.rank.loaded_peak if case.rank else None
    if is_measured(case.value("transient_peak_headroom")):
        return None
    if whole is None or loaded is None or whole.high is None or loaded.high is None:
        return None
    if whole.high < (1 + ABOVE_MODEL.value) * loaded.high:
        return None
    most = whole.minus(loaded).high or 0
    detail = (
        "This start compiled, and no line tells its peak. Measuring kernels while compiling takes as much as the embedding "
        f"and two hidden states: up to {gib_text(Interval.exactly(most))} above the peak of a start that loads its "
        "graphs."
    )
    return _Inflation("Compilation may have inflated the peak", detail, Interval(0, most))


def _warm_start(case: Case) -> tuple[Case | None, Interval]:
    """Give a start of the same launch in the log that loaded its graphs and surely peaked lower, and by how much."""
    peak = case.value("transient_peak_headroom")
    for other in range(len(case.startups)):
        warm = Case(case.startups, other)
        same = other != case.place and _launched(warm) == _launched(case)
        gain = peak.minus(warm.value("transient_peak_headroom"))
        if same and warm.of("compile_cache_hit") and low(gain) > 0:
            return warm, gain
    return None, ANYTHING


def _launched(case: Case) -> tuple[object, ...]:
    """Give all that the peak of a start depends on, as far as its lines tell."""
    return (case.ledger.version.span, *map(case.ledger.settings.get, DECIDE_PEAK))


def unexplained_peak(case: Case) -> Finding | None:
    """Name a peak that no known term explains, where compilation did not inflate it."""
    beyond = None if case.ledger.compiles else above_model(case)
    if beyond is None:
        return None
    detail = (
        f"The activation peak is {gib_text(beyond)} above what the model of this release has for these settings, and the "
        "graphs were not compiled anew. Suspects, likeliest first: a kernel's workspace, an encoder's own pass, a library "
        "that patches layers."
    )
    lines, title = case.evidence("transient_peak_headroom"), "The activation peak holds what no known term explains"
    return Finding("unexplained-memory", WARNING, title, detail, lines, case.cost(beyond))


def _drafter(case: Case) -> Finding | None:
    asked = case.ledger.settings.text("speculative_config") or ""
    if any(method in asked for method in MODEL_FREE_METHODS):
        return None
    told = [s for s in case.of("changed_arguments") if "'speculative_config': {" in (s.text("arguments") or "")]
    told = [s for s in told if not any(f"'method': '{m}" in (s.text("arguments") or "") for m in MODEL_FREE_METHODS)]
    named = bool(asked or case.ledger.settings.text("speculative_model"))
    lines = merged(
        case.lines("draft_max_model_len", "drafter_loading"), case.setting_lines("speculative_config") if named else ()
    )
    lines = merged(lines, tuple(s.line for s in told))
    own = [r for e in case.ledger.engines for r in e.ranks if r.name == DRAFTER]
    if not lines and not own:
        return None
    detail = "A drafter runs beside the model: its weights stand in the weights, its layers in every block, "
    detail += "its graphs in the graphs."
    for rank in own:
        weights = rank.account.get("model_memory")
        if weights:
            detail += f" Its weights take {gib_text(weights.interval)}."
            lines = merged(lines, weights.lines)
    if not own:
        detail += " How much each takes, this log does not split; a start without it tells."
    action = Action("start once without --speculative-config to see what it takes", (), "slower decoding meanwhile")
    return Finding("drafter-cost", NOTE, "A drafter takes its share", detail, lines, actions=(action,))


def _lora(case: Case) -> Finding | None:
    asked = case.ledger.settings.get("enable_lora") is True
    lines = merged(case.setting_lines("enable_lora") if asked else (), case.lines("adapters"))
    if not lines:
        return None
    detail = (
        "Adapters are on: max_loras slots of max_lora_rank are allocated for every adapted layer before the profile, whether an "
        "adapter is loaded or not. They stand in the weights."
    )
    action = Action("lower --max-loras and --max-lora-rank to what is used", (), "fewer or smaller adapters at a time")
    return Finding("lora-cost", NOTE, "Adapter slots stand in the weights", detail, lines, actions=(action,))


RULES = (
    FindingRule(
        "batched-tokens-eat-kv",
        (WARNING,),
        "The peak's share, what a thousand tokens or a hundred sequences cost at most, and values to try.",
        "The activation peak H is surely a tenth of the budget or half of the pool.",
        ("transient_peak_headroom", "requested_memory", "available_kv_cache_memory"),
        _batched_tokens,
        (OF_BUDGET, OF_POOL),
    ),
    FindingRule(
        "encoder-profile-cost",
        (NOTE,),
        "The encoder's budget and the flags that lower it.",
        "The encoder is profiled with more tokens than max_num_batched_tokens.",
        ("encoder_cache", "max_num_batched_tokens"),
        _encoder_profile,
    ),
    FindingRule(
        "cold-compile-inflates-peak",
        (NOTE,),
        "That a warm start gains, and how much.",
        "The start compiled, and a warm start of the same model in the log peaked lower, or the peak lies surely above the "
        "model's band, which needs config and card. Alone, a log cannot show it.",
        ("compiled", "compile_cache_hit", "transient_peak_headroom"),
        _cold_compile,
        (ABOVE_MODEL, SURE_MODEL),
    ),
    FindingRule(
        "drafter-cost",
        (NOTE,),
        "That a drafter's weights, layers and graphs are part of the figures.",
        "Speculative decoding with a model or heads of its own; not n-gram or suffix look-up.",
        ("speculative_config", "drafter_loading", "draft_max_model_len"),
        _drafter,
    ),
    FindingRule(
        "lora-cost",
        (NOTE,),
        "That adapter slots are allocated up front.",
        "Adapters are enabled, by a setting or by the line of the kernels that apply them.",
        ("enable_lora", "adapters"),
        _lora,
    ),
)
