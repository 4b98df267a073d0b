"""The whole prediction: terms of every stage, the planner's blocks and tokens, and the checks on the way to "ready"."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.ledger import EngineLedger, RankLedger
from reconstruct.planner.config import layer_specs
from reconstruct.planner.config_stages import stage_sizes
from reconstruct.planner.errors import WouldNotStart
from reconstruct.predict.capacity import Capacity, capacity_of
from reconstruct.predict.checks import Check, checks_of, verdict_of
from reconstruct.predict.defaults import settled
from reconstruct.predict.divisions import check_divides
from reconstruct.predict.parts import Split
from reconstruct.predict.peak import Subject
from reconstruct.predict.scheme import scheme_of
from reconstruct.predict.shape import shape_of
from reconstruct.predict.terms import stage_terms
from reconstruct.predict.weights import Placement, stage_weights

if TYPE_CHECKING:
    from reconstruct.predict.defaults import Settled
    from reconstruct.predict.scenario import Scenario
    from reconstruct.predict.terms import StageTerms

VENDORS_TRITON = (0, 14)
"""The release that brings Triton's kernels for mxfp4 experts along (third_party/triton_kernels); older ones run Marlin's
on Hopper too, unless they were installed apart."""
TOO_WIDE = 0.15
"""Half a band of M, as a share of M, from which on a prediction answers nothing."""


class Prediction(NamedTuple):
    """One predicted start-up.

    outcome: "starts", "may not start" or "does not start"; failing: the first check that is not passed for sure.
    engine: its ranks (one for each pipeline stage: tensor-parallel ranks are alike) and capacity; None where the launch
    is refused before anything is allocated. subjects: what the terms of each stage were computed from. expected: for
    each rank the likeliest value of every term, inside its band. parts: weights of each rank by part. reasons: what is
    not modelled, so that bands are wider.
    """

    scenario: Scenario
    settled: Settled | None
    engine: EngineLedger | None
    subjects: tuple[Subject, ...]
    expected: tuple[dict[str, int], ...]
    parts: tuple[tuple[tuple[str, int], ...], ...]
    checks: tuple[Check, ...]
    outcome: str
    reasons: tuple[str, ...]

    @property
    def failing(self) -> Check | None:
        """The check that the start fails at, or may fail at."""
        return next((check for check in self.checks if check.verdict != "passes"), None)


def predict(scenario: Scenario) -> Prediction:
    """Predict the ledger of one start-up.

    Raises Unsupported where the model's tensors, cache or settings are not known; a launch that the engine refuses is an
    answer, not an error.
    """
    try:
        built = layer_specs(scenario.config, scenario.launch)
        shape, scheme = shape_of(scenario.config), scheme_of(scenario.config, scenario.quantization)
        ranks = scenario.launch.tensor_parallel_size
        check_divides(shape, scheme, ranks, expert_parallel=scenario.expert_parallel)
        sizes = stage_sizes(shape.layers, scenario.launch.pipeline_parallel_size, scenario.release)
    except WouldNotStart as refusal:
        check = Check("configuration", "fails", str(refusal))
        return Prediction(scenario, None, None, (), (), (), (check,), "does not start", ())
    found = settled(scenario, built)
    experts = ranks * scenario.data_parallel_size if scenario.expert_parallel else 1
    capability = scenario.hardware.capability
    place = Placement(
        Split(ranks, experts), len(sizes), found.width, scenario.release,
        pooling=scenario.launch.runner == "pooling",
        marlin=capability[0] != 9 or scenario.release < VENDORS_TRITON,
        adapters=scenario.lora, rocm=not scenario.hardware.is_cuda,
    )  # fmt: skip
    weights = stage_weights(scenario.config, shape, scheme, place)
    subjects = [
        Subject(scenario, found, shape, scheme, first=i == 0, last=i == len(sizes) - 1, layers=count)
        for i, count in enumerate(sizes)
    ]
    stages = [stage_terms(subject, own) for subject, own in zip(subjects, weights, strict=True)]
    capacity = capacity_of(scenario, found, built, stages)
    checks = checks_of(scenario, found, stages, capacity)
    reasons = tuple(dict.fromkeys(r for stage in stages for r in stage.reasons)) + _refusals(stages)
    expected, parts = tuple(stage.expected for stage in stages), tuple(own.parts for own in weights)
    engine = _engine(scenario, stages, capacity)
    return Prediction(scenario, found, engine, tuple(subjects), expected, parts, checks, verdict_of(checks), reasons)


def _refusals(stages: list[StageTerms]) -> tuple[str, ...]:
    """Say where a band of M is too wide to plan with."""
    for stage in stages:
        low, high = stage.available
        if low is not None and high is not None and high - low > 2 * TOO_WIDE * abs(low + high) / 2:
            return (f"the band of M is wider than {TOO_WIDE:.0%} either way: take it for no answer",)
    return ()


def _engine(scenario: Scenario, stages: list[StageTerms], capacity: Capacity) -> EngineLedger:
    ranks = []
    for number, stage in enumerate(stages):
        name = "EngineCore" if scenario.world == 1 else f"Worker_PP{number}" if len(stages) > 1 else "Worker_TP0"
        stage_number = number if len(stages) > 1 else None
        ranks.append(RankLedger(name=name, dp=0, pp=stage_number, tp=0, node=None, account=stage.account))
    binding = ranks[capacity.binding_stage].name if capacity.binding_stage is not None else None
    return EngineLedger(0, tuple(ranks), capacity.account, binding, None)
