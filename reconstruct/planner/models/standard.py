"""Telling a common decoder by its config alone: the standard fields and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconstruct.planner.errors import Unsupported

if TYPE_CHECKING:
    from reconstruct.planner.models.view import View

_SHAPES = frozenset(
    "hidden_size head_dim intermediate_size num_attention_heads num_hidden_layers num_key_value_heads vocab_size "
    "layer_types sliding_window".split()
)
_HARMLESS = frozenset(
    "_name_or_path add_cross_attention architectures attention_bias attention_dropout attn_implementation "
    "bad_words_ids bos_token_id chunk_size_feed_forward dtype embd_pdrop eos_token_id hidden_act hidden_dropout "
    "id2label initializer_range is_decoder is_encoder_decoder label2id layer_norm_eps layer_norm_epsilon logit_scale "
    "max_position_embeddings max_window_layers mlp_bias model_type name_or_path num_labels "
    "original_max_position_embeddings output_attentions output_hidden_states pad_token_id "
    "partial_rotary_factor pretraining_tp problem_type "
    "quantization_config resid_pdrop return_dict rms_norm_eps rope_parameters rope_scaling rope_theta "
    "tie_word_embeddings tokenizer_class torch_dtype transformers_version unk_token_id use_bias use_cache "
    "use_qk_norm use_sliding_window qkv_bias moe_intermediate_size num_experts num_experts_per_tok num_local_experts "
    "norm_topk_prob router_aux_loss_coef output_router_logits".split()
)
_NEEDED = ("hidden_size", "num_attention_heads", "num_hidden_layers")


def check_standard(view: View, architecture: str) -> None:
    """Accept a decoder that no table names if its config states a common decoder and nothing beyond it.

    Such a model runs on vLLM's Transformers backend, which takes head counts, head size and layer types from the
    config (0.32.0 model_executor/models/transformers/base.py create_attention_instances). Raises Unsupported naming
    what stands in the way.
    """
    if not architecture.endswith("ForCausalLM"):
        raise Unsupported(f"architecture {architecture!r} is not known, and its name does not say that it is a decoder")
    if view.nested:
        raise Unsupported(
            f"architecture {architecture!r} is not known, and its language model is a part of a larger one"
        )
    missing = [name for name in _NEEDED if name not in view.text]
    if missing:
        raise Unsupported(f"architecture {architecture!r} is not known, and its config states no {', '.join(missing)}")
    odd = sorted(name for name, value in view.text.items() if value is not None and name not in _SHAPES | _HARMLESS)
    if odd:
        raise Unsupported(
            f"architecture {architecture!r} is not known, and its config has fields beyond a common decoder's: "
            f"{', '.join(odd[:8])}"
        )
