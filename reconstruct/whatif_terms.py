"""The terms of one rank today and after a change: R, what is taken from it, and M.

M is added up twice: from today's M and what each term moves by, and from the terms as they would be. Both hold, so the
narrower end of each counts; the first is tight where a log prints M but not R, the second where ranks change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.change import EXACT, KINDS, MODELLED, UNCHANGED, UNKNOWN, TermChange, budget_change
from reconstruct.interval import ANYTHING, Interval
from reconstruct.releases import RELEASES, index
from reconstruct.rounding import MIB

if TYPE_CHECKING:
    from reconstruct.change import Change
    from reconstruct.ledger import Account
    from reconstruct.whatif_model import Model
    from reconstruct.whatif_setup import Setup

ZERO = Interval.exactly(0)
STARTS_APART = Interval(-8 * MIB, 8 * MIB)
"""How far C of two starts with the same settings lies apart: drivers hand memory out in steps of 2 MiB and N is a
difference of free memory. Equal starts of the 0.19.0 sweep on H100 differ by one such step."""
KERNELS_APART = 0.25
"""By what share a charged graph estimate may move when attention kernels or the release change while its formula does
not; 64 MiB more are allowed for, as reconstruct.predict does."""
APART = 0.05
"""By what share two bands of the model end apart at least where one launch surely may peak above another."""
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


def rank_terms(scene: Scene) -> tuple[TermChange, ...]:
    """Give every term of one rank, today and then."""
    moves = {
        "total_memory": _unmoved(scene, "total_memory"),
        "initial_free_memory": _free(scene),
        "requested_memory": _budget(scene),
        "model_memory": _weights(scene),
        "total_consumed": _consumed(scene),
        "transient_peak_headroom": _headroom(scene),
        "cudagraph_memory_applied": _graphs(scene),
    }
    found = [_row(scene, name, move) for name, move in moves.items()]
    found.append(_available(scene, {row.name: row for row in found}))
    return tuple(found)


def _row(scene: Scene, name: str, move: Delta) -> TermChange:
    """Give one row; what is known of a term and of its change narrow each other."""
    before = scene.before(name)
    after = move.after.meet(before.plus(move.change)) or move.after
    change = move.change.meet(after.minus(before)) or move.change
    return TermChange(name, before, after, change, move.kind, move.why)


def _unmoved(scene: Scene, name: str, why: str = "") -> Delta:
    return Delta(ZERO, scene.before(name), UNCHANGED, why)


def _unknown(why: str, after: Interval = ANYTHING) -> Delta:
    return Delta(ANYTHING, after, UNKNOWN, why)


def _modelled(scene: Scene, name: str, why: str) -> Delta:
    """Give a term as the model has it, or unknown with the model's reason."""
    if isinstance(scene.model, str):
        return _unknown(f"{why}: {scene.model}")
    after = scene.model.moved(name, scene.stage, scene.before(name))
    return _unknown(why) if after is None else Delta(ANYTHING, after, MODELLED, why)


def _free(scene: Scene) -> Delta:
    """F moves with what stands before the baseline: communicators from 0.11.0 on."""
    crosses = _crosses(scene, "0.11.0") or _crosses(scene, "0.33.0")
    if scene.split_changes or (crosses and scene.now.world > 1) or _crosses(scene, "0.33.0"):
        return _modelled(scene, "initial_free_memory", "what is taken before the baseline snapshot changes")
    return _unmoved(scene, "initial_free_memory")


def _crosses(scene: Scene, first: str) -> bool:
    place = index(first)
    return (scene.now.span.low < place) != (scene.then.span.low < place)


def _budget(scene: Scene) -> Delta:
    """R = T x u: exact, whatever else changes."""
    same = scene.now.utilization == scene.then.utilization and scene.change.gpu_memory_utilization is None
    if same and scene.now.budget_rounding == scene.then.budget_rounding:
        return _unmoved(scene, "requested_memory")
    change = budget_change(scene.before("total_memory"), scene.now.utilization, scene.then.utilization)
    if same:
        change = Interval(-1, 1)
    elif change == ANYTHING:
        return _unknown("T is not known: --gpu or --total-memory gives it")
    why = f"T x {scene.then.utilization.low:g}" if scene.then.utilization.is_point else "T x u"
    return Delta(change, ANYTHING, EXACT, why)


def _weights(scene: Scene) -> Delta:
    if scene.split_changes or scene.release_changes:
        return _modelled(
            scene, "model_memory", "another part of the model" if scene.split_changes else "another release"
        )
    return _unmoved(scene, "model_memory")


