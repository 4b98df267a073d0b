"""What a release takes where an option is not given: rules with their release, shown as defaults.

Sources: engine/arg_utils.py (_set_default_args_v0, _set_default_args_v1, get_batch_defaults) and config/vllm.py
(_set_cudagraph_sizes) of 0.7.3 to 0.33.0; config/scheduler.py of 0.10.2 and 0.11.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.eras import era
from reconstruct.planner.config_dtype import model_dtype
from reconstruct.planner.models.view import view_of
from reconstruct.planner.pages import round_up
from reconstruct.planner.spec import MLA_LIKE, dtype_size
from reconstruct.predict.runner import runner_of
from reconstruct.predict.shape import is_multimodal
from reconstruct.rounding import GIB

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconstruct.eras import Era
    from reconstruct.planner.config import ConfigSpecs
    from reconstruct.predict.hardware import Hardware
    from reconstruct.predict.scenario import Scenario

V0_SEQUENCES, V0_TOKENS = 256, 2048
LONG, POOLED_TOKENS = 32768, 32768
"""Tokens beyond which V0 chunks prompts by itself, and that pooling models take at least."""


class Settled(NamedTuple):
    """Every setting that the terms need, and which of them are the release's defaults.

    engine: "V0" or "V1". captured: zeros without graphs.
    """

    engine: str
    era: Era
    runner: str
    utilization: float
    sequences: int
    batched_tokens: int
    dtype: str
    width: int
    max_model_len: int
    captured: Captured
    defaulted: tuple[str, ...]


class Captured(NamedTuple):
    """How many CUDA graphs are captured: piecewise and full ones, and their largest sizes."""

    piecewise: int = 0
    full: int = 0
    largest: int = 0
    largest_full: int = 0


def card_tier(hardware: Hardware, release: tuple[int, ...]) -> int:
    """Give the tier of a card, by which defaults grow.

    2 from 160 GiB on (0.28.0 on), 1 from 70 GiB on unless an A100 (0.9.0 on) or a GB10 (0.33).
    """
    total_low = hardware.total_memory.low or 0
    card = hardware.name.casefold()
    if release >= (0, 28) and total_low >= 160 * GIB:
        return 2
    small = ("a100" in card and release >= (0, 9)) or ("gb10" in card and release >= (0, 33))
    return 1 if total_low >= 70 * GIB and not small else 0


def default_sequences(scenario: Scenario, engine: str) -> int:
    """max_num_seqs: 256, or 1024 on large cards from 0.8.2 on (V1 alone)."""
    release = scenario.release
    if engine == "V0" or release < (0, 8, 2):
        return V0_SEQUENCES
    return 1024 if card_tier(scenario.hardware, release) else 256


CAPPED = (0, 11, 1)
"""The release from which a default batch holds no more than all sequences of full length (engine/arg_utils.py)."""


def default_batched_tokens(scenario: Scenario, built: ConfigSpecs, sequences: int) -> int:
    """max_num_batched_tokens: by card and by who starts the engine; V0's follows the length where prompts stay whole."""
    release, length = scenario.release, built.launch.max_model_len or 0
    if not built.launch.use_v1:
        return _v0_tokens(scenario, built, length)
    tier = card_tier(scenario.hardware, release) if release >= (0, 8) else 1
    found = (2048, 8192, 16384)[tier]
    if scenario.offline:
        found = (8192, 16384, 16384)[tier]
    return min(found, sequences * length) if release >= CAPPED else found


def _v0_tokens(scenario: Scenario, built: ConfigSpecs, length: int) -> int:
    """Give V0's default: prompts are chunked by themselves only beyond 32768 tokens, and not for every model.

    Source: engine/arg_utils.py create_engine_config and config.py SchedulerConfig of 0.5.3.post1, 0.5.5, 0.6.4.post1,
    0.6.5, 0.7.3; arg_utils.py _set_default_args_v0 of 0.8.5.
    """
    release, launch = scenario.release, built.launch
    kinds = {spec.kind for stage in built.stages for spec in stage}
    multimodal = is_multimodal(scenario.config) and release >= (0, 6, 4)
    whole = (
        length <= LONG
        or release < (0, 5, 3)
        or not scenario.hardware.is_cuda
        or launch.runner == "pooling"
        or scenario.lora
        or launch.speculative_config is not None
        or multimodal
        or _slides(scenario.config)
        or (release >= (0, 8) and bool(kinds & MLA_LIKE))
    )
    chunk = 512 if release < (0, 6, 5) else V0_TOKENS
    least = POOLED_TOKENS if launch.runner == "pooling" else 5120 if multimodal else 0
    return max(max(length, V0_TOKENS) if whole else chunk, least)


