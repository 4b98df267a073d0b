"""H: the activation peak that the profile run measures, in closed form, and what the run leaves allocated.

The run is one forward pass over max_num_batched_tokens and one sampling step over max_num_seqs rows; the larger of the
two is the peak. Sources: v1/worker/gpu_model_runner.py (profile_run, _dummy_sampler_run), v1/sample/sampler.py and
ops/topk_topp_sampler.py, v1/worker/gpu/model_runner.py of 0.22 to 0.33; torch's sort needs scratch of 20 B an element
(aten/src/ATen/native/cuda/SortStable.cu).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.interval import Interval
from reconstruct.planner.pages import cdiv
from reconstruct.predict.constants import constant
from reconstruct.predict.feed_forward import has_experts, shared_intermediate
from reconstruct.predict.images import images_of
from reconstruct.predict.workspaces import expert_workspace
from reconstruct.rounding import MIB

if TYPE_CHECKING:
    from reconstruct.predict.constants import Constant
    from reconstruct.predict.defaults import Settled
    from reconstruct.predict.hardware import Hardware
    from reconstruct.predict.scenario import Scenario
    from reconstruct.predict.scheme import Scheme
    from reconstruct.predict.shape import Shape

HIDDEN_COPIES = 4
"""Copies of the hidden states alive at the forward peak: input, residual, normed input, the caller's."""
SORTING, SELECTING = 36, 12
"""Bytes a logit beside its own dtype: float32 copy with sort outputs and scratch, or with softmax and noise (0.17.0 on)."""
ROWS_FOR_TRITON = 8


class Subject(NamedTuple):
    """One pipeline stage of one launch, with all that its terms depend on."""

    scenario: Scenario
    settled: Settled
    shape: Shape
    scheme: Scheme
    first: bool
    last: bool
    layers: int

    @property
    def hardware(self) -> Hardware:
        """The card."""
        return self.scenario.hardware

    @property
    def ranks(self) -> int:
        """Tensor parallel ranks."""
        return self.scenario.launch.tensor_parallel_size

    @property
    def consumes(self) -> bool:
        """Whether the release charges what is consumed at rest (0.27.0 on), so that what stays is no part of H."""
        return self.settled.era.charge == "consumed"


class Peak(NamedTuple):
    """The peak and what stays.

    headroom: H (the torch peak increase P up to 0.26). kept: torch memory that the run leaves behind, part of H up to
    0.26 and of C from 0.27.0 on. likely: the centre of H. forward, sampling: the nominal bytes of both phases. reasons:
    what is not modelled.
    """

    headroom: Interval
    likely: int
    kept: Interval
    forward: int
    sampling: int
    reasons: tuple[str, ...]


def forward_bytes(subject: Subject) -> int:
    """Give the forward pass: hidden states and the widest feed-forward layer of this rank."""
    s, tokens, width = subject.shape, subject.settled.batched_tokens, subject.settled.width
    start = 0 if subject.first else s.layers - subject.layers if subject.last else 1
    dense = [not has_experts(s, layer) for layer in range(start, min(start + subject.layers, s.layers))]
    middle = max(s.intermediate if any(dense) else 0, 0 if all(dense) else shared_intermediate(s))  # experts: apart
    rows = 3 if s.gated else 2
    # what a later stage receives (sync_and_slice_intermediate_tensors); a first one keeps nothing, but was seen to take it
    passed = 0 if subject.first and subject.last else 2 * s.hidden
    return tokens * width * (HIDDEN_COPIES * s.hidden + rows * cdiv(middle, subject.ranks) + passed)


class Cost(NamedTuple):
    """Bytes of something at least, at most, and likely."""

    low: int
    high: int
    likely: int

    def times(self, factor: int, plus: int) -> Cost:
        """Give the cost of `factor` pieces and something besides."""
        return Cost(*(end * factor + plus for end in self))


