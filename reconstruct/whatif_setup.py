"""The settings of a start-up today and after a change, as far as its log tells them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.template import whole_number
from parsers.tuples import NamedTuple
from reconstruct.change import UnknownRelease
from reconstruct.eras import BUDGET_WORDS, FIRST_V1, LAST_V0, TOKEN_WORDS, era, possible
from reconstruct.evidence import EXPLICIT_POOL, is_override
from reconstruct.interval import ANYTHING, Interval
from reconstruct.predict.peak import MEASURES_KERNELS
from reconstruct.releases import NEWER_THAN_KNOWN, RELEASES, Span, index, narrow

if TYPE_CHECKING:
    from parsers.launch_settings import Settings
    from reconstruct.change import Change
    from reconstruct.eras import Era
    from reconstruct.ledger import EngineLedger, StartUpLedger

V1_BY_DEFAULT = index("0.8.0")
"""The first release that runs V1 unless told otherwise."""
_MEASURES_KERNELS = index(".".join(map(str, MEASURES_KERNELS)))
SAME_GRAPHS = {"gpu_memory_utilization", "kv_cache_memory", "estimate_cudagraphs"}
"""Changes after which a start finds the graphs that today's compiled (config/vllm.py compute_hash leaves them out)."""


class Setup(NamedTuple):
    """What decides a start-up's terms. None and unbounded intervals are what no line tells.

    charged: whether the graph estimate was taken from the budget. switched: the same where the user's switch decides,
    None where the release's default does. explicit: whether the pool was given in bytes, or by a start-up plan, so that
    nothing was profiled for it. pool: those bytes, where they are known.
    """

    releases: tuple[str, ...]
    """Those left open that behave as one of the eras; the oldest first."""
    span: Span
    eras: tuple[Era, ...]
    utilization: Interval
    utilization_by_default: bool
    kv_cache_dtype: str
    max_model_len: Interval
    batched_tokens: int | None
    sequences: int | None
    tensor: int
    pipeline: int
    eager: bool
    charged: bool | None
    switched: bool | None
    block_size: Interval
    explicit: bool
    pool: int | None
    compiles: bool | None
    """Whether torch.compile finds nothing in its cache; False where graphs are loaded, None where that is not told."""
    overridden: int | None
    """The blocks that the user asked for; see `fixes_blocks` for whether they count."""

    @property
    def release(self) -> str:
        """The oldest release that it may be."""
        return self.releases[0]

    @property
    def fixes_blocks(self) -> bool | None:
        """Whether the user's count stands for the pool's; None where the releases left open differ (0.9.1 ignores it)."""
        ignored = {e.override_ignored for e in self.eras}
        return False if self.overridden is None or ignored == {True} else None if True in ignored else True

    @property
    def checks_override(self) -> bool | None:
        """Whether the engine's checks see the user's count and not the pool; None where the releases left open differ."""
        seen = {e.checks_override and not e.override_ignored for e in self.eras}
        return False if self.overridden is None else seen.pop() if len(seen) == 1 else None

    @property
    def may_compile(self) -> bool:
        """Whether the profile run may hold what compiling takes (see reconstruct.predict.peak)."""
        measures = self.span.high >= _MEASURES_KERNELS and any(e.engine == "V1" for e in self.eras)
        return measures and not self.eager and self.compiles is not False

    @property
    def world(self) -> int:
        """Ranks of one engine."""
        return self.tensor * self.pipeline

    @property
    def budget_rounding(self) -> frozenset[str]:
        """How R may be rounded."""
        return frozenset(e.budget for e in self.eras)

    def all_eras(self, name: str, *values: object) -> bool:
        """Whether a behaviour has one of these values in every era left open."""
        return all(getattr(e, name) in values for e in self.eras)


