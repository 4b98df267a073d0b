"""The terms of one stage's ranks as ledger quantities, from T down to M."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from parsers.tuples import NamedTuple
from reconstruct.interval import Interval
from reconstruct.ledger import Account, Missing, Quantity
from reconstruct.predict.graphs import graphs_of
from reconstruct.predict.non_torch import baseline_use, non_torch_of
from reconstruct.predict.peak import peak_of
from reconstruct.predict.workspaces import runner_buffers

if TYPE_CHECKING:
    from reconstruct.predict.graphs import Graphs
    from reconstruct.predict.non_torch import NonTorch
    from reconstruct.predict.peak import Peak, Subject
    from reconstruct.predict.weights import Weights

ZERO = Interval(0, 0)
NOT_NEGATIVE = Interval(0, None)


class StageTerms(NamedTuple):
    """One stage: its account, the likeliest value of each modelled term, M, and what is not modelled.

    spare: free memory that the whole start leaves after graphs, before a full-size batch runs.
    """

    account: Account
    expected: dict[str, int]
    available: Interval
    spare: Term
    reasons: tuple[str, ...]


class Term(NamedTuple):
    """A term's interval and its likeliest value."""

    interval: Interval
    likely: int

    @classmethod
    def middle(cls, interval: Interval) -> Term:
        """Give a term of which nothing in its interval is likelier than the rest."""
        low, high = interval.low or 0, interval.high if interval.high is not None else interval.low or 0
        return cls(interval, round((low + high) / 2))

    def plus(self, other: Term) -> Term:
        """Give the sum of two terms."""
        return Term(self.interval.plus(other.interval), self.likely + other.likely)

    def minus(self, other: Term) -> Term:
        """Give the difference of two terms."""
        return Term(self.interval.minus(other.interval), self.likely - other.likely)


class _Ledger:
    """Collects quantities; a stated value replaces the model's."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self.quantities: dict[str, Quantity] = {}
        self.expected: dict[str, int] = {}

    def add(self, name: str, term: Term, origin: str, inputs: tuple[str, ...] = (), equation: str = "") -> Term:
        """Add a term and give it as it is in force."""
        fixed = self._subject.scenario.fixed_term(name)
        if fixed is not None:
            term, origin, inputs, equation = Term.middle(fixed.interval), fixed.origin, (), ""
        self.quantities[name] = Quantity(name, term.interval, "B", origin, (), inputs, equation)
        self.expected[name] = term.likely
        return term


def requested(total: Interval, utilization: float, rounding: str) -> Interval:
    """R of a total and a utilisation: the float product, up or down to a whole byte (0.14.0 request_memory)."""
    whole = math.ceil if rounding == "ceil" else math.floor
    return Interval(*(None if end is None else whole(end * utilization) for end in total))


def stage_terms(subject: Subject, weights: Weights) -> StageTerms:
    """All terms of one stage."""
    ledger, era = _Ledger(subject), subject.settled.era
    add = ledger.add
    total = add("total_memory", Term.middle(subject.hardware.total_memory), "catalogue")
    asked = requested(total.interval, subject.settled.utilization, era.budget)
    budget = add(
        "requested_memory", Term.middle(asked), "derived", ("total_memory", "gpu_memory_utilization"),
        f"R = T x u ({'rounded up' if era.budget == 'ceil' else 'rounded down'})",
    )  # fmt: skip
    baseline, other = baseline_use(subject), non_torch_of(subject)
    free = add(
        "initial_free_memory", total.minus(Term(baseline.interval, baseline.likely)), "modelled", ("total_memory",)
    )
    exact = not weights.reasons
    model = add("model_memory", Term(weights.interval, weights.likely), "config" if exact else "modelled")
    non_torch = add("non_torch_increase", Term(other.interval, other.likely), "modelled", (), other.row.source)
    peak, graphs = peak_of(subject), graphs_of(subject)
    consumed, equation = _consumed(model.plus(non_torch), peak, baseline, subject)
    consumed = consumed._replace(interval=consumed.interval.meet(NOT_NEGATIVE) or consumed.interval)
    consumed = add("total_consumed", consumed, "modelled", ("model_memory", "non_torch_increase"), equation)
    headroom = add("transient_peak_headroom", Term(peak.headroom, peak.likely), "modelled")
    if not subject.consumes:
        add("torch_peak_increase", headroom, "modelled")
    add("non_kv_cache_memory", consumed.plus(headroom), "derived", ("total_consumed", "transient_peak_headroom"))
    applied, actual = _graphs(ledger, graphs, subject)
    available = add(
        "available_kv_cache_memory", budget.minus(consumed).minus(headroom).minus(applied), "modelled",
        ("requested_memory", "total_consumed", "transient_peak_headroom", "cudagraph_memory_applied"), "M = R - C - H - G",
    )  # fmt: skip
    beyond = Term(
        _beyond_budget(total.interval, baseline.interval, free.interval, subject), free.likely - budget.likely
    )
    spare = beyond.plus(applied).minus(actual)
    reasons = weights.reasons + peak.reasons + other.reasons + graphs.reasons
    account = Account(ledger.quantities, _missing(subject))
    return StageTerms(account, ledger.expected, available.interval, spare, reasons)


def _consumed(resting: Term, peak: Peak, baseline: NonTorch, subject: Subject) -> tuple[Term, str]:
    """C of the release: from 0.27.0 on with what the profile run leaves, in early V0 with the baseline use."""
    if subject.consumes:
        kept = peak.kept.plus(Interval.exactly(runner_buffers(subject)))
        return resting.plus(Term(kept, int(kept.low or 0))), "C = W + N + torch memory of the runner and its kernels"
    if subject.settled.era.charge == "opaque":
        return resting.plus(Term(baseline.interval, baseline.likely)), "C = W + N + baseline use"
    return resting, "C = W + N"


def _graphs(ledger: _Ledger, graphs: Graphs, subject: Subject) -> tuple[Term, Term]:
    """G_est, G and G_act: what is charged, and what the capture takes."""
    estimate = Term(graphs.estimate, graphs.likely_estimate)
    if subject.settled.era.estimate != "none":
        estimate = ledger.add("cudagraph_memory_estimate", estimate, _origin(estimate))
    applied = estimate if graphs.applied != ZERO else Term(ZERO, 0)
    applied = ledger.add("cudagraph_memory_applied", applied, _origin(applied))
    actual = Term(graphs.actual, graphs.nominal)
    return applied, ledger.add("cudagraph_memory_actual", actual, _origin(actual))


def _origin(term: Term) -> str:
    return "config" if term.interval == ZERO else "modelled"


def _beyond_budget(total: Interval, baseline: Interval, free: Interval, subject: Subject) -> Interval:
    """F - R with T's uncertainty taken once: T x (1 - u) less the baseline use."""
    utilization = subject.settled.utilization
    if subject.scenario.fixed_term("initial_free_memory") or subject.scenario.fixed_term("requested_memory"):
        return free.minus(requested(total, utilization, subject.settled.era.budget))
    rest = Interval(*(None if end is None else math.floor(end * (1 - utilization)) for end in total))
    return rest.minus(baseline)


def _missing(subject: Subject) -> dict[str, Missing]:
    found = {}
    if subject.consumes:
        name = "torch_peak_increase"
        found[name] = Missing(name, "this release charges what is consumed and the headroom instead (0.27+)")
    if subject.settled.era.estimate == "none":
        name = "cudagraph_memory_estimate"
        found[name] = Missing(name, "this release makes no graph estimate")
    return found
