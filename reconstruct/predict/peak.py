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
from reconstruct.predict.cost import Cost
from reconstruct.predict.forward import forward_cost
from reconstruct.predict.images import images_of, largest_image
from reconstruct.predict.workspaces import NOTHING, expert_workspace
from reconstruct.rounding import GIB, MIB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconstruct.predict.constants import Constant
    from reconstruct.predict.defaults import Settled
    from reconstruct.predict.hardware import Hardware
    from reconstruct.predict.images import Images
    from reconstruct.predict.scenario import Scenario
    from reconstruct.predict.scheme import Scheme
    from reconstruct.predict.shape import Shape

COMPILED_COPIES = 2
WARMED_UP = (0, 33)
"""The release that takes cuBLAS's workspace before its baseline (v1/worker/gpu_worker.py init_device)."""
MEASURES_KERNELS, SEEN_TO_PEAK = (0, 11, 1), (0, 19)
"""The release from which Inductor measures kernels while it compiles, and the first that was seen to peak so."""
SORTING, SELECTING = 36, 12
"""Bytes a logit beside its own dtype: float32 copy with sort outputs and scratch, or with softmax and noise (0.17.0 on)."""
ROWS_FOR_TRITON = 8
TOLD = GIB // 100
"""Bytes that a later start must save to be told of it: what a figure prints."""


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
    0.26 and of C from 0.27.0 on. likely: the centre of H. reasons: what is not modelled.
    """

    headroom: Interval
    likely: int
    kept: Interval
    reasons: tuple[str, ...]


def compiling_cost(subject: Subject) -> Cost:
    """Give what compiling the first layer takes before anything else is there: the embedding and two hidden states.

    Seen, not read: three pairs of a start that compiled and one that loaded its graphs differ by it to a MiB (0.19 on
    RTX 3090, 0.25 on A40), and a first pipeline stage on H100 peaked at it. From 0.11.1 on vLLM has Inductor measure
    kernels on arguments of full size (config/compilation.py: benchmark_combo_kernel); a start whose measurements are
    cached elsewhere does not.
    """
    s, scenario, settled = subject.shape, subject.scenario, subject.settled
    compiled = settled.engine == "V1" and not scenario.enforce_eager and scenario.release >= MEASURES_KERNELS
    if not compiled or not subject.first or scenario.compiles is False:
        return Cost(0, 0, 0)
    table = cdiv(s.vocabulary, subject.ranks) * s.hidden
    whole = settled.width * (table + COMPILED_COPIES * settled.batched_tokens * s.hidden)
    return Cost(0, whole, whole if scenario.release >= SEEN_TO_PEAK else 0)


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
    passed = 0 if subject.first else 2 * tokens * s.hidden * width
    found = [
        logit_cost(subject, rows).times(rows * s.vocabulary, (tokens + 2 * rows) * s.hidden * width + passed)
        for rows in sampled_rows(subject)
    ]
    return Cost(found[0].low, found[1].high, found[2].likely)


def sampled_rows(subject: Subject) -> tuple[int, int, int]:
    """Rows that the profile run samples, at least, at most and likely: V0 fills its batch with whole images.

    Source: worker/model_runner.py profile_run of 0.5.5 to 0.8.5.
    """
    tokens, config = subject.settled.batched_tokens, subject.scenario.config
    rows = min(subject.settled.sequences, tokens)
    if subject.settled.engine != "V0" or not subject.shape.multimodal:
        return rows, rows, rows
    image = largest_image(config)
    of_images = rows if image is None else max(1, min(rows, tokens // image))
    return 1 if image is None else of_images, of_images, of_images


def selecting_scratch(subject: Subject) -> int:
    """Bytes of the Triton top-k/top-p buffer (0.17.0 on, 8 rows and more): a row of logits for each program.

    Source: 0.19.1 v1/sample/ops/topk_topp_triton.py: a program for each row, by powers of two, and no more than there are
    multiprocessors.
    """
    settled = subject.settled
    if not subject.last or settled.runner == "V2" or subject.scenario.release < (0, 17) or settled.engine == "V0":
        return 0
    most, rows = subject.hardware.multiprocessors, min(settled.sequences, settled.batched_tokens)
    if rows < ROWS_FOR_TRITON:
        return 0
    programs = min(1 << (min(most, rows) - 1).bit_length(), most)
    return 4 * programs * subject.shape.vocabulary


class Phase(NamedTuple):
    """One part of the profile run: its peak, with all that is there by then, and its stated error."""

    cost: Cost
    error: Constant


def peak_of(subject: Subject) -> Peak:
    """H of one stage's ranks, with the model's stated error. What a band only allows for is not in the likely value.

    What experts keep stands in the peak and in what stays alike: where their scratch is not known, the band holds H with
    the least of it and with the most, and never the one against the other.
    """
    experts, images = expert_workspace(subject), images_of(subject)
    taken = 0 if subject.scenario.release >= WARMED_UP else subject.hardware.blas_workspace
    scratch = experts.bytes if experts.persistent else NOTHING
    forward, sampling = forward_cost(subject, experts), sampling_cost(subject)
    compiling = Phase(compiling_cost(subject), constant("peak.compiling"))
    errors, reasons = _errors(subject)
    ends, loaded = [], 0
    for held in (_end(scratch.high), _end(scratch.low)):
        before, after = taken + held, taken + held + selecting_scratch(subject)
        costs = (forward.plus(Cost.exactly(before)), sampling.plus(Cost.exactly(after)))
        running, stays = tuple(map(Phase, costs, errors)), after if subject.consumes else 0
        ends.append(_highest((compiling, *running), images, kept=after, stays=stays))
        loaded = _highest(running, images, kept=after, stays=stays).likely
    likely, edge = max(0, ends[-1].likely), constant("peak.edge")
    saved = likely - max(0, loaded)
    if saved >= TOLD and subject.scenario.compiles is None:
        reasons += (
            f"the first start compiles; a later one, its graphs in the cache, likely has {saved / GIB:.2f} GiB more",
        )
    low, high = min(end.low for end in ends) + edge.low * MIB, max(end.high for end in ends) + edge.high * MIB
    kept = Interval.exactly(taken + selecting_scratch(subject)).plus(scratch)
    return Peak(Interval(max(0, int(low)), int(high)), likely, kept, (*reasons, *experts.reasons, *images.reasons))


def _highest(phases: Sequence[Phase], images: Images, *, kept: int, stays: int) -> Cost:
    """Give the highest phase, with images held beside it, less what `stays`; `kept` is there while images are encoded."""
    low = max(phase.cost.low * (1 + phase.error.low) for phase in phases) + _end(images.held.low)
    high = max(phase.cost.high * (1 + phase.error.high) for phase in phases) + _end(images.held.high)
    likely = max(phase.cost.likely * (1 + phase.error.value) for phase in phases) + images.likely_held
    encoder = images.encoder.plus(Cost.exactly(kept))
    return Cost(int(low - stays), int(max(high, encoder.high) - stays), int(max(likely, encoder.likely) - stays))


def _end(value: float | None) -> int:
    return int(value or 0)


def _errors(subject: Subject) -> tuple[tuple[Constant, Constant], tuple[str, ...]]:
    """Which stated errors the forward pass and the sampling step have, and in words what the closed form leaves out."""
    reasons: tuple[str, ...] = ()
    if subject.scenario.lora:
        alike, reasons = "lora", ("LoRA adapters add buffers of their own: only an upper share is known",)
    elif subject.settled.runner == "V2":
        alike = "v2"
        if subject.scenario.release >= (0, 33):
            reasons = ("0.33's second sampling pass of the V2 runner is read off the code, not measured",)
    elif not subject.last:
        alike = "stage"
    elif subject.shape.trait.mixer != "mha":
        alike = "latent"
        kind = "latent attention" if subject.shape.trait.mixer == "latent" else "recurrent layers"
        reasons = (f"{kind}: scratch of the kernels is not modelled",)
    else:
        forward = "eager" if subject.scenario.enforce_eager else "forward"
        return (constant(f"peak.{forward}"), constant("peak.sampling", subject.scenario.place)), ()
    error = constant(f"peak.{alike}")
    return (error, error), reasons
