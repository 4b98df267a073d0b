"""Plans the KV cache as a stated vLLM release does: layer specs, groups, blocks, tokens, concurrency."""

from reconstruct.planner.errors import BadSetting, Unsupported, WouldNotStart
from reconstruct.planner.launch import Launch
from reconstruct.planner.plan import plan_from_layers
from reconstruct.planner.result import KvPlan
from reconstruct.planner.spec import LayerSpec

__all__ = ["BadSetting", "KvPlan", "Launch", "LayerSpec", "Unsupported", "WouldNotStart", "plan_from_layers"]
