"""A model's geometry beside a log: where it comes from, and what the planner makes of it under all that the log leaves open.

A layout is evidence only where every release and card that the log leaves open has a plan; where the plans differ, it
spans them all.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.interval import Interval
from reconstruct.relations import Term
from reconstruct.releases import NEWER_THAN_KNOWN, RELEASES
from reconstruct.solver import Evidence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from parsers.launch_settings import Settings
    from parsers.startups import StartUpLog
    from reconstruct.eras import Era
    from reconstruct.planner.config import ConfigSpecs
    from reconstruct.planner.launch import Launch
    from reconstruct.planner.result import GroupPlan, KvPlan
    from reconstruct.releases import EngineVersion, Span
    from reconstruct.stated_launch import StatedLaunch

MODEL_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(?:/[A-Za-z0-9][\w.-]{0,95})?")
"""What a Hugging Face id may look like; anything else is a local path."""

AMPLE = 1 << 56
"""Memory for plans whose blocks are not asked for: no check of it fails."""

ORIGINS = {"given": "config", "cache": "config", "hub": "config", "catalogue": "catalogue"}
"""The origin of figures by the source of the config (reconstruct.planner.config_sources)."""


class Geometry(NamedTuple):
    """A model's config and where it was found."""

    model: str
    config: Mapping[str, object]
    source: str
    """`given`, `cache`, `catalogue` or `hub`."""
    place: str
    fetch: bool = False
    """Whether a draft's config may be downloaded too."""

    @property
    def origin(self) -> str:
        """The origin of what follows from it: `config` or `catalogue`."""
        return ORIGINS[self.source]


class NoGeometry(NamedTuple):
    """Why there is none."""

    reason: str


class Layout(NamedTuple):
    """What a geometry says of a cache, over all that the log leaves open."""

    stages: tuple[Interval, ...]
    """Bytes of one block on each pipeline stage that holds cache layers, first stage first."""
    groups: int | None
    """Cache groups; None where releases differ."""
    block_size: int | None
    """Tokens in a block of the attention groups; None where releases, or the groups, differ."""
    blocks_per_request: Interval
    """Blocks of one request of the length that the log states, as the concurrency line counts them."""
    whole_length: bool
    """Whether a request takes blocks for its whole length, and for nothing else."""

    @property
    def bytes_per_block(self) -> Interval:
        """Give the divisor of the binding rank: one stage's."""
        found = self.stages[0]
        for stage in self.stages[1:]:
            found = found.hull(stage)
        return found

    def meet_alike(self, other: Layout) -> Layout:
        """Give what holds whichever of the two is true."""
        return Layout(
            tuple(a.hull(b) for a, b in zip(self.stages, other.stages, strict=True)),
            self.groups if self.groups == other.groups else None,
            self.block_size if self.block_size == other.block_size else None,
            self.blocks_per_request.hull(other.blocks_per_request),
            self.whole_length and other.whole_length,
        )


class Geometries:
    """Looks geometries up by the model that a log names, each once."""

    def __init__(self, given: Path | None = None, *, fetch: bool = False) -> None:
        self._given = given
        self._fetch = fetch
        self._found: dict[str | None, Geometry | NoGeometry] = {}

    def of(self, model: str | None) -> Geometry | NoGeometry:
        """Give a model's geometry: the file given, else what the local cache or the catalogue holds under this very id.

        Raises UnreadableConfig for the given file alone.
        """
        if model not in self._found:
            self._found[model] = self._look(model)
        return self._found[model]

    def _look(self, model: str | None) -> Geometry | NoGeometry:
        from reconstruct.planner.config_sources import UnreadableConfig, find_config
        from reconstruct.planner.errors import Unsupported

        if self._given is None and model is None:
            return NoGeometry("the log names no model (--config FILE gives its geometry)")
        if self._given is None and model is not None and not MODEL_ID.fullmatch(model):
            return NoGeometry("the model is a local path (--config FILE gives its geometry)")
        try:
            found = find_config(model or "", self._given, fetch=self._fetch)
        except UnreadableConfig as error:
            if self._given is not None:
                raise
            return NoGeometry(str(error))
        except Unsupported as error:
            return NoGeometry(str(error))
        if found is None:
            return NoGeometry(f"no geometry of {model} is known here (--config FILE or --fetch gives it)")
        return Geometry(model or "", found.config, found.source, found.place, self._fetch)