def today(startup: StartUpLedger, engine: EngineLedger) -> Setup:
    """Read the setup of a start-up."""
    settings, capacity = startup.settings, engine.capacity
    charged = _charged(startup, settings)
    by_default = settings.get("gpu_memory_utilization") is None
    eras = startup.eras
    switched = None
    if charged is not None and all(e.estimate != "none" for e in eras) and settings.get("enforce_eager") is not True:
        defaults = {e.estimate == "on" for e in eras}
        switched = None if charged in defaults else charged
    return Setup(
        releases=_releases(startup.version.span, eras),
        span=startup.version.span,
        eras=eras,
        utilization=capacity.interval("gpu_memory_utilization"),
        utilization_by_default=by_default and settings.lists_changes,
        kv_cache_dtype=settings.text("kv_cache_dtype") or "auto",
        max_model_len=capacity.interval("max_model_len"),
        batched_tokens=settings.number("max_num_batched_tokens"),
        sequences=settings.number("max_num_seqs"),
        tensor=settings.number("tensor_parallel_size") or 1,
        pipeline=settings.number("pipeline_parallel_size") or 1,
        eager=settings.get("enforce_eager") is True,
        charged=charged,
        switched=switched,
        block_size=capacity.interval("block_size"),
        explicit=settings.number("kv_cache_memory_bytes") is not None or bool(startup.log.of(*EXPLICIT_POOL)),
        pool=settings.number("kv_cache_memory_bytes"),
        compiles=startup.compiles,
        overridden=_overridden(startup),
    )


def _releases(span: Span, eras: tuple[Era, ...]) -> tuple[str, ...]:
    places = {place for one, held in possible(span) if one in eras for place in range(held.low, held.high + 1)}
    return tuple(RELEASES[place] for place in sorted(places)) or (RELEASES[span.low],)


def fits_itself(startup: StartUpLedger) -> bool:
    """Whether the engine chose max_model_len to fit the pool (0.14.0 on)."""
    return bool(startup.log.of("auto_fit"))


def _overridden(startup: StartUpLedger) -> int | None:
    """Give the block count that the user fixed."""
    asked = startup.settings.number("num_gpu_blocks_override")
    lines = (s.text("override_num_blocks") for s in startup.log.statements if is_override(s))
    return asked if asked is not None else next((n for text in lines if (n := whole_number(text)) is not None), None)


def _charged(startup: StartUpLedger, settings: Settings) -> bool | None:
    """Whether graphs were charged: by the line that says so, else by what the release and eager mode leave."""
    kinds = {s.kind for s in startup.log.statements}
    if "graph_charged" in kinds:
        return True
    no_estimate = all(e.estimate == "none" for e in startup.eras)
    if "graph_not_charged" in kinds or no_estimate or settings.get("enforce_eager") is True:
        return False
    return None


def afterwards(now: Setup, change: Change, *, fitted: bool = False) -> tuple[Setup, tuple[str, ...]]:
    """Give the setup after a change, and what an upgrade brings along unasked.

    fitted: whether the engine chooses max_model_len by the pool, so that today's says nothing of the next.

    Raises UnknownRelease for a release that is no version number.
    """
    notes: list[str] = []
    then = now
    if change.engine_version is not None:
        then, notes = _upgraded(now, change.engine_version)
    if change.gpu_memory_utilization is not None:
        then = then._replace(utilization=Interval.exactly(change.gpu_memory_utilization), utilization_by_default=False)
    eager = now.eager if change.enforce_eager is None else change.enforce_eager
    switched = change.estimate_cudagraphs if change.estimate_cudagraphs is not None else then.switched
    then = then._replace(
        eager=eager,
        switched=switched,
        charged=_charges_then(now, then, change, eager=eager, switched=switched),
        kv_cache_dtype=change.kv_cache_dtype or now.kv_cache_dtype,
        max_model_len=_length(now, change, fitted=fitted),
        batched_tokens=change.max_num_batched_tokens or now.batched_tokens,
        sequences=change.max_num_seqs or now.sequences,
        tensor=change.tensor_parallel_size or now.tensor,
        pipeline=change.pipeline_parallel_size or now.pipeline,
        block_size=Interval.exactly(change.block_size) if change.block_size else now.block_size,
        explicit=now.explicit or change.kv_cache_memory is not None,
        pool=change.kv_cache_memory or now.pool,
        compiles=False if change.named.keys() <= SAME_GRAPHS else None,
    )
    return then, tuple(notes)