def _consumed(scene: Scene) -> Delta:
    """C: weights, what torch keeps, and what lies outside torch."""
    before, apart = scene.before("total_consumed"), STARTS_APART
    steady = Delta(apart, ANYTHING, UNCHANGED, "but for steps of 2 MiB from start to start")
    if scene.split_changes:
        return _modelled(scene, "total_consumed", "another part of the model, and other communicators")
    if scene.release_changes and _watershed(scene):
        return _modelled(scene, "total_consumed", f"{_watershed(scene)} changed what C is made of")
    if scene.change.quantization:
        return _modelled(scene, "total_consumed", "weights are quantised")
    if scene.now.eager != scene.then.eager:
        return _consumed_by_mode(scene, before)
    grown = _buffers(scene)
    if grown != ZERO:
        return Delta(
            apart.plus(grown), ANYTHING, MODELLED, "block tables and batch buffers follow the batch and the length"
        )
    if scene.release_changes:
        share = Interval(-64 * MIB, 128 * MIB)
        return Delta(share, ANYTHING, MODELLED, "no rule that makes up C changed between these releases")
    return steady


def _consumed_by_mode(scene: Scene, before: Interval) -> Delta:
    """Eager mode leaves out what graph profiling and the fused all-reduce keep; at most all but the weights goes."""
    weights = scene.before("model_memory")
    if not scene.then.eager:
        return _modelled(scene, "total_consumed", "what profiling of graphs keeps comes on top")
    least = weights.minus(before).low
    return Delta(
        Interval(None if least is None else min(0, int(least)), 0).plus(STARTS_APART), ANYTHING, MODELLED,
        "without graphs, profiling and fused all-reduce keep less",
    )  # fmt: skip


