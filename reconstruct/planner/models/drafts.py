"""Draft layers of speculative decoding, which cache beside the model's own layers on the last pipeline stage.

Source: vLLM 0.32.0 config/speculative.py hf_config_override, model_executor/models/*_mtp.py, llama_eagle.py,
llama_eagle3.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconstruct.planner.errors import Unsupported
from reconstruct.planner.models.decoders import mimo_v2_window
from reconstruct.planner.models.families import geometry_of
from reconstruct.planner.models.layers import Attention
from reconstruct.planner.models.view import architecture_of
from reconstruct.planner.models.windows import model_window

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconstruct.planner.launch import Speculation
    from reconstruct.planner.models.layers import CacheLayer, Geometry, Shard

Layers = tuple[tuple["CacheLayer", ...], ...]

_NO_LAYERS = frozenset({"ngram", "ngram_gpu", "suffix", "medusa", "mlp_speculator"})
_HEADS = frozenset({"eagle", "eagle3"})
_SIMPLE_MTP = frozenset(
    {"Glm4MoeForCausalLM", "Glm4MoeLiteForCausalLM", "MiMoForCausalLM", "Ernie4_5_MoeForCausalLM", "HYV3ForCausalLM"}
)
_EAGLE_LLAMA = frozenset(
    {
        "LlamaForCausalLM",
        "LlamaForCausalLMEagle3",
        "Eagle3LlamaForCausalLM",
        "EagleLlamaForCausalLM",
        "Eagle3Qwen2_5vlForCausalLM",
        "Eagle3Qwen3vlForCausalLM",
        "Eagle3MiniMaxM2ForCausalLM",
    }
)


def draft_layers(config: Mapping[str, object], speculation: Speculation, geometry: Geometry, shard: Shard) -> Layers:
    """Cache layers of the draft. Raises Unsupported for a method or a draft whose layers are not known."""
    method = speculation.method
    if method in _NO_LAYERS:
        return ()
    if method == "mtp" or method.endswith("_mtp"):
        return _prediction_modules(config, geometry)
    if method in _HEADS:
        return _eagle(speculation, geometry, shard)
    raise Unsupported(f"the cache layers of speculation method {method!r} are not known here")


def _prediction_modules(config: Mapping[str, object], geometry: Geometry) -> Layers:
    """Layers of the model's own prediction modules: these layers look like its last one."""
    architecture = architecture_of(config)
    if geometry.drafts:
        return geometry.drafts
    if architecture == "MiMoV2FlashForCausalLM":
        return ((mimo_v2_window(geometry.view),),)
    modules = geometry.view.maybe_number("num_nextn_predict_layers") or 0
    if architecture in _SIMPLE_MTP and modules:
        return (geometry.layers[-1],) * modules
    raise Unsupported(f"{architecture} states no prediction modules (num_nextn_predict_layers), or they are not known")


def _eagle(speculation: Speculation, target: Geometry, shard: Shard) -> Layers:
    """Layers of an EAGLE draft; one without layer types takes the window that holds for the whole target.

    Source: 0.32.0 attention.py Attention.__init__: the draft's layers read the target's cache settings.
    """
    draft = speculation.config
    if draft is None:
        raise Unsupported("the draft's own config.json is needed: it states the layers and heads of the draft")
    named = architecture_of(draft)
    if named not in _EAGLE_LLAMA:
        raise Unsupported(f"draft architecture {named!r} is not known")
    geometry = geometry_of({**draft, "architectures": ["LlamaForCausalLM"]}, shard)
    inherited = model_window(target.view)
    typed = draft.get("layer_types") is not None
    return tuple(tuple(_with_window(part, inherited, typed=typed) for part in layer) for layer in geometry.layers)


def _with_window(part: CacheLayer, inherited: int | None, *, typed: bool) -> CacheLayer:
    if not isinstance(part, Attention):
        raise Unsupported("an EAGLE draft with other layers than attention is not known")
    return part if typed else part._replace(window=inherited)
