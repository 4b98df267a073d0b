"""Shapes of recurrent state, per tensor-parallel rank.

Source: vLLM 0.32.0 model_executor/layers/mamba/mamba_utils.py MambaStateShapeCalculator; a convolution state is stored
as (length, channels), which is the default layout. Extra state for speculative tokens stands in the convolution.
"""

from __future__ import annotations

from reconstruct.planner.errors import WouldNotStart
from reconstruct.planner.models.layers import State


def share(value: int, ranks: int, what: str) -> int:
    """`value` split evenly. Raises WouldNotStart where it does not divide, as the engine asserts."""
    if value % ranks:
        raise WouldNotStart(f"{what} ({value}) must be divisible by tensor_parallel_size ({ranks})")
    return value // ranks


def mamba1(intermediate: int, state: int, kernel: int, ranks: int) -> State:
    """Build a selective state space of the first kind (mamba1_state_shape)."""
    width = share(intermediate, ranks, "the mamba width")
    return State("MAMBA1", ((kernel - 1, width), (width, state)), ("conv", "ssm"))


def mamba2(
    intermediate: int, groups: int, heads: int, head_dim: int, state: int, kernel: int, ranks: int, speculative: int = 0
) -> State:
    """Build a selective state space of the second kind; one group is replicated where it does not split (mamba_mixer2.py)."""
    if groups % ranks and groups != 1:
        raise WouldNotStart(
            f"{groups} mamba groups cannot be split over or replicated on {ranks} tensor-parallel ranks"
        )
    all_groups = groups if groups % ranks == 0 else ranks
    channels = share(intermediate + 2 * all_groups * state, ranks, "the mamba convolution width")
    own_heads = share(heads, ranks, "the number of mamba heads")
    shapes = ((kernel - 1 + speculative, channels), (own_heads, head_dim, state))
    return State("MAMBA2", shapes, ("conv", "ssm"), checkpoints=True)


def gated_delta(
    key_heads: int, value_heads: int, key_dim: int, value_dim: int, kernel: int, ranks: int, speculative: int = 0
) -> State:
    """Gated delta network of Qwen3-Next and later (gated_delta_net_state_shape)."""
    channels = share(key_dim * key_heads * 2 + value_dim * value_heads, ranks, "the delta-net convolution width")
    heads = share(value_heads, ranks, "the number of linear value heads")
    return State("GDN_ATTN", ((kernel - 1 + speculative, channels), (heads, value_dim, key_dim)), ("conv", "ssm"))


def kimi_delta(heads: int, head_dim: int, kernel: int, ranks: int, *, joined: bool, speculative: int = 0) -> State:
    """Kimi delta attention: one convolution over queries, keys and values, or one each in older releases.

    Source: kda_state_shape; the recurrent state is float32 unless asked otherwise (kda_state_dtype).
    """
    own = share(heads, ranks, "the number of linear attention heads")
    width = share(heads * head_dim, ranks, "the linear attention width")
    length = kernel - 1 + speculative
    state = (own, head_dim, head_dim)
    if joined:
        return State("GDN_ATTN", ((length, 3 * width), state), ("conv", "float32"))
    return State("GDN_ATTN", ((length, width),) * 3 + (state,), ("conv", "conv", "conv", "float32"))


def short_convolution(width: int, kernel: int, ranks: int) -> State:
    """Gated short convolution of LFM2 (short_conv_state_shape)."""
    return State("SHORT_CONV", ((kernel - 1, share(width, ranks, "the convolution width")),), ("conv",))
