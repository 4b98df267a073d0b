"""How the model classes differ in the tensors they own: one row for each architecture whose weights are known.

Source of the rows: vLLM 0.19.1 and 0.33.0 model_executor/models, the file of each class.
"""

from __future__ import annotations

from parsers.tuples import NamedTuple
from reconstruct.planner.errors import Unsupported

STATED = "stated"
"""A bias that the config decides: attention_bias, else bias, else none."""


class Trait(NamedTuple):
    """The tensors of one model class.

    qkv_bias, out_bias: "yes", "no" or "stated". mlp_bias: the same, by mlp_bias. gated: gate and up projections, or up
    alone. norms: tensors of the hidden size per layer; norm_bias: each has a bias besides. head_norms: norms of queries
    and keys, "" (none), "head" (head size) or "full" (all heads of the rank). tied: what a missing tie_word_embeddings
    means. positions: rows of a learned position table beyond max_position_embeddings, None where positions rotate.
    mixer: "mha", "latent", "delta" (gated delta net in the layers that are not full attention). experts: which rule
    tells the expert layers, "" for none. final_norm: False where the last norm owns no tensor. scaled_embedding: one
    number on the card scales the embeddings.
    """

    qkv_bias: str = STATED
    out_bias: str = STATED
    mlp_bias: str = STATED
    gated: bool = True
    norms: int = 2
    norm_bias: bool = False
    head_norms: str = ""
    tied: bool = False
    positions: int | None = None
    mixer: str = "mha"
    experts: str = ""
    final_norm: bool = True
    lm_head_bias: bool = False
    gated_query: bool = False
    scaled_embedding: bool = False


_LLAMA = Trait()
_GEMMA2 = Trait(STATED, STATED, "no", norms=4, tied=True, scaled_embedding=True)
_BIASED = Trait("yes", "yes", "yes", gated=False, norm_bias=True)
_ROWS: tuple[tuple[Trait, str], ...] = (
    (
        _LLAMA,
        (
            "LlamaForCausalLM LLaMAForCausalLM LlamaModel MistralForCausalLM MistralModel Ministral3ForCausalLM AquilaModel "
            "AquilaForCausalLM InternLM3ForCausalLM XverseForCausalLM YiForCausalLM SolarForCausalLM CwmForCausalLM "
            "IQuestCoderForCausalLM TeleFLMForCausalLM SmolLM3ForCausalLM GraniteForCausalLM "
            "Phi3ForCausalLM Fairseq2LlamaForCausalLM GritLM DeciLMForCausalLM OrionForCausalLM HunYuanDenseV1ForCausalLM"
        ),
    ),
    (Trait("no", "no", "no"), "Ernie4_5ForCausalLM ExaoneForCausalLM InternLM2ForCausalLM"),
    (Trait("yes", "no", "no"), "Qwen2ForCausalLM Qwen2Model GlmForCausalLM MiMoForCausalLM Qwen2ForRewardModel"),
    (Trait("yes", "stated", "no"), "SeedOssForCausalLM"),
    (Trait(STATED, "no", "no", head_norms="head"), "Qwen3ForCausalLM Qwen3Model"),
    (Trait("no", "no", "no", tied=True, scaled_embedding=True), "GemmaForCausalLM"),
    (_GEMMA2, "Gemma2ForCausalLM Gemma2Model"),
    (_GEMMA2._replace(head_norms="head"), "Gemma3ForCausalLM Gemma3TextModel"),
    (Trait("no", "no", "no", norms=2, head_norms="full"), "Olmo2ForCausalLM Olmo3ForCausalLM"),
    (Trait("no", "no", "no", norms=0, final_norm=False), "OlmoForCausalLM"),
    (Trait(STATED, "no", "no", head_norms="head"), "Exaone4ForCausalLM"),
    (Trait(STATED, "no", "no", norms=4), "Glm4ForCausalLM"),
    (Trait("no", "no", "no", norms=1, tied=True), "CohereForCausalLM Cohere2ForCausalLM"),
    (_BIASED, "Starcoder2ForCausalLM GPTNeoXForCausalLM"),
    (_BIASED._replace(positions=2, tied=True), "OPTForCausalLM"),
    (_BIASED._replace(positions=0, tied=True), "GPT2LMHeadModel GPTBigCodeForCausalLM"),
    (_BIASED._replace(norms=1, lm_head_bias=True), "PhiForCausalLM"),
    (Trait(STATED, STATED, "no", norm_bias=True), "StableLmForCausalLM StableLMEpochForCausalLM"),
    (Trait(gated=False, norm_bias=True), "NemotronForCausalLM"),
    (Trait(gated=False), "ArceeForCausalLM ApertusForCausalLM"),
    (Trait("no", "no", "no", experts="mixtral"), "MixtralForCausalLM GraniteMoeForCausalLM"),
    (Trait("yes", "no", "no", experts="qwen"), "Qwen2MoeForCausalLM"),
    (Trait(STATED, "no", "no", head_norms="head", experts="qwen"), "Qwen3MoeForCausalLM"),
    (Trait("no", "no", "no", head_norms="full", experts="qwen"), "OlmoeForCausalLM"),
    (Trait("yes", "no", "no", head_norms="stated", experts="deepseek"), "Glm4MoeForCausalLM"),
    (Trait("no", "no", "no", head_norms="head", experts="deepseek"), "Dots1ForCausalLM"),
    (Trait("no", "no", "no", head_norms="full", experts="mixtral"), "MiniMaxM2ForCausalLM"),
    (Trait("yes", "yes", "no", experts="gpt_oss"), "GptOssForCausalLM"),
    (Trait("no", "no", "no", experts="llama4"), "Llama4ForCausalLM"),
    (Trait("no", "no", "no", mixer="latent", experts="deepseek"), "DeepseekV2ForCausalLM DeepseekV3ForCausalLM"),
    (
        Trait(STATED, "no", "no", head_norms="head", mixer="delta", experts="qwen", gated_query=True),
        "Qwen3NextForCausalLM Qwen3_5MoeForCausalLM",
    ),
    (Trait(STATED, "no", "no", head_norms="head", mixer="delta", gated_query=True), "Qwen3_5ForCausalLM"),
)
_TRAITS = {name: trait for trait, names in _ROWS for name in names.split()}


def trait_of(architecture: str) -> Trait:
    """Look a model class up. Raises Unsupported for one whose weights are not known."""
    trait = _TRAITS.get(architecture)
    if trait is None:
        raise Unsupported(
            f"the weights of {architecture} are not modelled; state them with --set model_memory=14.99GiB "
            "(a log's 'Model loading took')"
        )
    return trait
