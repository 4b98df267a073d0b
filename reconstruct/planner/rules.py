"""What differs between releases, as data: one row per release that changed the planner's arithmetic.

`rules_for(version)` folds the rows of `releases.ROWS` up to that release into one frozen `PlannerRules`; the planner
asks the rules, never the version.
"""

from __future__ import annotations

import functools
from typing import Any

from parsers.tuples import NamedTuple
from reconstruct.planner.errors import Unsupported
from reconstruct.planner.releases import ROWS


class PlannerRules(NamedTuple):
    """One behaviour per field; the defaults are those of 0.7.3, the first V1 release planned here.

    kinds: cache spec kinds that the release's workers report.
    fields: spec fields that exist beyond block size, heads, head size and dtype.
    value_width_kinds: kinds whose value width may differ from the key width.
    quant_modes: packed cache formats that the release knows.
    nvfp4_kinds, int4_kinds: kinds whose page shrinks with that format.
    sliding_v4_by_dtype: a sliding DeepSeek-V4 layer is packed only when its cache dtype says so.
    mamba_state_dtypes: one dtype for all states ("single") or one each ("each").
    stride_alignment: block strides are rounded not at all, once per block ("lcm"), or per layer ("layer").
    groups_need_equal_specs: layers of one group must have equal specs, not only alike ones.
    uniform_by: layers are alike by their "type_id" (kind, block size, page) or when their specs "merge".
    merge_compares_value_width, mla_merge, mla_merge_roles: which fields a merge compares.
    uniform_type: one group for layers of one type with different page sizes.
    mamba_type_compares: what mamba layers of one type share.
    hybrid_groups: groups of equal page size for hybrid models.
    global_groups: groups are made from all stages' layers, then cut to each worker's share.
    projects_uniform_type: the cut of a mixed-page group also cuts its page sum.
    bucket_by: what makes layers one bucket: "type_id", equal "spec", or "merge".
    near_equal: the larger bucket sets the group size when it is smaller than this factor times the smaller one.
    strided: a bucket's layers are dealt round robin to its groups (before: contiguous slices).
    unifies_pages, pads_mamba, pads_attention: how unequal page sizes are made equal.
    full_fallback: MLA beside sliding windows is planned as full attention when pages cannot be unified.
    packing: grouping of mixed page sizes laid side by side: "none", "tuples" (DeepSeek-V4), "block_outer".
    tuple_padding: sliding MLA pages grow to a page size of the full MLA layers.
    tuples_need_mixed_pages: the V4 grouping is skipped when all pages are equal.
    tuple_pool: bytes per block of V4 groups: "tuples", "slots" or "widest".
    state_buckets: kinds that packing may split down to one state per group.
    own_glm_layout: mamba beside compressed MLA (GLM-5.3-Flash) has a layout of its own, which is not planned here.
    hidden_blocks: block size of hidden-state layers: "fits", "divisor", or "grows".
    promotes: local attention becomes full: "never", "always", or "disabled" (hybrid manager off).
    promotion_keeps: fields that a promoted sliding window carries over (a chunk keeps only its size).
    promotion_keeps_all: every promoted spec carries all its fields over.
    promotion_padding: the padded page of a promoted spec: "drop", "keep" or "grow".
    promotion_takes_full_block: a promoted spec takes the block size of the full layers.
    promotion_splits_replicated: replicated and sharded specs are promoted apart.
    promotion_failure: how the engine words a failed promotion.
    shared_divisor: one division of the least memory by the most layers, for every worker.
    override: num_gpu_blocks_override: "blocks", "ignored" or "memory".
    tokens: "cache_block", "hybrid_group_block", "group_block" or "concurrency".
    tokens_times: context-parallel factor of the tokens: "none", "dcp_if_uniform", "dcp" or "dcp_pcp".
    concurrency: "tokens", "first_page" or "per_group".
    length_split: which context-parallel sizes divide a request's length.
    in_flight: unsettled tokens: one "batch", or "concurrent" batches.
    runner: the model runner that decides concurrent batches under pipeline parallelism: "v1", "by_model" or "v2".
    mamba_blocks: "one", "length" or "mode".
    mamba_all_speculates: caching all states adds blocks for speculative tokens.
    encoder_length: where cross attention takes its length from: "model" or "scheduler".
    single_group_context_parallel: context parallelism with several groups is refused.
    need: memory of one request: "layers", "first_group_all_stages", "first_group", "groups" or "blocks".
    reserves_null_block: the check and auto-fit leave out one block.
    auto_fit: max_model_len -1 is understood.
    final_block: the engine's block size after planning: "configured", "smallest" of the groups, or "cacheable".
    empty_stage: a worker without cache layers plans one block.
    """

    kinds: frozenset[str] = frozenset({"FullAttentionSpec"})
    fields: frozenset[str] = frozenset()
    value_width_kinds: frozenset[str] = frozenset()
    quant_modes: frozenset[str] = frozenset()
    nvfp4_kinds: frozenset[str] = frozenset()
    int4_kinds: frozenset[str] = frozenset()
    sliding_v4_by_dtype: bool = False
    mamba_state_dtypes: str = "single"
    stride_alignment: str = "none"
    uniform_by: str = "type_id"
    groups_need_equal_specs: bool = False
    merge_compares_value_width: bool = False
    mla_merge: str = "as_full"
    mla_merge_roles: bool = False
    uniform_type: bool = False
    mamba_type_compares: tuple[str, ...] = ("num_speculative_blocks",)
    hybrid_groups: bool = False
    global_groups: bool = False
    projects_uniform_type: bool = False
    bucket_by: str = "type_id"
    near_equal: float = 0.0
    strided: bool = False
    unifies_pages: bool = False
    pads_mamba: bool = False
    pads_attention: str = "no"
    full_fallback: bool = False
    packing: str = "none"
    tuple_padding: bool = False
    tuples_need_mixed_pages: bool = False
    tuple_pool: str = "tuples"
    state_buckets: frozenset[str] = frozenset()
    own_glm_layout: bool = False
    hidden_blocks: str = "fits"
    promotes: str = "never"
    promotion_keeps: frozenset[str] = frozenset()
    promotion_keeps_all: bool = False
    promotion_padding: str = "drop"
    promotion_takes_full_block: bool = False
    promotion_splits_replicated: bool = False
    promotion_failure: str = "Hybrid KV cache manager is disabled but failed to convert the KV cache specs to one type"
    shared_divisor: bool = True
    override: str = "blocks"
    tokens: str = "cache_block"
    tokens_times: str = "none"
    concurrency: str = "tokens"
    length_split: str = "none"
    in_flight: str = "batch"
    runner: str = "v1"
    mamba_blocks: str = "one"
    mamba_all_speculates: bool = False
    encoder_length: str = "model"
    single_group_context_parallel: bool = False
    need: str = "layers"
    reserves_null_block: bool = False
    auto_fit: bool = False
    final_block: str = "configured"
    empty_stage: bool = False