class Planner:
    """Plans one start-up's cache from a geometry, each question once."""

    def __init__(self, geometry: Geometry, version: EngineVersion, stated: StatedLaunch) -> None:
        self.geometry = geometry
        self.stated = stated
        self._version = version
        self._answers: dict[tuple[object, ...], Layout | NoGeometry] = {}
        self._one_card = False

    def layout(self, era: Era, span: Span, **changes: object) -> Layout | NoGeometry:
        """Give the layout under the releases of `span`, with the launch changed as asked; where there is none, why."""
        if self._version.note == NEWER_THAN_KNOWN:
            return NoGeometry(f"the planner of vLLM {self._version.stated} is not known here")
        key = (era.engine, span, *sorted(changes.items(), key=str))
        if key not in self._answers:
            self._answers[key] = self._planned(era, span, changes)
        return self._answers[key]

    def _planned(self, era: Era, span: Span, changes: Mapping[str, object]) -> Layout | NoGeometry:
        from reconstruct.planner.errors import BadSetting, Unsupported, WouldNotStart

        found: Layout | None = None
        release = card = ""
        seen: set[tuple[object, ...]] = set()
        try:
            for place in range(span.low, span.high + 1):
                release = RELEASES[place]
                launch = self.stated.launch._replace(engine_version=release, use_v1=era.engine == "V1")
                launch = launch._replace(**changes)  # type: ignore[arg-type]  # field names are the callers' words
                seen = set()
                for card in self._cards(alike=bool(changes)):
                    for layout in self._on_card(launch._replace(device=card), seen):
                        found = layout if found is None else found.meet_alike(layout)
        except Unsupported as error:
            return NoGeometry(f"no plan by vLLM {release}: {error}")
        except WouldNotStart as error:
            return NoGeometry(f"vLLM {release} would not start so: {error}")
        except BadSetting as error:
            return NoGeometry(str(error))
        if not changes:
            self._one_card = len(seen) == 1
        return found or NoGeometry("the log leaves no release open that has a planner")

    def _cards(self, *, alike: bool) -> tuple[str, ...]:
        """Give the cards to plan for; for a changed launch one of those that are alike for the stated one.

        Where the layers are those of plain attention, cards differ in what they make of a launch for all settings or none.
        """
        latent = "kv_lora_rank" in str(self.geometry.config)
        return self.stated.cards[:1] if alike and not latent and self._one_card else self.stated.cards

    def _on_card(self, launch: Launch, seen: set[tuple[object, ...]]) -> Iterator[Layout]:
        """Give the layouts of one release on one card; none for a card whose layers are those of one seen before."""
        from reconstruct.planner.config import specs_as_started
        from reconstruct.planner.plan import plan_from_layers

        built = specs_as_started(self.geometry.config, launch)
        if built.stages in seen:
            return
        seen.add(built.stages)
        for settled in _open_launches(built, self.stated):
            yield _layout(plan_from_layers(built.stages, settled, AMPLE), counted=self.stated.length is not None)


