"""Which change reaches a target: the cheapest alone, the cheapest pair, and those that may.

This module is the one place that says what a change costs.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.change import Change, effect, tightest
from reconstruct.interval import ANYTHING, Interval
from reconstruct.whatif_setup import today

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from reconstruct.change import Effect
    from reconstruct.ledger import StartUpLedger
    from reconstruct.whatif_setup import Setup

TARGETS = {"tokens": "kv_cache_tokens", "max-model-len": "max_model_len", "concurrency": "max_concurrency"}
"""What can be aimed at, and the quantity that tells."""
SURE, MAYBE, MISSES = "surely", "may", "misses"
STEPS = 10_000
"""Utilisations are proposed to four decimals, as vLLM proposes them."""
HIGHEST = 0.98
"""The highest utilisation proposed: other processes and the context need a rest, and nothing tells how much."""
FEWEST_TOKENS, FEWEST_SEQUENCES, SHORTEST = 512, 1, 1024
MOST_RANKS = 8
"""Ranks on one node, as a rule; more are not proposed."""


class Target(NamedTuple):
    """What is to be reached: one of TARGETS, and its value."""

    name: str
    value: float


class Lever(NamedTuple):
    """One setting to move. price: its place in the order of costs; cost: what it costs, in words."""

    name: str
    price: int
    cost: str


LEVERS = (
    Lever("gpu_memory_utilization", 1, "less is left beside the budget for graphs and other processes"),
    Lever("max_num_batched_tokens", 2, "slower prefill"),
    Lever("max_num_seqs", 3, "fewer requests at a time"),
    Lever("max_model_len", 4, "longer requests are refused"),
    Lever("kv_cache_dtype", 6, "needs a supporting backend; accuracy may drop without scales"),
    Lever("estimate_cudagraphs", 9, "graphs take memory that nobody set aside: capture or a full batch may fail"),
    Lever("enforce_eager", 12, "no CUDA graphs: slower decoding"),
    Lever("tensor_parallel_size", 20, "more cards, and traffic between them"),
    Lever("pipeline_parallel_size", 24, "more cards, and idle stages"),
)
"""The order of costs, cheapest first: headroom, then speed of prefill, then what is served, then accuracy, then safety,
then speed of decoding, then cards. A pair costs the sum of its prices; of equal sums the one with the cheaper dearest."""


class Way(NamedTuple):
    """One change that reaches the target, surely or perhaps."""

    change: Change
    price: int
    costs: tuple[str, ...]
    effect: Effect
    verdict: str


class Search(NamedTuple):
    """Ways to a target, cheapest first. already: how today's start-up stands to it."""

    target: Target
    already: str
    singles: tuple[Way, ...]
    pairs: tuple[Way, ...]

    @property
    def single(self) -> Way | None:
        """The cheapest single change that surely reaches the target."""
        return next((w for w in self.singles if w.verdict == SURE), None)

    @property
    def pair(self) -> Way | None:
        """The cheapest pair that surely reaches it, of changes that do not alone."""
        return next((w for w in self.pairs if w.verdict == SURE), None)


class UnknownTarget(ValueError):
    """A target that is none; the message lists those there are."""


def parsed(text: str) -> Target:
    """Read `tokens=200000`. Raises UnknownTarget."""
    name, equals, value = text.partition("=")
    name = name.strip().replace("_", "-")
    try:
        number = float(value.replace("_", "").replace(",", ""))
    except ValueError:
        number = 0.0
    if not equals or name not in TARGETS or not 0 < number < 1e15:
        raise UnknownTarget(f"--target {text}: write NAME=VALUE with one of {', '.join(TARGETS)}")
    return Target(name, number if name == "concurrency" else int(number))


