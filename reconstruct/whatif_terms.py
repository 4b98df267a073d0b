"""The terms of one rank today and after a change: R, what is taken from it, and M.

M is added up twice: from today's M and what each term moves by, and from the terms as they would be. Both hold, so the
narrower end of each counts; the first is tight where a log prints M but not R, the second where ranks change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconstruct.change import EXACT, KINDS, MODELLED, UNCHANGED, UNKNOWN, TermChange, budget_change
from reconstruct.interval import ANYTHING, Interval
from reconstruct.rounding import MIB
from reconstruct.whatif_peak import headroom
from reconstruct.whatif_scene import ZERO, Delta, crosses, modelled, unknown, unmoved, watershed

if TYPE_CHECKING:
    from reconstruct.whatif_scene import Scene

STARTS_APART = Interval(-8 * MIB, 8 * MIB)
"""How far C of two starts with the same settings lies apart: drivers hand memory out in steps of 2 MiB and N is a
difference of free memory. Equal starts of the 0.19.0 sweep on H100 differ by one such step."""
KERNELS_APART = 0.25
"""By what share a charged graph estimate may move when attention kernels or the release change while its formula does
not; 64 MiB more are allowed for, as reconstruct.predict does."""


def rank_terms(scene: Scene) -> tuple[TermChange, ...]:
    """Give every term of one rank, today and then."""
    moves = {
        "total_memory": unmoved(scene, "total_memory"),
        "initial_free_memory": _free(scene),
        "requested_memory": _budget(scene),
        "model_memory": _weights(scene),
        "total_consumed": _consumed(scene),
        "transient_peak_headroom": headroom(scene),
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


def _free(scene: Scene) -> Delta:
    """F moves with what stands before the baseline: communicators from 0.11.0 on."""
    later = crosses(scene, "0.11.0") or crosses(scene, "0.33.0")
    if scene.split_changes or (later and scene.now.world > 1) or crosses(scene, "0.33.0"):
        return modelled(scene, "initial_free_memory", "what is taken before the baseline snapshot changes")
    return unmoved(scene, "initial_free_memory")


def _budget(scene: Scene) -> Delta:
    """R = T x u: exact, whatever else changes."""
    same = scene.now.utilization == scene.then.utilization and scene.change.gpu_memory_utilization is None
    if same and scene.now.budget_rounding == scene.then.budget_rounding:
        return unmoved(scene, "requested_memory")
    change = budget_change(scene.before("total_memory"), scene.now.utilization, scene.then.utilization)
    if same:
        change = Interval(-1, 1)
    elif change == ANYTHING:
        return unknown("T is not known: --gpu or --total-memory gives it")
    why = f"T x {scene.then.utilization.low:g}" if scene.then.utilization.is_point else "T x u"
    return Delta(change, ANYTHING, EXACT, why)


def _weights(scene: Scene) -> Delta:
    if scene.split_changes or scene.release_changes:
        return modelled(
            scene, "model_memory", "another part of the model" if scene.split_changes else "another release"
        )
    return unmoved(scene, "model_memory")


def _consumed(scene: Scene) -> Delta:
    """C: weights, what torch keeps, and what lies outside torch."""
    before, apart = scene.before("total_consumed"), STARTS_APART
    steady = Delta(apart, ANYTHING, UNCHANGED, "but for steps of 2 MiB from start to start")
    if scene.split_changes:
        return modelled(scene, "total_consumed", "another part of the model, and other communicators")
    if scene.release_changes and watershed(scene):
        return modelled(scene, "total_consumed", f"{watershed(scene)} changed what C is made of")
    if scene.change.quantization:
        return modelled(scene, "total_consumed", "weights are quantised")
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
        return modelled(scene, "total_consumed", "what profiling of graphs keeps comes on top")
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


def _graphs(scene: Scene) -> Delta:
    """G: nothing where it is not charged, else the estimate."""
    name, then = "cudagraph_memory_applied", scene.then
    if then.charged is False:
        same = scene.before(name) == ZERO
        return Delta(ANYTHING, ZERO, UNCHANGED if same else EXACT, "" if same else "graphs are not charged")
    estimate = scene.before("cudagraph_memory_estimate")
    other = scene.now.eager or scene.split_changes or scene.batch_changes or scene.change.quantization
    if other or watershed(scene) in {"0.22.0", "0.29.0"}:
        found = modelled(scene, "cudagraph_memory_estimate", "graphs are captured for other sizes or ranks")
    elif estimate.width is None:
        found = modelled(scene, "cudagraph_memory_estimate", "the estimate is not in the log")
    elif scene.release_changes or scene.change.kv_cache_dtype:
        edge = int(abs(estimate.high or 0) * KERNELS_APART) + 64 * MIB
        after = estimate.plus(Interval(-edge, edge))
        found = Delta(ANYTHING, after, MODELLED, "today's estimate, with room for other kernels")
    else:
        now = scene.now.charged
        if now is then.charged:
            return unmoved(scene, name)
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