def _open_launches(built: ConfigSpecs, stated: StatedLaunch) -> list[Launch]:
    """Give the launches that span what the log leaves open of a request's blocks: these grow with what is in flight.

    The length that capacity lines speak of counts: less than asked for after an auto-fit, more than the model's own where
    the log has lost what was asked for. Raises Unsupported for the latter with recurrent layers, which look at it.
    """
    from reconstruct.planner.errors import Unsupported
    from reconstruct.planner.spec import CHUNKED, CROSS, MAMBA, SLIDING_LIKE

    settled = built.launch._replace(autofit=False)
    if stated.length is None:
        return [settled]
    kinds = {spec.kind for stage in built.stages for spec in set(stage)}
    if MAMBA in kinds and settled.max_model_len is not None and stated.length > settled.max_model_len:
        raise Unsupported(
            f"capacity lines speak of {stated.length} tokens a request, more than the launch or the model"
        )
    settled = settled._replace(max_model_len=stated.length)
    if not kinds & {CHUNKED, CROSS, *SLIDING_LIKE}:
        return [settled]
    fewest, most = stated.batched_tokens[0], stated.batched_tokens[-1]
    return [
        settled._replace(max_num_batched_tokens=fewest, async_scheduling=False),
        settled._replace(max_num_batched_tokens=most, async_scheduling=None),
    ]


def _layout(plan: KvPlan, *, counted: bool) -> Layout:
    """Read a plan; `counted` is whether it is for the request that the log speaks of."""
    from reconstruct.planner.spec import FULL_LIKE

    holding = {rank.stage: rank for rank in plan.ranks if rank.groups and rank.bytes_per_block}
    groups = [group for stage in sorted(holding) for group in holding[stage].groups]
    own = holding[min(holding)].groups if holding else ()
    attending = {g.block_size for g in own if g.kind in FULL_LIKE} or {g.block_size for g in own}
    smallest = min((g.block_size for g in own), default=0)
    return Layout(
        stages=tuple(Interval.exactly(holding[stage].bytes_per_block) for stage in sorted(holding)),
        groups=len(own) or None,
        block_size=smallest if attending == {smallest} else None,
        blocks_per_request=_request(plan) if counted else Interval(1, None),
        whole_length=len(own) == 1 and all(_is_plain(group) for group in groups),
    )


def _is_plain(group: GroupPlan) -> bool:
    from reconstruct.planner.spec import FULL, MLA

    return group.kind in {FULL, MLA}


def _request(plan: KvPlan) -> Interval:
    """Give the blocks that the concurrency divides by; open where the plan states none."""
    if not isinstance(plan.max_concurrency, float | int) or not plan.max_concurrency:
        return Interval(1, None)
    return Interval.exactly(round(plan.num_blocks / plan.max_concurrency))


def planner_for(
    geometry: Geometry | NoGeometry, log: StartUpLog, settings: Settings, version: EngineVersion, card: str | None
) -> Planner | NoGeometry:
    """Give what plans a start-up, or why nothing can."""
    if isinstance(geometry, NoGeometry):
        return geometry
    from reconstruct.planner.errors import Unsupported
    from reconstruct.stated_launch import stated_launch

    try:
        stated = stated_launch(log, settings, card, fetch=geometry.fetch)
    except Unsupported as error:
        return NoGeometry(str(error))
    return Planner(geometry, version, stated)


def evidence_of(
    layout: Layout, era: Era, stages: Mapping[int, int | None], origin: str, lines: tuple[int, ...]
) -> Iterator[Evidence]:
    """Give a layout as claims. `stages` tells each rank's pipeline stage, None where the log does not."""
    yield Evidence(Term("bytes_per_block"), layout.bytes_per_block, origin, lines)
    if len(layout.stages) > 1 and {*stages.values()} - {None} == {*range(len(layout.stages))}:
        for rank, stage in stages.items():
            if stage is not None:
                yield Evidence(Term("bytes_per_block", rank), layout.stages[stage], origin, lines)
    if layout.block_size is not None:
        yield Evidence(Term("block_size"), Interval.exactly(layout.block_size), origin, lines)
    if era.concurrency == "requests":
        yield Evidence(Term("blocks_per_request"), layout.blocks_per_request, origin, lines)


def without_defaults(evidence: Iterable[Evidence]) -> list[Evidence]:
    """Leave out the block size that a release takes unasked: a layout knows what became of it."""
    return [e for e in evidence if not (e.term.name == "block_size" and e.origin == "default")]


def model_lines(settings: Settings) -> tuple[int, ...]:
    """Give the lines that name the model."""
    stated = settings.values.get("model")
    return stated.lines if stated else ()
