"""Which family builds which architecture: a table, and the rules for what stands in no table.

Source of the names: vLLM 0.32.0 model_executor/models/registry.py and the class that each name maps to there;
architectures that later releases dropped are from the release that had them last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.planner.errors import Unsupported
from reconstruct.planner.models import decoders, encoders, hybrids, latents
from reconstruct.planner.models.decoders import Trait
from reconstruct.planner.models.standard import check_standard
from reconstruct.planner.models.view import architecture_of, view_of
from reconstruct.planner.models.wrappers import WRAPPERS, inner_architecture

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from reconstruct.planner.models.layers import Geometry, Shard
    from reconstruct.planner.models.view import View


class Family(NamedTuple):
    """How an architecture's layers are built."""

    build: Callable[[View, Shard, Trait], Geometry]
    trait: Trait = Trait()


_PLAIN = Family(decoders.common)
_QUOTIENT = Family(decoders.common, Trait(quotient=True))
_TYPED = Family(decoders.common, Trait(typed=True))
_TYPED_ALONE = Family(decoders.common, Trait(typed=True, global_window=False))
_DELTA = Family(hybrids.gated_delta)
_LATENT = Family(latents.deepseek)

_GROUPS: tuple[tuple[Family, str], ...] = (
    (
        _TYPED,
        (
            "LlamaForCausalLM LLaMAForCausalLM LlamaModel InternLM3ForCausalLM IQuestCoderForCausalLM MistralForCausalLM "
            "MistralModel Ministral3ForCausalLM Phi3ForCausalLM TeleChat3ForCausalLM TeleChat2ForCausalLM "
            "TeleFLMForCausalLM SolarForCausalLM ApertusForCausalLM ArceeForCausalLM Gemma2ForCausalLM Gemma2Model "
            "Gemma3ForCausalLM VaultGemmaForCausalLM Exaone4ForCausalLM ExaoneMoeForCausalLM ExaoneMoEForCausalLM "
            "AfmoeForCausalLM Olmo3ForCausalLM SeedOssForCausalLM SmolLM3ForCausalLM Starcoder2ForCausalLM "
            "OlmoForCausalLM Olmo2ForCausalLM FlexOlmoForCausalLM PhiForCausalLM GPTNeoXForCausalLM "
            "HunYuanDenseV1ForCausalLM HunYuanMoEV1ForCausalLM CwmForCausalLM MellumForCausalLM Jais2ForCausalLM "
            "NanbeigeForCausalLM GlmForCausalLM AquilaForCausalLM AquilaModel XverseForCausalLM InternLMForCausalLM "
            "Fairseq2LlamaForCausalLM GritLM"
        ),
    ),
    (_TYPED_ALONE, "LagunaForCausalLM MiniMaxM2ForCausalLM"),
    (
        _PLAIN,
        (
            "Qwen3ForCausalLM Qwen3MoeForCausalLM MixtralForCausalLM QuantMixtralForCausalLM GemmaForCausalLM "
            "Glm4ForCausalLM Glm4MoeForCausalLM ExaoneForCausalLM PhiMoEForCausalLM OrionForCausalLM "
            "BailingMoeForCausalLM BailingMoeV2ForCausalLM Ernie4_5ForCausalLM Ernie4_5_MoeForCausalLM "
            "HYV3ForCausalLM HyperCLOVAXForCausalLM NemotronForCausalLM CohereForCausalLM ArcticForCausalLM "
            "Dots1ForCausalLM YiForCausalLM"
        ),
    ),
    (
        _QUOTIENT,
        (
            "Qwen2ForCausalLM Qwen2Model Qwen2MoeForCausalLM MiMoForCausalLM InternLM2ForCausalLM StableLmForCausalLM "
            "StableLMEpochForCausalLM MiniCPMForCausalLM OlmoeForCausalLM Qwen2ForRewardModel "
            "Qwen2ForProcessRewardModel InternLM2ForRewardModel PersimmonForCausalLM QWenLMHeadModel DeepseekForCausalLM"
        ),
    ),
    (Family(decoders.cohere2, Trait(typed=True)), "Cohere2ForCausalLM Cohere2MoeForCausalLM"),
    (Family(decoders.granite), "GraniteForCausalLM GraniteSWAForCausalLM"),
    (
        Family(decoders.granite, Trait(quotient=True)),
        "GraniteMoeForCausalLM GraniteMoeSharedForCausalLM GraniteMoeSWAForCausalLM",
    ),
    (Family(decoders.per_head_keys, Trait(quotient=True)), "GPT2LMHeadModel GPTJForCausalLM OPTForCausalLM"),
    (Family(decoders.per_head_keys, Trait(quotient=True, alibi=True)), "BloomForCausalLM"),
    (Family(decoders.big_code, Trait(quotient=True)), "GPTBigCodeForCausalLM"),
    (Family(decoders.falcon), "FalconForCausalLM RWForCausalLM"),
    (Family(decoders.dbrx, Trait(quotient=True)), "DbrxForCausalLM MPTForCausalLM MptForCausalLM"),
    (Family(decoders.chat_glm), "ChatGLMModel ChatGLMForConditionalGeneration"),
    (Family(decoders.baichuan, Trait(quotient=True)), "BaichuanForCausalLM BaiChuanForCausalLM"),
    (Family(decoders.llama4), "Llama4ForCausalLM"),
    (Family(decoders.gpt_oss), "GptOssForCausalLM"),
    (Family(decoders.gemma3n, Trait(typed=True, pipelines=False)), "Gemma3nForCausalLM"),
    (Family(decoders.gemma4), "Gemma4ForCausalLM"),
    (Family(decoders.mimo_v2), "MiMoV2FlashForCausalLM MiMoV2ForCausalLM"),
    (Family(decoders.nemotron_nas), "DeciLMForCausalLM"),
    (Family(decoders.step3p5), "Step3p5ForCausalLM"),
    (Family(decoders.one_key_head), "Step3TextForCausalLM"),
    (
        _LATENT,
        (
            "DeepseekV2ForCausalLM DeepseekV3ForCausalLM DeepseekV32ForCausalLM GlmMoeDsaForCausalLM "
            "Glm4MoeLiteForCausalLM MistralLarge3ForCausalLM SarvamMLAForCausalLM PanguUltraMoEForCausalLM"
        ),
    ),
    (Family(latents.kimi_linear), "KimiLinearForCausalLM"),
    (Family(latents.deepseek_v4), "DeepseekV4ForCausalLM"),
    (Family(latents.minimax_m3), "MiniMaxM3SparseForCausalLM"),
    (Family(hybrids.jamba), "JambaForCausalLM"),
    (Family(hybrids.bamba), "BambaForCausalLM"),
    (Family(hybrids.granite_hybrid), "GraniteMoeHybridForCausalLM"),
    (Family(hybrids.falcon_h1), "FalconH1ForCausalLM"),
    (Family(hybrids.nemotron_h), "NemotronHForCausalLM"),
    (Family(hybrids.zamba2), "Zamba2ForCausalLM"),
    (Family(hybrids.lfm2), "Lfm2ForCausalLM Lfm2MoeForCausalLM"),
    (_DELTA, "Qwen3NextForCausalLM Qwen3_5ForCausalLM Qwen3_5MoeForCausalLM OlmoHybridForCausalLM"),
    (Family(hybrids.mamba), "MambaForCausalLM FalconMambaForCausalLM"),
    (Family(hybrids.mamba2), "Mamba2ForCausalLM"),
    (Family(encoders.whisper), "WhisperForConditionalGeneration"),
    (
        Family(encoders.encoder_only, Trait(pipelines=False)),
        (
            "BertModel BertForMaskedLM RobertaModel XLMRobertaModel RobertaForMaskedLM NomicBertModel GteModel GteNewModel "
            "ModernBertModel BertForSequenceClassification RobertaForSequenceClassification "
            "XLMRobertaForSequenceClassification ModernBertForSequenceClassification"
        ),
    ),
)

