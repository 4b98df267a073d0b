"""A start-up's whole log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.render import chatter, finish, opening, sizing
from tests.render.log import Log
from tests.render.parts import Failure

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.render.truth import Truth

BEFORE_LOADING = (Failure.FREE_BELOW_DESIRED, Failure.EXTERNAL_ABOVE_DESIRED)
WHILE_LOADING = (Failure.OOM_LOADING, Failure.UNRELATED)
WHILE_PLANNING = (Failure.NO_KV_MEMORY, Failure.REQUEST_TOO_LONG)


def render(truth: Truth, talkative: bool = False) -> str:
    """Print one start-up; `talkative` adds the DEBUG lines that carry no figure."""
    log = Log(truth)
    opening.settings(log)
    if talkative:
        chatter.platforms(log)
    if truth.v0:
        _v0(log)
    else:
        _v1(log, talkative)
    lines = log.lines
    if truth.failure is Failure.CUT:
        del lines[max(int(len(lines) * truth.cut_at), 3) :]
    return "".join(f"{line}\n" for line in lines)


def render_all(truths: Iterable[Truth], talkative: bool = False) -> str:
    """Print several start-ups one after the other, as a restarting container does."""
    return "".join(render(truth, talkative) for truth in truths)


def _everyone(truth: Truth) -> range:
    return range(len(truth.ranks))


def _v0(log: Log) -> None:
    truth = log.truth
    opening.engine(log, 0)
    for index in _everyone(truth):
        opening.loading(log, index)
    if truth.failure in WHILE_LOADING:
        return finish.fail(log)
    if truth.failure is Failure.OOM_PROFILING:
        return finish.fail(log)
    for index in _everyone(truth):
        sizing.v0_profile(log, index)
    sizing.v0_blocks(log)
    if truth.failure in (*WHILE_PLANNING, Failure.OOM_KV_CACHE):
        return finish.fail(log)
    finish.v0_notices(log)
    if truth.failure in (Failure.OOM_CAPTURE, Failure.OOM_SAMPLER):
        return finish.fail(log)
    for index in _everyone(truth):
        finish.capture(log, index)
    return finish.ready(log)


def _v1(log: Log, talkative: bool) -> None:
    truth = log.truth
    for dp in range(truth.dp):
        opening.engine(log, dp)
    for dp in range(truth.dp):
        opening.groups(log, dp)
    for index in _everyone(truth):
        opening.baseline(log, index)
    if truth.failure in BEFORE_LOADING:
        return finish.fail(log)
    for index in _everyone(truth):
        opening.loading(log, index)
    if truth.failure in WHILE_LOADING:
        return finish.fail(log)
    for index in _everyone(truth):
        opening.hybrid_block(log, index)
        if talkative:
            chatter.compiling(log, index)
    if truth.failure is Failure.OOM_PROFILING:
        return finish.fail(log)
    for index in _everyone(truth):
        sizing.profile(log, index)
    return _planned(log, talkative)


def _planned(log: Log, talkative: bool) -> None:
    truth = log.truth
    for dp in range(truth.dp):
        if truth.since("0.20.1"):
            sizing.overrides(log, dp)
        if truth.failure is not Failure.REQUEST_TOO_LONG:
            sizing.auto_fit(log, dp)
    if truth.failure in WHILE_PLANNING:
        return finish.fail(log)
    for dp in range(truth.dp):
        sizing.capacity(log, dp)
    if truth.failure is Failure.OOM_KV_CACHE:
        return finish.fail(log)
    if talkative:
        chatter.capturing(log)
    if truth.failure is Failure.OOM_CAPTURE:
        return finish.fail(log)
    for index in _everyone(truth):
        finish.capture(log, index)
    if truth.failure is Failure.OOM_SAMPLER:
        return finish.fail(log)
    return finish.ready(log)