def _buffers(scene: Scene) -> Interval:
    """Give what the runner's own buffers move by: they are part of C where all that is consumed is charged (0.27.0 on).

    Block tables hold four bytes for each block of each request, twice over (on the device and staged), and a batch's
    token buffers at most 64 bytes a token. Source: 0.27.1 v1/worker/block_table.py, gpu_input_batch.py.
    """
    if all(e.charge not in {"consumed", "device"} for e in scene.then.eras):
        return ZERO
    now, then = scene.now, scene.then
    rows = (now.sequences or 1024, then.sequences or 1024)
    size = now.block_size.low or 16
    lengths = [None if s.max_model_len.high is None else -(-s.max_model_len.high // size) for s in (now, then)]
    tables = ZERO
    if rows[0] != rows[1] or now.max_model_len != then.max_model_len or now.block_size != then.block_size:
        before, after = (None if n is None else int(rows[i] * n * 8) for i, n in enumerate(lengths))
        most = None if before is None or after is None else 4 * abs(after - before) + 8 * MIB
        grows = (after or 0) > (before or 0)
        tables = Interval(0 if grows else None if most is None else -most, most if grows else 0)
    batches = (now.batched_tokens or 8192, then.batched_tokens or 8192)
    if batches[0] != batches[1]:
        step = 64 * (batches[1] - batches[0])
        tables = tables.plus(Interval(min(0, step), max(0, step)))
    return tables


def _watershed(scene: Scene) -> str:
    """Give the first release between the two from which C or H is made of something else, or nothing."""
    low, high = sorted((scene.now.span.low, scene.then.span.low))
    crossed = [w for w in WATERSHEDS if low < index(w) <= high]
    if {e.engine for e in scene.now.eras} != {e.engine for e in scene.then.eras}:
        crossed.append(RELEASES[high])
    return crossed[0] if crossed else ""


def _headroom(scene: Scene) -> Delta:
    """H: the profiled peak, which follows the batch, the sampler and the split."""
    name = "transient_peak_headroom"
    if scene.release_changes and _watershed(scene):
        return _modelled(scene, name, f"{_watershed(scene)} changed what is profiled")
    if scene.now.pipeline != scene.then.pipeline or scene.split_changes:
        return _modelled(scene, name, "another part of the model")
    if scene.change.quantization:
        return _modelled(scene, name, "other kernels, with buffers of their own")
    if scene.batch_changes:
        return _peak_of_batch(scene)
    if scene.release_changes:
        before = scene.before(name)
        wide = None if before.high is None else int(before.high * 0.1) + 64 * MIB
        kernels = Interval(None if wide is None else -wide, wide)
        return Delta(kernels, ANYTHING, MODELLED, "no rule that makes up H changed between these releases")
    if isinstance(scene.model, str):
        return _unmoved(scene, name)
    band, before = scene.model.then[scene.stage].get(name, ANYTHING), scene.before(name)
    lower = f"a start {'without' if scene.then.eager else 'that loads its compiled'} graphs may peak lower"
    if band.high is not None and before.low is not None and band.high < before.low:
        return Delta(ANYTHING, Interval(band.low, before.high), MODELLED, lower)
    today = scene.model.now[scene.stage].get(name, ANYTHING)
    if before.low is None and _falls(today, band):
        return Delta(Interval(band.minus(today).low, 0), ANYTHING, MODELLED, lower)
    if scene.model.anew and band.high is not None and before.high is not None and band.high > before.high:
        return Delta(ANYTHING, Interval(before.low, band.high), MODELLED, "a start that compiles anew may peak higher")
    return _unmoved(scene, name)


def _falls(today: Interval, then: Interval) -> bool:
    """Whether one of the model's bands ends well below another."""
    return today.high is not None and then.high is not None and today.high > (1 + APART) * then.high


def _peak_of_batch(scene: Scene) -> Delta:
    """H for another batch: as the model has it, and never outside what a peak can do.

    The peak is the largest of terms a + b x tokens and a + b x sequences with a, b >= 0: it grows with each of them, and
    no faster than in proportion.
    """
    name, change, now = "transient_peak_headroom", scene.change, scene.now
    bound = _proportional(scene.before(name), (
        (now.batched_tokens, change.max_num_batched_tokens), (now.sequences, change.max_num_seqs),
    ))  # fmt: skip
    modelled = _modelled(scene, name, "the profile run takes another batch")
    if not isinstance(scene.model, str) and scene.model.anew:
        bound = Interval(bound.low, None)  # what compiling takes does not follow today's peak
    if modelled.kind == MODELLED:
        return modelled._replace(after=modelled.after.meet(bound) or modelled.after)
    if bound == ANYTHING:
        return modelled
    return Delta(ANYTHING, bound, MODELLED, "a peak grows with its batch, and no faster than in proportion")


def _proportional(before: Interval, pairs: tuple[tuple[int | None, int | None], ...]) -> Interval:
    """Give what a peak may become when some sizes change; unbounded where one of them is not known today."""
    low, high = before.low, before.high
    for was, becomes in pairs:
        if becomes is None or becomes == was:
            continue
        if was is None:
            return ANYTHING
        if becomes > was:
            high = None if high is None else -(-int(high) * becomes // was)
        else:
            low = None if low is None else int(low) * becomes // was
    return Interval(low, high)


def _graphs(scene: Scene) -> Delta:
    """G: nothing where it is not charged, else the estimate."""
    name, then = "cudagraph_memory_applied", scene.then
    if then.charged is False:
        same = scene.before(name) == ZERO
        return Delta(ANYTHING, ZERO, UNCHANGED if same else EXACT, "" if same else "graphs are not charged")
    estimate = scene.before("cudagraph_memory_estimate")
    other = scene.now.eager or scene.split_changes or scene.batch_changes or scene.change.quantization
    if other or _watershed(scene) in {"0.22.0", "0.29.0"}:
        found = _modelled(scene, "cudagraph_memory_estimate", "graphs are captured for other sizes or ranks")
    elif estimate.width is None:
        found = _modelled(scene, "cudagraph_memory_estimate", "the estimate is not in the log")
    elif scene.release_changes or scene.change.kv_cache_dtype:
        edge = int(abs(estimate.high or 0) * KERNELS_APART) + 64 * MIB
        after = estimate.plus(Interval(-edge, edge))
        found = Delta(ANYTHING, after, MODELLED, "today's estimate, with room for other kernels")
    else:
        now = scene.now.charged
        if now is then.charged:
            return _unmoved(scene, name)
        found = Delta(ANYTHING, estimate, EXACT, "the estimate that the log prints is charged")
    if then.charged is None:
        return found._replace(after=found.after.hull(ZERO), kind=UNKNOWN, why="whether graphs are charged is not told")
    return found


def _available(scene: Scene, rows: dict[str, TermChange]) -> TermChange:
    """M, both ways."""
    name = "available_kv_cache_memory"
    budget = rows["requested_memory"]
    taken = [rows[n] for n in ("total_consumed", "transient_peak_headroom", "cudagraph_memory_applied")]
    change, after = budget.change, budget.after
    for row in taken:
        change, after = change.minus(row.change), after.minus(row.after)
    rounding = Interval(-1, 1)  # floats of 0.9.1-0.13 are cut off after the subtraction
    change, after = change.plus(rounding), after.plus(rounding)
    before = scene.before(name)
    both = before.plus(change).meet(after) or after
    kind = max((row.kind for row in (budget, *taken)), key=KINDS.index)
    return TermChange(name, before, both, change.meet(both.minus(before)) or change, kind, "R - C - H - G")
