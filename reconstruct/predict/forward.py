"""The forward pass of the profile run: what one layer holds at its widest point.

Read off the code that torch 2.10 and 2.11 generate for the piece between two attentions (_inductor, whose buffers it
frees after their last use), and off 0.8.5 to 0.19.1 model_executor/models and layers/fused_moe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconstruct.planner.pages import cdiv
from reconstruct.predict.cost import Cost
from reconstruct.predict.feed_forward import has_experts, shared_intermediate

if TYPE_CHECKING:
    from reconstruct.predict.peak import Subject
    from reconstruct.predict.workspaces import Workspace

HIDDEN_COPIES = 2
"""Copies of the hidden states alive beside the attention's output in a feed-forward layer: the residual before and after."""
EAGER, EAGER_GEMMA = (2, 3), (4, 4)
"""Copies alive in eager mode, at attention and behind it: the model's frame keeps a layer's input and residual
(models/llama.py), which norms write over, but Gemma's write new tensors (layers/layernorm.py GemmaRMSNorm)."""
TORCH_2_9, OUT_OF_PLACE = (0, 11, 1), (0, 11, 1)
"""The release that took torch 2.9, and from which on the experts' result is a tensor of its own."""


def forward_cost(subject: Subject, experts: Workspace) -> Cost:
    """Give the widest layer of this rank, with the experts' scratch where it is not kept, and what a later stage received."""
    s, row = subject.shape, subject.settled.batched_tokens * subject.settled.width
    start = 0 if subject.first else s.layers - subject.layers if subject.last else 1
    sparse = [has_experts(s, layer) for layer in range(start, min(start + subject.layers, s.layers))]
    middles = [] if all(sparse) else [(s.intermediate, _input_waits(subject))]
    if any(sparse) and shared_intermediate(s):
        middles.append((shared_intermediate(s), True))  # the experts take the same input
    if subject.scenario.enforce_eager and subject.settled.engine == "V1":
        rows = _eager_rows(subject, [0, *(middle for middle, _ in middles)])  # 0: experts' result, their scratch apart
    else:
        rows = [_attention_row(subject), _reduced_row(subject), *(_dense_row(subject, *middle) for middle in middles)]
    received = 0 if subject.first else 2 * s.hidden  # sync_and_slice_intermediate_tensors
    cost = Cost.exactly(row * max(rows))
    if any(sparse):
        passing = (0, 0) if experts.persistent else (int(experts.bytes.low or 0), int(experts.bytes.high or 0))
        base = row * _experts_row(subject)
        cost = cost.larger(Cost(base + passing[0], base + passing[1], base + passing[0]))
    return cost.plus(Cost.exactly(row * received))


def _attended(subject: Subject) -> tuple[int, int]:
    """Give the widths of queries and of keys on this rank; latent and recurrent layers stand for a hidden state and none."""
    s = subject.shape
    if s.trait.mixer != "mha":
        return s.hidden, 0
    return cdiv(s.heads, subject.ranks) * s.head_size, cdiv(s.kv_heads, subject.ranks) * s.head_size


def _eager_rows(subject: Subject, middles: list[int]) -> list[int]:
    """Give numbers a token without compiled pieces: at attention, at each gate, and where ranks add a result up."""
    s, (queries, keys), (at_attention, copies) = subject.shape, _attended(subject), _eager_copies(subject)
    rows = [at_attention * s.hidden + 2 * queries + 2 * keys]
    for middle in middles:
        gated = cdiv(middle, subject.ranks)
        rows.append(copies * s.hidden + (3 if s.gated else 2) * gated)
        if subject.ranks > 1:
            rows.append((copies + 2) * s.hidden + gated)
    return rows


def _eager_copies(subject: Subject) -> tuple[int, int]:
    return EAGER_GEMMA if subject.shape.trait.scaled_embedding else EAGER


def _attention_row(subject: Subject) -> int:
    """Give numbers a token at the end of a piece: queries rotated and not, room for the next output, and the last layer's."""
    queries, keys = _attended(subject)
    return 4 * queries + 3 * keys + 2 * subject.shape.hidden


def _dense_row(subject: Subject, intermediate: int, waits: bool) -> int:
    """Give numbers a token at the widest of three points, the layer's input there at the latter two if its memory waits.

    They are the product of gate and up with the input, its gated output beside the product, and the result beside that
    output: the first or the last where ranks share the intermediate size.
    """
    s, gated = subject.shape, cdiv(intermediate, subject.ranks)
    product, waiting = (2 if s.gated else 1) * gated, waits * s.hidden
    widest = max(product + s.hidden, product + gated + waiting, gated + s.hidden + waiting)
    return _attended(subject)[0] + HIDDEN_COPIES * s.hidden + widest


def _reduced_row(subject: Subject) -> int:
    """Give numbers a token where a layer's result is summed over the ranks, into a tensor of its own (pynccl.py all_reduce)."""
    results = 2 if subject.ranks > 1 else 1
    return _attended(subject)[0] + (HIDDEN_COPIES + results) * subject.shape.hidden


def _input_waits(subject: Subject) -> bool:
    """Whether the normed input's memory waits for the layer's output.

    From torch 2.9 on only where the layer's widest point is the product before, whose weights count: should_reuse_buffer
    in _inductor/codegen/wrapper.py. One half of the rows then weighs no more than both halves of that matrix.
    """
    if subject.settled.engine == "V0" or subject.scenario.enforce_eager or subject.scenario.release < TORCH_2_9:
        return True
    weight = subject.settled.width if subject.scheme.kind == "none" else 1
    return subject.settled.batched_tokens * subject.settled.width <= 2 * subject.shape.hidden * weight


def _experts_row(subject: Subject) -> int:
    """Give numbers a token while experts run, beside their scratch: their input, their result, a shared expert's."""
    s = subject.shape
    results = (subject.scenario.release >= OUT_OF_PLACE) + bool(shared_intermediate(s))
    if subject.scenario.enforce_eager and subject.settled.engine == "V1":
        return (_eager_copies(subject)[1] + results) * s.hidden
    return _attended(subject)[0] + (HIDDEN_COPIES + 1 + results) * s.hidden
