"""How the model classes that are written out differ in what their config.json does not tell, as data.

Read from vLLM 0.8-0.33, vllm/model_executor/models, the file of each class.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Bias = Literal["always", "never", "stated"]
ExpertRule = Literal["none", "every layer", "by step"]


class Family(NamedTuple):
    """One model class.

    A bias that is `stated` stands where attention_bias or mlp_bias says so. `norms`: two for each layer, before attention
    and before the MLP, or four, behind both as well. `head_norms`: queries and keys are normed. `tied`: what a missing
    tie_word_embeddings means. `fresh_norms`: a norm writes new tensors outside compiled code too (GemmaRMSNorm).
    `scaled_embedding`: one number on the card scales the embeddings. `windows_rotate_apart`: layers with a window have
    a rope cache of their own. `experts`: the layers that have them: all, or those that decoder_sparse_step and
    mlp_only_layers leave.
    """

    qkv_bias: Bias = "stated"
    output_bias: Bias = "stated"
    mlp_bias: Bias = "stated"
    norms: Literal[2, 4] = 2
    head_norms: bool = False
    tied: bool = False
    fresh_norms: bool = False
    scaled_embedding: bool = False
    windows_rotate_apart: bool = False
    experts: ExpertRule = "none"


_LLAMA = Family()
_GEMMA = Family("never", "never", "never", tied=True, fresh_norms=True, scaled_embedding=True)
_GEMMA2 = _GEMMA._replace(qkv_bias="stated", output_bias="stated", norms=4)
_QWEN = Family("stated", "never", "never")

FAMILIES = {
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "granite": _LLAMA,
    "phi3": _LLAMA,
    "qwen2": _QWEN._replace(qkv_bias="always"),
    "qwen3": _QWEN._replace(head_norms=True),
    "mixtral": Family("never", "never", "never", experts="every layer"),
    "qwen2_moe": _QWEN._replace(qkv_bias="always", experts="by step"),
    "qwen3_moe": _QWEN._replace(head_norms=True, experts="by step"),
    "gemma": _GEMMA,
    "gemma2": _GEMMA2,
    "gemma3_text": _GEMMA2._replace(head_norms=True, windows_rotate_apart=True),
}
"""By model_type."""
