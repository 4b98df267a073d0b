"""What the terms of one stage follow from, and how one of them moves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.change import MODELLED, UNCHANGED, UNKNOWN
from reconstruct.interval import ANYTHING, Interval
from reconstruct.releases import RELEASES, index

if TYPE_CHECKING:
    from reconstruct.change import Change
    from reconstruct.ledger import Account
    from reconstruct.whatif_model import Model
    from reconstruct.whatif_setup import Setup

ZERO = Interval.exactly(0)
WATERSHEDS = ("0.9.1", "0.11.0", "0.17.0", "0.18.0", "0.22.0", "0.27.0", "0.29.0", "0.33.0")
"""Releases from which C or H is made of something else: baseline, NCCL's place, the sampler's selection, graph profiling
inside N, V2 runners, C_total, V2 for all, the cuBLAS warm-up. Across one of them only the model tells."""


class Delta(NamedTuple):
    """How one term moves: by how much where that is known, and what it becomes."""

    change: Interval
    after: Interval
    kind: str
    why: str


class Scene(NamedTuple):
    """What the terms of one stage follow from. `model` is a reason where the model says nothing."""

    account: Account
    stage: int
    now: Setup
    then: Setup
    change: Change
    model: Model | str

    def before(self, name: str) -> Interval:
        """Give today's figure."""
        return self.account.interval(name)

    @property
    def split_changes(self) -> bool:
        """Whether ranks hold another part of the model."""
        return (self.now.tensor, self.now.pipeline) != (self.then.tensor, self.then.pipeline)

    @property
    def release_changes(self) -> bool:
        """Whether another release runs."""
        return self.now.span != self.then.span

    @property
    def batch_changes(self) -> bool:
        """Whether the profile run takes another batch, by the setting itself or by a default that follows the length."""
        if isinstance(self.model, str):
            v0 = any(e.engine == "V0" for e in self.now.eras)  # whose batch is the whole length, unless told otherwise
            followed = v0 and self.change.max_model_len is not None and self.now.batched_tokens is None
            return bool(self.change.max_num_batched_tokens or self.change.max_num_seqs) or followed
        pairs = (self.model.batched_tokens, self.model.sequences)
        asked = self.change.max_num_batched_tokens or self.change.max_num_seqs
        return bool(asked) or any(before != after for before, after in pairs)


def unmoved(scene: Scene, name: str, why: str = "") -> Delta:
    """Give a term that stays what it is."""
    return Delta(ZERO, scene.before(name), UNCHANGED, why)


def unknown(why: str, after: Interval = ANYTHING) -> Delta:
    """Give a term of which no more is known than `after`."""
    return Delta(ANYTHING, after, UNKNOWN, why)


def modelled(scene: Scene, name: str, why: str) -> Delta:
    """Give a term as the model has it, or unknown with the model's reason."""
    if isinstance(scene.model, str):
        return unknown(f"{why}: {scene.model}")
    after = scene.model.moved(name, scene.stage, scene.before(name))
    return unknown(why) if after is None else Delta(ANYTHING, after, MODELLED, why)


def crosses(scene: Scene, first: str) -> bool:
    """Whether one of the two releases is older than `first` and the other is not."""
    place = index(first)
    return (scene.now.span.low < place) != (scene.then.span.low < place)


def watershed(scene: Scene) -> str:
    """Give the first release between the two from which C or H is made of something else, or nothing."""
    low, high = sorted((scene.now.span.low, scene.then.span.low))
    crossed = [w for w in WATERSHEDS if low < index(w) <= high]
    if {e.engine for e in scene.now.eras} != {e.engine for e in scene.then.eras}:
        crossed.append(RELEASES[high])
    return crossed[0] if crossed else ""