_FAMILIES: dict[str, Family] = {name: family for family, names in _GROUPS for name in names.split()}

_ONE_STAGE = frozenset(
    {
        "AriaForConditionalGeneration",
        "Idefics3ForConditionalGeneration",
        "NemotronH_Nano_VL_V2",
        "Phi4MMForCausalLM",
        "SmolVLMForConditionalGeneration",
    }
)
"""Multimodal classes that do not run in pipeline stages, whatever their language model does."""

_MM_PREFIX = frozenset({"gemma3", "paligemma"})
"""Model types whose image tokens attend both ways (0.32.0 model_arch_config_convertor.py is_mm_prefix_lm)."""


def geometry_of(config: Mapping[str, object], shard: Shard) -> Geometry:
    """Cache layers of a model. Raises Unsupported where its layers are not known."""
    view = view_of(config)
    architecture = architecture_of(config)
    if architecture is None:
        raise Unsupported("the config names no architecture; its model class decides which layers keep a cache")
    family = _FAMILIES.get(inner_architecture(architecture, view))
    if family is None:
        check_standard(view, architecture)
        family = _TYPED
    geometry = family.build(view, shard, family.trait)
    if architecture in _ONE_STAGE:
        geometry = geometry._replace(pipelines=False)
    images = config.get("is_mm_prefix_lm")
    if architecture in WRAPPERS and (bool(images) or (images is None and str(config.get("model_type")) in _MM_PREFIX)):
        return geometry._replace(mm_prefix=True)
    return geometry