class _Searcher:
    """Asks each change once."""

    def __init__(
        self,
        startup: StartUpLedger,
        target: Target,
        base: Change,
        config: Mapping[str, object] | None,
        card: str | None,
    ) -> None:
        self._ask: Callable[[Change], Effect] = lambda change: effect(startup, change, config, card)
        self._known: dict[Change, Effect] = {}
        self.target, self.base = target, base
        if target.name == "max-model-len":
            self.base = base._replace(max_model_len=int(target.value))
        self.setup = today(startup, tightest(startup.engines))
        self.start = self.effect(self.base)

    def effect(self, change: Change) -> Effect:
        """Give a change's effect."""
        if change not in self._known:
            self._known[change] = self._ask(change)
        return self._known[change]

    def verdict(self, change: Change) -> str:
        """Say whether a change reaches the target: `surely`, `may` or `misses`."""
        found = self.effect(change)
        if found.outcome == "does not start":
            return MISSES
        sure = found.outcome == "starts"
        if self.target.name == "max-model-len":
            return SURE if sure else MAYBE
        reached = found.after(TARGETS[self.target.name])
        if reached.low is not None and reached.low >= self.target.value:
            return SURE if sure else MAYBE
        return MISSES if reached.high is not None and reached.high < self.target.value else MAYBE

    def with_lever(self, change: Change, lever: Lever) -> Change | None:
        """Give the smallest step of a lever that surely reaches the target, else the largest that may, else None."""
        steps = self.steps(lever.name)
        if not steps:
            return None
        changed = [change._replace(**{lever.name: step}) for step in steps]  # type: ignore[arg-type]  # steps fit their lever
        if lever.name == "gpu_memory_utilization":
            return self._first_of_many(changed)
        verdicts = [self.verdict(c) for c in changed]
        if SURE in verdicts:
            return changed[verdicts.index(SURE)]
        return changed[len(verdicts) - 1 - verdicts[::-1].index(MAYBE)] if MAYBE in verdicts else None

    def _first_of_many(self, changed: list[Change]) -> Change | None:
        """Bisect: more budget is more pool; the last steps may ask for more than is free."""
        last = self.verdict(changed[-1])
        if last != SURE:
            return changed[-1] if last == MAYBE else None
        low, high = 0, len(changed) - 1
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.verdict(changed[middle]) == SURE else (middle + 1, high)
        return changed[low]

    def steps(self, name: str) -> list[object]:
        """Give the values to try for a setting, the smallest step first; none where it cannot or may not move."""
        setup, base = self.setup, self.base
        if getattr(base, name) is not None:
            return []  # the user's own choice stands
        if name == "gpu_memory_utilization":
            return _utilizations(setup, self.start)
        if name in {"max_num_batched_tokens", "max_num_seqs"}:
            tokens = name == "max_num_batched_tokens"
            return _halves(
                setup.batched_tokens if tokens else setup.sequences, FEWEST_TOKENS if tokens else FEWEST_SEQUENCES
            )
        if name == "max_model_len":
            length = setup.max_model_len.low
            return (
                _halves(None if length is None else int(length), SHORTEST) if self.target.name == "concurrency" else []
            )
        if name == "kv_cache_dtype":
            return [] if "8" in setup.kv_cache_dtype or "4" in setup.kv_cache_dtype.removeprefix("auto") else ["fp8"]
        if name == "estimate_cudagraphs":
            return [False] if setup.charged is not False else []
        if name == "enforce_eager":
            return [] if setup.eager else [True]
        size = setup.tensor if name == "tensor_parallel_size" else setup.pipeline
        return [size * n for n in (2, 4, 8) if size * n * (setup.world // size) <= max(MOST_RANKS, setup.world * 2)]


def _halves(value: int | None, least: int) -> list[object]:
    found: list[object] = []
    while value is not None and value // 2 >= least:
        value //= 2
        found.append(value)
    return found


def _utilizations(setup: Setup, start: Effect) -> list[object]:
    """Give every step above today's that the free memory surely covers, or may, where F or T is not known."""
    now = setup.utilization.low
    if not setup.utilization.is_point or now is None or setup.explicit:
        return []
    free, total = start.after("initial_free_memory"), start.after("total_memory")
    top = int(HIGHEST * STEPS)
    if free.low is not None and total.high:
        top = min(top, int(free.low) * STEPS // int(total.high))
    first = int(now * STEPS) + 1
    return [step / STEPS for step in range(first, top + 1)]


def search(
    startup: StartUpLedger, target: Target, config: Mapping[str, object] | None = None, card: str | None = None,
    base: Change | None = None,
) -> Search:  # fmt: skip
    """Search single changes and pairs on top of `base`. Raises what `effect` raises."""
    searcher = _Searcher(startup, target, base or Change(), config, card)
    already = searcher.verdict(searcher.base)
    if already == SURE:
        return Search(target, already, (), ())
    singles = _ways(searcher, [(lever,) for lever in LEVERS], already)
    enough = {name for way in singles if way.verdict == SURE for name in _moved(searcher, way)}
    rest = [lever for lever in LEVERS if lever.name not in enough]
    pairs = sorted(combinations(rest, 2), key=lambda p: (p[0].price + p[1].price, max(p[0].price, p[1].price)))
    return Search(target, already, tuple(singles), tuple(_ways(searcher, pairs, already)))


def _moved(searcher: _Searcher, way: Way) -> list[str]:
    return [name for name in way.change.named if getattr(searcher.base, name) is None]


def _ways(searcher: _Searcher, groups: Sequence[tuple[Lever, ...]], already: str) -> list[Way]:
    """Try groups in the order of their prices; of pairs, stop at the first that surely reaches the target."""
    found = []
    for group in groups:
        change = _moved_by(searcher, group)
        if change is None:
            continue
        verdict = searcher.verdict(change)
        if verdict == MISSES or (verdict == MAYBE and already == MAYBE and not _helps(searcher, change)):
            continue
        price = sum(lever.price for lever in group)
        found.append(Way(change, price, tuple(lever.cost for lever in group), searcher.effect(change), verdict))
        if verdict == SURE and len(group) > 1:
            break
    return found


def _moved_by(searcher: _Searcher, group: tuple[Lever, ...]) -> Change | None:
    """Move all but the first lever of a group as far as they go, then the first as little as will do.

    The first is the cheapest: it is spared where the dearer one does most of the work in its first step.
    """
    if len(group) == 1:
        return searcher.with_lever(searcher.base, group[0])
    cheap, dear = group
    maybe: Change | None = None
    for step in searcher.steps(dear.name):
        base = searcher.base._replace(**{dear.name: step})  # type: ignore[arg-type]  # steps fit their lever
        change = searcher.with_lever(base, cheap)
        if change is not None and searcher.verdict(change) == SURE:
            return change
        maybe = change or maybe
    return maybe


def _helps(searcher: _Searcher, change: Change) -> bool:
    """Whether a change moves the target's low end up at all."""
    name = TARGETS[searcher.target.name] if searcher.target.name != "max-model-len" else "num_blocks"
    before, after = searcher.start.after(name), searcher.effect(change).after(name)
    return (
        after != ANYTHING
        and Interval(after.low, None) != Interval(before.low, None)
        and (after.low or 0) > (before.low or 0)
    )
