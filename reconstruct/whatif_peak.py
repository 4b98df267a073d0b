"""H after a change: the profiled peak follows the batch, the sampler, the split and whether the start compiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.change import MODELLED
from reconstruct.interval import ANYTHING, AT_LEAST_ZERO, Interval
from reconstruct.predict.peak import ROWS_FOR_TRITON
from reconstruct.rounding import MIB
from reconstruct.whatif_scene import Delta, modelled, unmoved, watershed

if TYPE_CHECKING:
    from reconstruct.whatif_scene import Scene

NAME = "transient_peak_headroom"
APART = 0.05
"""By what share two bands of the model end apart at least where one launch surely may peak above another."""
FUSED_OTHERWISE = 1.5
"""By what factor more a token may cost in a smaller batch: Inductor fuses otherwise beyond 2 x hidden_size tokens, which
is worth one hidden state of at least three (reconstruct.predict.forward)."""


def headroom(scene: Scene) -> Delta:
    """H: the profiled peak."""
    crossed = watershed(scene) if scene.release_changes else ""
    if crossed:
        return modelled(scene, NAME, f"{crossed} changed what is profiled")
    if scene.split_changes:
        return modelled(scene, NAME, "another part of the model")
    if scene.change.quantization:
        return modelled(scene, NAME, "other kernels, with buffers of their own")
    if scene.batch_changes:
        return _of_batch(scene)
    if not scene.release_changes:
        return _of_kernels(scene, unmoved(scene, NAME))
    before = scene.before(NAME)
    wide = None if before.high is None else int(before.high * 0.1) + 64 * MIB
    kernels = Interval(None if wide is None else -wide, wide)
    why = "no rule that makes up H changed between these releases"
    return _of_kernels(scene, Delta(kernels, ANYTHING, MODELLED, why))


def _may_fall(scene: Scene) -> bool:
    """Whether today's peak may be of kernels, or of compiling them, that the next start does without."""
    return scene.now.may_compile or scene.now.eager != scene.then.eager


def _may_rise(scene: Scene) -> bool:
    """Whether the next start may compile what today's loaded or had no use for."""
    return (scene.then.may_compile and scene.now.compiles is not True) or scene.now.eager != scene.then.eager


def _of_kernels(scene: Scene, same: Delta) -> Delta:
    """H of the same batch: `same`, and what compiled kernels or compiling them add or leave out where the model sees it."""
    before, model = scene.before(NAME), scene.model
    falls, rises = _may_fall(scene), _may_rise(scene)
    today, then = before, AT_LEAST_ZERO
    if not isinstance(model, str):
        today, then = model.now[scene.stage].get(NAME, ANYTHING), model.then[scene.stage].get(NAME, ANYTHING)
        told = before if before.width is not None and scene.now.compiles is None else today
        falls, rises = falls and _falls(told, then), rises and _falls(then, told)
    (low, high), moved = same.change, then.minus(before if before.width is not None else today)
    if falls:
        low = None if low is None or moved.low is None else min(low, moved.low)
    if rises:
        high = None if high is None or moved.high is None else max(high, moved.high)
    if not falls and not rises:
        return same
    names = [name for name, so in (("lower", falls), ("higher", rises)) if so]
    return Delta(Interval(low, high), AT_LEAST_ZERO, MODELLED, f"{_start(scene)} may peak {' or '.join(names)}")


def _start(scene: Scene) -> str:
    """Name what tells the next start from today's."""
    if scene.then.eager:
        return "a start without graphs"
    return "a start that compiles anew" if scene.then.may_compile else "a start that loads its compiled graphs"


def _falls(today: Interval, then: Interval) -> bool:
    """Whether one of the model's bands ends well below another, at either end."""
    pairs = ((today.low, then.low), (today.high, then.high))
    return any(a is not None and b is not None and a > (1 + APART) * b for a, b in pairs)


class _Sizes(NamedTuple):
    """What the profile run's batch was and becomes; None where it is not told."""

    tokens: tuple[int | None, int | None]
    rows: tuple[int | None, int | None]


def _sizes(scene: Scene) -> _Sizes:
    if not isinstance(scene.model, str):
        return _Sizes(scene.model.batched_tokens, scene.model.sequences)
    now, then = scene.now, scene.then
    return _Sizes((now.batched_tokens, then.batched_tokens), (now.sequences, then.sequences))


def _of_batch(scene: Scene) -> Delta:
    """H for another batch: as the model has it, and never outside what a peak can do.

    The peak is the largest of terms a + b x tokens and a + b x sequences with a, b >= 0: it grows with each of them, and
    no faster than in proportion, but where other kernels come in.
    """
    sizes, before = _sizes(scene), scene.before(NAME)
    found = modelled(scene, NAME, "the profile run takes another batch")
    if not _comparable(scene, sizes):
        return found
    bound, change = _proportional(before, sizes), ANYTHING
    if sizes.tokens[0] == sizes.tokens[1]:
        grows = (sizes.rows[1] or 0) >= (sizes.rows[0] or 0)
        change = Interval(0, None) if grows else Interval(None, 0)
    if _may_fall(scene):
        bound, change = Interval(0, bound.high), Interval(None, change.high)
    if _may_rise(scene):
        bound, change = Interval(bound.low, None), Interval(change.low, None)
    if found.kind == MODELLED:
        return found._replace(change=change, after=found.after.meet(bound) or found.after)
    if bound == change == ANYTHING:
        return found
    return Delta(change, bound, MODELLED, "a peak grows with its batch, and no faster than in proportion")


def _comparable(scene: Scene, sizes: _Sizes) -> bool:
    """Whether both batches are told, and the same kernels sample from them: few rows are sorted (0.17.0 on)."""
    by_length = scene.change.max_model_len is not None and None in sizes.tokens  # V0's default
    asked = (scene.change.max_num_batched_tokens, sizes.tokens), (scene.change.max_num_seqs, sizes.rows)
    if by_length or any(value is not None and None in pair for value, pair in asked):
        return False
    few = {rows is not None and rows < ROWS_FOR_TRITON for rows in sizes.rows}
    return len(few) == 1


def _proportional(before: Interval, sizes: _Sizes) -> Interval:
    """Give what a peak may become when some sizes change."""
    low, high = before
    for (was, becomes), step in ((sizes.tokens, FUSED_OTHERWISE), (sizes.rows, 1)):
        if was is None or becomes is None or becomes == was:
            continue
        share = becomes / was
        low = None if low is None else int(low * min(1 / step, share))
        high = None if high is None else int(high * max(step, share)) + 1
    return Interval(low, high)
