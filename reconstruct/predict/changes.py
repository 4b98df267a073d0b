"""The smallest changes that make a start certain: one option at a time, least intrusive first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.planner.errors import BadSetting, Unsupported
from reconstruct.predict.ledger import predict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from reconstruct.predict.ledger import Prediction
    from reconstruct.predict.scenario import Scenario

MOST_UTILIZATION = 0.98
GRAIN = 256
"""Requests are shortened to a multiple of this many tokens."""
MOST_RANKS = 8
"""Tensor-parallel ranks tried where nobody says how many cards there are."""


class Change(NamedTuple):
    """One change that makes the start certain: the option, what it costs, and the prediction with it."""

    do: str
    cost: str
    prediction: Prediction


class _Start(NamedTuple):
    """A scenario and its prediction, from which every search sets out."""

    scenario: Scenario
    prediction: Prediction
    cards: int


def changes_of(scenario: Scenario, prediction: Prediction, cards: int | None = None) -> tuple[Change, ...]:
    """Give every single option that makes the start certain, each by as little as will do; the smallest change first."""
    start = _Start(scenario, prediction, cards if cards is not None else MOST_RANKS)
    failing = prediction.failing
    searches = _SPREADING if failing is not None and failing.name in _TOO_BIG else _ALL
    found = [search(start) for search in searches]
    return tuple(change for change in found if change is not None)


def _starts(scenario: Scenario) -> Prediction | None:
    """Predict a changed scenario; None unless it starts for certain."""
    try:
        prediction = predict(scenario)
    except (Unsupported, BadSetting):
        return None
    return prediction if prediction.outcome == "starts" else None


def _first(tries: Iterable[tuple[str, Scenario]], cost: str) -> Change | None:
    for do, changed in tries:
        prediction = _starts(changed)
        if prediction is not None:
            return Change(do, cost, prediction)
    return None


def _utilization(start: _Start) -> Change | None:
    """Up in hundredths; down where more is asked for than is free."""
    settled = start.prediction.settled
    if settled is None:
        return None
    now, highest = round(settled.utilization * 100), round(MOST_UTILIZATION * 100)
    failing = start.prediction.failing
    too_much = failing is not None and failing.name in _OVER_BUDGET
    steps = range(now - 1, 9, -1) if too_much else range(now + 1, highest + 1)
    tries = (
        (f"--gpu-memory-utilization {n / 100:g}", start.scenario._replace(gpu_memory_utilization=n / 100))
        for n in steps
    )
    return _first(tries, "a smaller cache" if too_much else "less room for others on the card")


def _sequences(start: _Start) -> Change | None:
    settled = start.prediction.settled
    if settled is None:
        return None
    launch = start.scenario.launch
    tries = (
        (f"--max-num-seqs {n}", start.scenario._replace(launch=launch._replace(max_num_seqs=n)))
        for n in _halves(settled.sequences, 1)
    )
    return _first(tries, "fewer requests at once")


def _batched_tokens(start: _Start) -> Change | None:
    settled = start.prediction.settled
    if settled is None:
        return None
    base = start.scenario._replace(batched_tokens_given=True)
    tries = (
        (f"--max-num-batched-tokens {n}", base._replace(launch=base.launch._replace(max_num_batched_tokens=n)))
        for n in _halves(settled.batched_tokens, 512)
    )
    return _first(tries, "slower prefill")


def _halves(value: int, least: int) -> Iterator[int]:
    while value > least:
        value //= 2
        yield value


def _length(start: _Start) -> Change | None:
    """Find the longest multiple of GRAIN that starts by bisection: a shorter request never needs more."""
    settled = start.prediction.settled
    if settled is None:
        return None

    def at(length: int) -> Prediction | None:
        launch = start.scenario.launch._replace(max_model_len=length)
        return _starts(start.scenario._replace(launch=launch))

    longest = _longest(at, settled.max_model_len // GRAIN)
    if longest is None:
        return None
    length, prediction = longest
    return Change(f"--max-model-len {length}", "shorter requests", prediction)


def _longest(at: Callable[[int], Prediction | None], most: int) -> tuple[int, Prediction] | None:
    if at(GRAIN) is None:
        return None
    low, high = 1, most - 1
    best = None
    while low <= high:
        middle = (low + high) // 2
        prediction = at(middle * GRAIN)
        if prediction is None:
            high = middle - 1
        else:
            best, low = (middle * GRAIN, prediction), middle + 1
    return best


def _cache_dtype(start: _Start) -> Change | None:
    launch = start.scenario.launch
    if launch.kv_cache_dtype != "auto":
        return None
    changed = start.scenario._replace(launch=launch._replace(kv_cache_dtype="fp8"))
    return _first([("--kv-cache-dtype fp8", changed)], "keys and values in 8 bits: check accuracy")


def _eager(start: _Start) -> Change | None:
    if start.scenario.enforce_eager:
        return None
    changed = start.scenario._replace(enforce_eager=True)
    return _first([("--enforce-eager", changed)], "slower decoding, no CUDA graphs")


def _more_cards(start: _Start) -> Change | None:
    launch = start.scenario.launch
    others = launch.pipeline_parallel_size * start.scenario.data_parallel_size
    sizes = [n for n in (2, 4, 8, 16) if n > launch.tensor_parallel_size and n * others <= start.cards]
    tries = (
        (f"--tensor-parallel-size {n}", start.scenario._replace(launch=launch._replace(tensor_parallel_size=n)))
        for n in sizes
    )
    return _first(tries, "more cards")


def _quantise(start: _Start) -> Change | None:
    if start.scenario.quantization is not None:
        return None
    changed = start.scenario._replace(quantization="fp8")
    return _first([("--quantization fp8", changed)], "weights in 8 bits: check accuracy")


_SPREADING = (_more_cards, _quantise)
_ALL = (_utilization, _sequences, _batched_tokens, _length, _cache_dtype, _eager, *_SPREADING)
_TOO_BIG = frozenset({"configuration", "weights"})
"""Checks that only another split or smaller weights pass."""
_OVER_BUDGET = frozenset({"free memory at the start", "graph capture", "a full-size batch"})
"""Checks that a smaller budget passes."""