def _slides(config: Mapping[str, object]) -> bool:
    """Whether every layer has a window, by what 0.5 to 0.8 read of the config (config.py get_sliding_window)."""
    view = view_of(config)
    interleaved = view.model_type.startswith(("gemma2", "gemma3", "cohere2"))
    return (
        view.maybe_number("sliding_window") is not None
        and view.get("use_sliding_window") is not False
        and not interleaved
    )


def capture_sizes(largest: int, release: tuple[int, ...]) -> tuple[int, ...]:
    """Give the sizes captured up to `largest`: 1, 2, 4, then steps of 8, and of 16 from 256 on (0.11.1 on)."""
    if release < (0, 11, 1):
        return tuple(s for s in (1, 2, 4, *range(8, largest + 1, 8)) if s <= largest)
    return tuple(
        s for s in (1, 2, 4, *range(8, min(largest + 1, 256), 8), *range(256, largest + 1, 16)) if s <= largest
    )


def captured(scenario: Scenario, engine: str, sequences: int, tokens: int) -> Captured:
    """Which graphs are captured: piecewise ones up to twice the sequences, full ones up to the sequences.

    V0 captures whole graphs up to 256 sequences, V1 piecewise ones from 0.6.3 and both from 0.11.0 (FULL_AND_PIECEWISE;
    0.11.0 config/compilation.py, v1/cudagraph_dispatcher.py), each with and without adapters where these are on (0.11.1
    v1/cudagraph_dispatcher.py). gpt-oss raises the ceiling to 1024 on Hopper
    (0.11.0 models/config.py GptOssForCausalLMConfig).
    """
    release = scenario.release
    if scenario.enforce_eager:
        return Captured()
    if engine == "V0":
        largest = min(256, round_up(sequences, 8))
        return Captured(0, len(capture_sizes(largest, release)), 0, largest)
    ceiling = 1024 if release >= (0, 28) and scenario.hardware.capability[0] == 10 else 512
    architecture = scenario.config.get("architectures")
    if isinstance(architecture, list) and "GptOssForCausalLM" in architecture and release >= (0, 10, 2):
        ceiling = 1024
    per_request = 1
    if scenario.launch.speculative_config is not None and release >= (0, 14):
        per_request += scenario.launch.speculative_config.num_speculative_tokens
    limit = min(sequences * per_request * 2, ceiling) if release >= (0, 10) else ceiling
    largest = min(scenario.capture_size or limit, tokens)
    sizes = capture_sizes(largest, release)
    if not sizes or release < (0, 11):
        return Captured(len(sizes), 0, sizes[-1] if sizes else 0, 0)
    full = [s for s in sizes if s <= sequences * per_request]
    cases = 2 if scenario.lora and release >= (0, 11, 1) else 1
    return Captured(cases * len(sizes), cases * len(full), sizes[-1], full[-1] if full else 0)


def settled(scenario: Scenario, built: ConfigSpecs) -> Settled:
    """Fill in what was not given; `built` has the engine and the length in force. Raises Unsupported for a dtype."""
    release, launch = scenario.release, built.launch
    engine = "V1" if launch.use_v1 else "V0"
    behaviour = era(scenario.place, engine)
    defaulted = []
    utilization = scenario.gpu_memory_utilization
    if utilization is None:
        utilization = behaviour.default_utilization
        defaulted.append("gpu_memory_utilization")
    sequences = launch.max_num_seqs
    if sequences is None:
        sequences = default_sequences(scenario, engine)
        defaulted.append("max_num_seqs")
    tokens = launch.max_num_batched_tokens
    if not scenario.batched_tokens_given:
        tokens = default_batched_tokens(scenario, built, sequences)
        defaulted.append("max_num_batched_tokens")
    sequences = min(sequences, tokens) if release >= (0, 8) else sequences
    dtype = model_dtype(scenario.config, launch, release)
    runner = runner_of(scenario)
    graphs = captured(scenario, engine, sequences, tokens)
    return Settled(
        engine,
        behaviour,
        runner,
        utilization,
        sequences,
        tokens,
        dtype,
        dtype_size(dtype),
        launch.max_model_len or 0,
        graphs,
        tuple(defaulted),
    )