def _length(now: Setup, change: Change, *, fitted: bool) -> Interval:
    if change.max_model_len:
        return Interval.exactly(change.max_model_len)
    return ANYTHING if fitted else now.max_model_len


def _charges_then(now: Setup, then: Setup, change: Change, *, eager: bool, switched: bool | None) -> bool | None:
    if eager or then.all_eras("estimate", "none"):
        return False
    if switched is not None:
        return switched
    if change.engine_version is None and not now.eager:
        return now.charged
    if then.all_eras("estimate", "on"):
        return True
    return False if then.all_eras("estimate", "off") else None


def _upgraded(now: Setup, wanted: str) -> tuple[Setup, list[str]]:
    version = narrow(wanted, ())
    if version.span.low != version.span.high:
        raise UnknownRelease(f"{wanted} is no release number of vLLM; write one such as {RELEASES[-1]}")
    place = version.span.low
    known = {e.engine for e in now.eras}
    engine = "V1" if place > LAST_V0 or (place >= V1_BY_DEFAULT and now.span.high < V1_BY_DEFAULT) else min(known)
    if place < FIRST_V1:
        engine = "V0"
    after = era(place, engine)
    notes = [f"{wanted} is {NEWER_THAN_KNOWN}"] if version.note == NEWER_THAN_KNOWN else []
    then = now._replace(releases=(RELEASES[place],), span=version.span, eras=(after,))
    notes += _differences(now, after, RELEASES[place])
    if now.utilization_by_default:
        then = then._replace(utilization=Interval.exactly(after.default_utilization))
    return then, notes


_CHARGES = {
    "terms": "W + N (weights and what was taken outside torch)",
    "consumed": "all that is gone between the first snapshot and the end of profiling",
    "device": "all that is in use on the card, other processes too",
    "opaque": "the whole peak in use",
}
_ESTIMATES = {
    "none": "makes no graph estimate",
    "off": "estimates graphs, charged only if switched on",
    "on": "charges the graph estimate by default",
}


def _differences(now: Setup, after: Era, release: str) -> list[str]:
    """Say what the other release does differently; nothing where the log leaves several behaviours open."""
    found = []
    before = now.eras[0]
    known = {name: now.all_eras(name, getattr(before, name)) for name in before._fields}
    if known["engine"] and before.engine != after.engine:
        found.append(f"{release} runs the {after.engine} engine instead of {before.engine}")
    if known["default_utilization"] and before.default_utilization != after.default_utilization:
        moved = (
            f"the default gpu_memory_utilization is {after.default_utilization} instead of {before.default_utilization}"
        )
        found.append(moved if now.utilization_by_default else f"{moved}; it was given, so it stays")
    if known["budget"] and before.budget != after.budget:
        found.append(
            f"the budget is {BUDGET_WORDS[after.budget]} instead of {BUDGET_WORDS[before.budget]}: a byte at most"
        )
    if known["estimate"] and before.estimate != after.estimate:
        found.append(f"{release} {_ESTIMATES[after.estimate]}; before it {_ESTIMATES[before.estimate]}")
    if known["charge"] and before.charge != after.charge:
        found.append(f"C is {_CHARGES[after.charge]}; before it was {_CHARGES[before.charge]}")
    if known["tokens"] and before.tokens != after.tokens:
        found.append(
            f"the printed token count is {TOKEN_WORDS[after.tokens]} instead of {TOKEN_WORDS[before.tokens]}: the number "
            "may move though the pool does not"
        )
    if known["null_block"] and before.null_block != after.null_block:
        verb = "holds back" if after.null_block else "no longer holds back"
        found.append(f"the one-request check {verb} one block")
    if now.world > 1 and _after_nccl(now.span.low) != _after_nccl(index(release)) and after.engine == "V1":
        found.append(
            "the baseline snapshot is taken "
            + ("after NCCL started (0.11.0 on): it lies in T - F, no longer in N" if _after_nccl(index(release))
               else "before NCCL starts (up to 0.10.2): it is charged to N, no longer part of T - F")
        )  # fmt: skip
    return found


def _after_nccl(place: int) -> bool:
    return place >= index("0.11.0")
