"""How many cache groups a model has, as far as its log alone tells."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple

if TYPE_CHECKING:
    from parsers.startups import StartUpLog
    from reconstruct.eras import Era
    from reconstruct.interval import Interval

UNIFORM = frozenset(
    (
        "AquilaForCausalLM", "ArceeForCausalLM", "BaichuanForCausalLM", "BloomForCausalLM", "ChatGLMModel",
        "CohereForCausalLM", "DeepseekForCausalLM", "DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "FalconForCausalLM",
        "GPT2LMHeadModel", "GPTBigCodeForCausalLM", "GPTJForCausalLM", "GPTNeoXForCausalLM", "GemmaForCausalLM",
        "Glm4ForCausalLM", "Glm4MoeForCausalLM", "GlmForCausalLM", "GraniteForCausalLM", "GraniteMoeForCausalLM",
        "InternLM2ForCausalLM", "InternLM3ForCausalLM", "InternLMForCausalLM", "KimiVLForConditionalGeneration",
        "LlamaForCausalLM", "LlavaForConditionalGeneration", "MistralForCausalLM", "MixtralForCausalLM", "MPTForCausalLM",
        "OPTForCausalLM", "Olmo2ForCausalLM", "OlmoForCausalLM", "OlmoeForCausalLM", "OrionForCausalLM",
        "PhiForCausalLM", "Phi3ForCausalLM", "Qwen2ForCausalLM", "Qwen2MoeForCausalLM", "Qwen2VLForConditionalGeneration",
        "Qwen2_5_VLForConditionalGeneration", "Qwen3ForCausalLM", "Qwen3MoeForCausalLM",
        "Qwen3VLForConditionalGeneration", "Qwen3VLMoeForConditionalGeneration", "QWenLMHeadModel",
        "Starcoder2ForCausalLM", "StableLmForCausalLM", "XverseForCausalLM",
    )
)  # fmt: skip
"""Architectures whose layers all cache alike, read off vllm/model_executor/models: one group, whatever their size."""


SIGNS_OF_MORE = ("attention_block_size", "mamba_padding", "padding_layers")
"""Lines that only models with unlike layers print."""


WINDOWED = frozenset(
    (
        "LlavaForConditionalGeneration", "MistralForCausalLM", "MixtralForCausalLM", "Phi3ForCausalLM",
        "Starcoder2ForCausalLM",
    )
)  # fmt: skip
"""Those of them whose config may put every layer behind one sliding window (cache_config.sliding_window in
vllm/model_executor/layers/attention). Qwen's may too, where `use_sliding_window` switches its window on: it is off unless set."""


class CacheGroups(NamedTuple):
    """What a log alone tells of a model's cache groups."""

    number: int | None
    """None where the log leaves it open."""
    whole_length: bool
    """Whether a request surely takes blocks for its whole length, were it one group: not so behind a window."""

    @property
    def is_plain(self) -> bool:
        """Whether a request takes as many blocks as its length fills."""
        return self.number == 1 and self.whole_length


def cache_groups(
    log: StartUpLog,
    era: Era,
    *,
    tokens: Interval,
    concurrency: Interval,
    length: Interval,
    size: Interval,
) -> CacheGroups:
    """Read the cache groups off a log.

    One group is taken where the log shows it: no sign of unlike layers, and either the architecture is known to be uniform,
    or (0.9.1-0.20.0) tokens and concurrency, which count groups differently, agree.
    """
    agree = era.tokens == "groups" and _agree(tokens, concurrency, length, size)
    architectures = {s.text("architecture") for s in log.of("architecture")}
    merged = any(s.kind == "hybrid_manager_disabled" for s in log.statements)  # into layers that attend to everything
    return CacheGroups(_count(log, era, agree=agree), merged or agree or not architectures & WINDOWED)


def _count(log: StartUpLog, era: Era, *, agree: bool) -> int | None:
    groups = [s for s in log.statements if s.kind == "cache_groups"]
    if groups:
        return len((groups[0].text("group_block_sizes") or "").split(","))
    if any(s.kind == "hybrid_manager_disabled" for s in log.statements):
        return 1
    if any(s.kind in SIGNS_OF_MORE for s in log.statements):
        return None
    if era.tokens in {"none", "blocks"} or era.engine == "V0" or agree:
        return 1
    drafts = any("speculative_config=SpeculativeConfig(" in (s.text("config") or "") for s in log.statements)
    if drafts:
        return None
    return 1 if any(s.text("architecture") in UNIFORM for s in log.of("architecture")) else None


def _agree(tokens: Interval, concurrency: Interval, length: Interval, size: Interval) -> bool:
    """Whether blocks / blocks of a request, taken for one group, is the printed concurrency, and for more is not.

    Of n blocks in g groups the token count shows n // g, and windowed groups take one block more than the length's p:
    concurrency, n / (g p + g - 1), then falls short of n // g / p by (1 - 1 / concurrency) / (2 p + 1) of it or more,
    which the two printed decimals must resolve. Where the pool holds just one request, nothing is left to see.
    """
    if not (tokens.is_point and length.is_point and size.is_point) or concurrency.low is None or not concurrency.high:
        return False
    per_request = -(-int(length.low or 1) // int(size.low or 1))
    if per_request < 1:
        return False  # a damaged line
    one_group = int(tokens.low or 0) / int(size.low or 1) / per_request
    if one_group <= 1 or not concurrency.low <= one_group <= concurrency.high:
        return False
    return (concurrency.high - concurrency.low) / concurrency.high < (1 - 1 / one_group) / (2 * per_request + 1)
