"""Which model runner a release takes by default: V1's, or V2's (v1/worker/gpu), whose profile run differs.

Source: config/vllm.py use_v2_model_runner of 0.22.1 to 0.33.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconstruct.planner.models.view import architecture_of, view_of

if TYPE_CHECKING:
    from reconstruct.predict.scenario import Scenario

_LISTED: tuple[tuple[tuple[int, int], frozenset[str]], ...] = (
    ((0, 22), frozenset({"Qwen3ForCausalLM"})),
    ((0, 23), frozenset({"Qwen3ForCausalLM", "LlamaForCausalLM", "MistralForCausalLM"})),
    (
        (0, 24),
        frozenset(
            "Qwen3ForCausalLM LlamaForCausalLM MistralForCausalLM DeepseekV2ForCausalLM Qwen2MoeForCausalLM "
            "GraniteMoeForCausalLM".split()
        ),
    ),
    ((0, 25), frozenset("DeepseekV2ForCausalLM Qwen2MoeForCausalLM GraniteMoeForCausalLM".split())),
    (
        (0, 28),
        frozenset("DeepseekV2ForCausalLM DeepseekV4ForCausalLM Qwen2MoeForCausalLM GraniteMoeForCausalLM".split()),
    ),
)


def runner_of(scenario: Scenario) -> str:
    """`V1` or `V2`, as the scenario says or as the release chooses."""
    if scenario.runner is not None:
        return scenario.runner
    release = scenario.release
    if release < (0, 22) or not scenario.hardware.is_cuda:
        return "V1"
    if release >= (0, 29):
        return "V2"
    if scenario.launch.runner == "pooling" or scenario.launch.speculative_config is not None:
        return "V1"
    view = view_of(scenario.config)
    architecture = architecture_of(scenario.config)
    listed = [names for first, names in _LISTED if release >= first][-1]
    experts = any(view.has(name) for name in ("num_local_experts", "num_experts", "n_routed_experts"))
    quantised = scenario.quantization is not None or bool(scenario.config.get("quantization_config"))
    if release < (0, 24):
        return "V2" if architecture in listed and not experts and not quantised else "V1"
    if release < (0, 25):
        return "V2" if architecture in listed else "V1"
    hybrid = any(view.has(name) for name in ("linear_num_key_heads", "mamba_d_state", "ssm_state_size", "state_size"))
    return "V2" if not hybrid and (architecture in listed or not experts) else "V1"
