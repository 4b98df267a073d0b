"""What is asked: a model, a launch, a card, and what the planner's own settings do not hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.planner.rules import release_of
from reconstruct.releases import NEWEST, RELEASES, index

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconstruct.interval import Interval
    from reconstruct.planner.launch import Launch
    from reconstruct.predict.hardware import Hardware


class Fixed(NamedTuple):
    """A term that the user states, or that a log printed: it replaces the model's own."""

    name: str
    interval: Interval
    origin: str = "given"


class Scenario(NamedTuple):
    """One start-up to predict. None means that the option was not given.

    `launch.max_num_seqs` and the like stay as given; `defaults.settled` fills them in. `batched_tokens_given` tells
    whether `launch.max_num_batched_tokens` is the user's. offline: started by the LLM class, not by the API server.
    charge_graphs: VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS. capture_size: largest CUDA graph asked for. runner: "V1" or
    "V2" where VLLM_USE_V2_MODEL_RUNNER decides. compiles: whether torch.compile finds nothing in its cache; a first start
    does. other_use: bytes that other processes hold on the card.
    """

    config: Mapping[str, object]
    launch: Launch
    hardware: Hardware
    gpu_memory_utilization: float | None = None
    quantization: str | None = None
    data_parallel_size: int = 1
    expert_parallel: bool = False
    enforce_eager: bool = False
    batched_tokens_given: bool = False
    offline: bool = False
    lora: bool = False
    charge_graphs: bool | None = None
    capture_size: int | None = None
    runner: str | None = None
    compiles: bool | None = None
    cache_bytes: int | None = None
    other_use: int = 0
    fixed: tuple[Fixed, ...] = ()

    @property
    def release(self) -> tuple[int, ...]:
        """The release as numbers."""
        return release_of(self.launch.engine_version)

    @property
    def place(self) -> int:
        """The release's place in the list of releases; the nearest older one for a number that was never released."""
        version = self.launch.engine_version
        if version in RELEASES:
            return index(version)
        known = [i for i, r in enumerate(RELEASES) if release_of(r) <= self.release]
        return known[-1] if known else NEWEST

    @property
    def world(self) -> int:
        """Ranks of one engine."""
        return self.launch.tensor_parallel_size * self.launch.pipeline_parallel_size

    def fixed_term(self, name: str) -> Fixed | None:
        """Give the stated value of a term."""
        return next((fact for fact in self.fixed if fact.name == name), None)