def logit_cost(subject: Subject, rows: int) -> Cost:
    """Bytes that a logit costs in the sampling step.

    0.33.0's V2 runner adds a pass with every sampling option on: a float32 copy, and FlashInfer's masked copy and
    probabilities where it is installed (v1/worker/gpu/sample/sampler.py); read off the code, not measured.
    """
    width, release = subject.settled.width, subject.scenario.release
    drafts = 2 * (width + 8) if subject.scenario.launch.speculative_config is not None else 0
    if subject.settled.runner == "V2":
        low, high = (width + 4, width + SELECTING) if release >= (0, 33) else (width, width)
        return Cost(low, high + drafts, high)
    sorts = subject.settled.engine == "V0" or release < (0, 17) or rows < ROWS_FOR_TRITON
    cost = width + (SORTING if sorts else SELECTING)
    return Cost(cost, cost + drafts, cost)


def sampling_cost(subject: Subject) -> Cost:
    """Give the sampling step: logits, hidden states of all tokens, two of the sampled rows."""
    s, width, tokens = subject.shape, subject.settled.width, subject.settled.batched_tokens
    if not subject.last or subject.scenario.launch.runner == "pooling":
        return Cost(0, 0, 0)
    rows = min(subject.settled.sequences, tokens)
    hidden = tokens * s.hidden * width + 2 * rows * s.hidden * width
    passed = 0 if subject.first else 2 * tokens * s.hidden * width
    return logit_cost(subject, rows).times(rows * s.vocabulary, hidden + passed)


def selecting_scratch(subject: Subject) -> int:
    """Bytes of the Triton top-k/top-p buffer: one row of logits for each multiprocessor (0.17.0 on, 8 rows and more)."""
    settled = subject.settled
    if not subject.last or settled.runner == "V2" or subject.scenario.release < (0, 17) or settled.engine == "V0":
        return 0
    if min(settled.sequences, settled.batched_tokens) < ROWS_FOR_TRITON:
        return 0
    return 4 * subject.hardware.multiprocessors * subject.shape.vocabulary


def peak_of(subject: Subject) -> Peak:
    """H of one stage's ranks, with the model's stated error. What a band only allows for is not in the likely value."""
    forward, sampling = forward_bytes(subject), sampling_cost(subject)
    experts, images = expert_workspace(subject), images_of(subject)
    stays = subject.hardware.blas_workspace + selecting_scratch(subject)
    transient, kept = experts.bytes, Interval.exactly(stays)
    if experts.persistent:
        transient, kept = Interval(0, 0), experts.bytes.plus(kept)
    held = _end(images.held.low)
    low = max(forward + _end(transient.low), sampling.low) + held
    likely = max(forward + _end(transient.low), sampling.likely) + held
    high = max(max(forward + _end(transient.high), sampling.high) + _end(images.held.high), images.encoder)
    band, reasons = _band(subject, forward_bound=forward > sampling.high)
    if not subject.consumes:
        low, high, likely = low + _end(kept.low), high + _end(kept.high), likely + _end(kept.low)
    edge = constant("peak.edge")
    headroom = Interval(
        max(0, int(low * (1 + band.low) + edge.low * MIB)), int(high * (1 + band.high) + edge.high * MIB)
    )
    reasons += experts.reasons + images.reasons
    return Peak(headroom, int(likely * (1 + band.value)), kept, forward, sampling.high, reasons)


def _end(value: float | None) -> int:
    return int(value or 0)


def _band(subject: Subject, *, forward_bound: bool) -> tuple[Constant, tuple[str, ...]]:
    """Which stated error applies, and in words what the closed form leaves out."""
    reasons = []
    if subject.scenario.lora:
        return constant("peak.lora"), ("LoRA adapters add buffers of their own: only an upper share is known",)
    if subject.settled.runner == "V2":
        if subject.scenario.release >= (0, 33):
            reasons.append("0.33's second sampling pass of the V2 runner is read off the code, not measured")
        return constant("peak.v2"), tuple(reasons)
    if not subject.last:
        return constant("peak.stage"), ()
    if subject.shape.trait.mixer != "mha":
        kind = "latent attention" if subject.shape.trait.mixer == "latent" else "recurrent layers"
        return constant("peak.latent"), (f"{kind}: scratch of the kernels is not modelled",)
    if forward_bound:
        return constant("peak.forward"), ()
    return constant("peak.sampling", subject.scenario.place), ()
