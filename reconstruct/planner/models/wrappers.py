"""Multimodal classes: which language model stands inside."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconstruct.planner.errors import Unsupported
from reconstruct.planner.models.view import architecture_of

if TYPE_CHECKING:
    from reconstruct.planner.models.view import View

WRAPPERS: dict[str, str] = {
    "AriaForConditionalGeneration": "LlamaForCausalLM",
    "Cohere2VisionForConditionalGeneration": "Cohere2ForCausalLM",
    "DeepseekVLV2ForCausalLM": "",
    "Gemma3ForConditionalGeneration": "Gemma3ForCausalLM",
    "Gemma3nForConditionalGeneration": "Gemma3nForCausalLM",
    "Gemma4ForConditionalGeneration": "Gemma4ForCausalLM",
    "Glm4vForConditionalGeneration": "Glm4ForCausalLM",
    "Glm4vMoeForConditionalGeneration": "Glm4MoeForCausalLM",
    "Idefics3ForConditionalGeneration": "LlamaForCausalLM",
    "InternS1ForConditionalGeneration": "",
    "InternVLChatModel": "",
    "InternVLForConditionalGeneration": "",
    "KimiK25ForConditionalGeneration": "DeepseekV3ForCausalLM",
    "KimiK3ForConditionalGeneration": "KimiLinearForCausalLM",
    "KimiVLForConditionalGeneration": "DeepseekV2ForCausalLM",
    "Llama4ForConditionalGeneration": "Llama4ForCausalLM",
    "LlavaForConditionalGeneration": "",
    "LlavaNextForConditionalGeneration": "",
    "LlavaNextVideoForConditionalGeneration": "",
    "LlavaOnevisionForConditionalGeneration": "",
    "Lfm2VlForConditionalGeneration": "",
    "MiniMaxM3SparseForConditionalGeneration": "MiniMaxM3SparseForCausalLM",
    "Mistral3ForConditionalGeneration": "",
    "NemotronH_Nano_VL_V2": "NemotronHForCausalLM",
    "PaliGemmaForConditionalGeneration": "",
    "Phi3VForCausalLM": "LlamaForCausalLM",
    "Phi4MMForCausalLM": "LlamaForCausalLM",
    "PixtralForConditionalGeneration": "MistralForCausalLM",
    "Qwen2AudioForConditionalGeneration": "Qwen2ForCausalLM",
    "Qwen2VLForConditionalGeneration": "Qwen2ForCausalLM",
    "Qwen2_5OmniForConditionalGeneration": "Qwen2ForCausalLM",
    "Qwen2_5OmniModel": "Qwen2ForCausalLM",
    "Qwen2_5_VLForConditionalGeneration": "Qwen2ForCausalLM",
    "Qwen3OmniMoeForConditionalGeneration": "Qwen3MoeForCausalLM",
    "Qwen3VLForConditionalGeneration": "Qwen3ForCausalLM",
    "Qwen3VLMoeForConditionalGeneration": "Qwen3MoeForCausalLM",
    "Qwen3_5ForConditionalGeneration": "Qwen3_5ForCausalLM",
    "Qwen3_5MoeForConditionalGeneration": "Qwen3_5MoeForCausalLM",
    "SmolVLMForConditionalGeneration": "LlamaForCausalLM",
    "VoxtralForConditionalGeneration": "",
}
"""Multimodal classes and the language model inside; an empty name means: what the text part says."""

_BY_TYPE: dict[str, str] = {
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "gemma": "GemmaForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
    "internlm2": "InternLM2ForCausalLM",
    "lfm2": "Lfm2ForCausalLM",
    "llama": "LlamaForCausalLM",
    "ministral3": "Ministral3ForCausalLM",
    "mistral": "MistralForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
}
"""Language models by the type of a text part that names no architecture."""


def inner_architecture(architecture: str, view: View) -> str:
    """Architecture of the language model: the one inside a multimodal class, else the class itself.

    Raises Unsupported for a multimodal class whose text part is of a type that is not known.
    """
    if architecture not in WRAPPERS:
        return architecture
    named = WRAPPERS[architecture] or architecture_of(view.text) or _BY_TYPE.get(view.model_type)
    if named is None:
        raise Unsupported(f"the language model inside {architecture} has type {view.model_type!r}, which is not known")
    return named
