"""What a release refuses about a model's division over ranks, before anything is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconstruct.planner.errors import WouldNotStart

if TYPE_CHECKING:
    from reconstruct.predict.scheme import Scheme
    from reconstruct.predict.shape import Shape


def check_divides(shape: Shape, scheme: Scheme, ranks: int, *, expert_parallel: bool) -> None:
    """Refuse what cannot be cut: key heads, feed-forward rows, vocabulary, quantisation blocks.

    Source: 0.19.1 distributed/utils.py divide (asserts), model_executor/models/llama.py LlamaAttention,
    layers/quantization/fp8.py (block shapes). Raises WouldNotStart.
    """
    if ranks == 1:
        return
    keys = shape.kv_heads
    if keys % ranks and (keys > ranks or ranks % keys):
        raise WouldNotStart(f"{keys} key heads cannot be divided over tensor_parallel_size {ranks}")
    if shape.vocabulary % ranks:
        raise WouldNotStart(
            f"the padded vocabulary of {shape.vocabulary} is not divisible by tensor_parallel_size {ranks}"
        )
    sizes = [("feed-forward", shape.intermediate)]
    if shape.experts and not expert_parallel:
        sizes = [("expert", shape.expert_intermediate)]
    for name, size in sizes:
        if size % ranks:
            raise WouldNotStart(f"the {name} size of {size} is not divisible by tensor_parallel_size {ranks}")
        if scheme.kind == "fp8_block" and size // ranks % (scheme.group or 128):
            raise WouldNotStart(
                f"the {name} size of a rank, {size // ranks}, is no multiple of the checkpoint's {scheme.group or 128}-wide "
                "fp8 blocks; lower tensor_parallel_size, or use expert parallelism"
            )