FIRST_RELEASE = ROWS[0][0]
NEWEST_RELEASE = ROWS[-1][0]

_folded: dict[str, PlannerRules] = {}


def rules_for(version: str) -> PlannerRules:
    """Rules of one release; a pre-release or local build has those of the release that it leads to.

    Raises Unsupported for text that is no version, for releases before the V1 planner (see `v0`), and for releases
    newer than the newest row, whose arithmetic nobody has read yet.
    """
    if version not in _folded:
        _folded[version] = _fold(version)
    return _folded[version]


LONGEST = 40
"""Characters of a version number; what is longer is none."""


@functools.cache
def release_of(version: str) -> tuple[int, ...]:
    """Numbers of a version, without pre-release, build or local parts. Raises Unsupported for text that is none."""
    if version.isascii() and len(version) < LONGEST and all(map(str.isdecimal, version.split("."))):
        return tuple(map(int, version.split(".")))
    from packaging.version import InvalidVersion, Version  # most are plain numbers, and its import takes a while

    try:
        return Version(version).release
    except InvalidVersion:
        raise Unsupported(f"engine version {version!r} is not a version; give one such as {NEWEST_RELEASE}") from None


def precedes_v1(version: str) -> bool:
    """Whether a release is older than the first V1 planner known here, so that its V0 engine is planned."""
    return release_of(version) < release_of(FIRST_RELEASE)


def _fold(version: str) -> PlannerRules:
    release = release_of(version)
    if release < release_of(FIRST_RELEASE):
        raise Unsupported(f"the V1 cache planner of vLLM {version} is not known; {FIRST_RELEASE} is the first that is")
    if release[:2] > release_of(NEWEST_RELEASE)[:2]:
        raise Unsupported(f"vLLM {version} is newer than {NEWEST_RELEASE}, the newest release whose planner is known")
    rules = PlannerRules()
    for first, _source, changes in ROWS:
        if release_of(first) <= release:
            rules = _with(rules, changes)
    return rules


def _with(rules: PlannerRules, changes: dict[str, object]) -> PlannerRules:
    """Apply a row: `kinds`, `fields` and the like only grow, everything else is replaced."""
    grown: dict[str, Any] = {
        name: getattr(rules, name) | value if isinstance(value, set | frozenset) else value
        for name, value in changes.items()
    }
    return rules._replace(**grown)
