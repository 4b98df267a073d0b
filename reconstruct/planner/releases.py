"""One row per release that changed the planner's arithmetic: the release, where it shows, what changed.

A row's release is the first one whose source has the change (every release between 0.7.3 and 0.33.0 was compared). KU
is v1/core/kv_cache_utils.py, KI v1/kv_cache_interface.py, both under vLLM's `vllm/`. Fields are those of
`rules.PlannerRules`; sets grow, everything else is replaced. A release with new arithmetic is one more row.
"""

from __future__ import annotations

Row = tuple[str, str, dict[str, object]]

ROWS: tuple[Row, ...] = (
    ("0.7.3", "KU get_kv_cache_configs", {}),
    ("0.8.0", "KI FullAttentionSpec.use_mla; KU logs tokens", {"kinds": {"MLAAttentionSpec"}}),
    (
        "0.8.2",
        "KU get_kv_cache_config plans worker by worker, create_kv_cache_group_specs, unify_kv_cache_configs",
        {"shared_divisor": False, "groups_need_equal_specs": True},
    ),
    (
        "0.8.3",
        "KI SlidingWindowSpec; KU unify_hybrid_kv_cache_specs",
        {"kinds": {"SlidingWindowSpec"}, "promotes": "always"},
    ),
    (
        "0.9.0",
        "KI KVCacheSpec.merge, FullAttentionSpec.sliding_window",
        {"fields": {"sliding_window"}, "promotion_keeps": {"sliding_window"}, "groups_need_equal_specs": False},
    ),
    (
        "0.9.1",
        "KU _get_kv_cache_config_uniform_page_size, get_max_concurrency_for_kv_cache_config, get_num_blocks",
        {"hybrid_groups": True, "promotes": "disabled", "override": "ignored", "concurrency": "first_page"},
    ),
    (
        "0.9.2",
        "KI MambaSpec; KU get_num_blocks, min_block_size",
        {"kinds": {"MambaSpec"}, "fields": {"page_size_padded"}, "override": "blocks", "tokens": "hybrid_group_block"},
    ),
    (
        "0.10.0",
        "KI ChunkedLocalAttentionSpec; KU _get_kv_cache_config_attention_free",
        {
            "kinds": {"ChunkedLocalAttentionSpec"},
            "fields": {"attention_chunk_size"},
            "empty_stage": True,
        },
    ),
    (
        "0.10.1",
        "KI specs are frozen and compared whole; MambaSpec.dtypes",
        {"uniform_by": "merge", "bucket_by": "spec", "mamba_state_dtypes": "each", "fields": {"mamba_type"}},
    ),
    (
        "0.10.2",
        "KI FullAttentionSpec.max_memory_usage_bytes, CrossAttentionSpec, MambaSpec.num_speculative_blocks",
        {
            "kinds": {"CrossAttentionSpec"},
            "fields": {"num_speculative_blocks"},
            "length_split": "dcp",
            "tokens_times": "dcp_if_uniform",
        },
    ),
    (
        "0.11.0",
        "KU get_kv_cache_groups, get_kv_cache_config_from_groups; KI MLAAttentionSpec, UniformTypeKVCacheSpecs",
        {
            "fields": {"cache_dtype_str"},
            "mla_merge": "by_cache_dtype",
            "uniform_type": True,
            "global_groups": True,
            "strided": True,
            "tokens": "group_block",
            "tokens_times": "dcp",
            "encoder_length": "scheduler",
        },
    ),
    ("0.11.1", "KI MambaSpec.max_memory_usage_bytes", {"mamba_blocks": "length"}),
    (
        "0.12.0",
        "KU unify_kv_cache_spec_page_size, _get_kv_cache_groups_uniform_page_size; KI prefill context parallelism",
        {"unifies_pages": True, "near_equal": 1.25, "length_split": "dcp_pcp", "tokens_times": "dcp_pcp"},
    ),
    (
        "0.14.0",
        (
            "KI AttentionSpec.page_size_padded, FullAttentionSpec.head_size_v, SinkFullAttentionSpec; "
            "KU _auto_fit_max_model_len, _max_memory_usage_bytes_from_groups"
        ),
        {
            "kinds": {"SinkFullAttentionSpec"},
            "fields": {"attention_page_size_padded", "sink_len"},
            "value_width_kinds": {"FullAttentionSpec", "SinkFullAttentionSpec"},
            "need": "first_group_all_stages",
            "auto_fit": True,
        },
    ),
    (
        "0.15.0",
        "KI MambaSpec.mamba_cache_mode; KU unify_hybrid_kv_cache_specs",
        {"fields": {"mamba_cache_mode"}, "mamba_blocks": "mode", "promotion_padding": "keep"},
    ),
    (
        "0.17.0",
        "KU _project_kv_cache_groups_to_worker",
        {"projects_uniform_type": True, "need": "first_group"},
    ),
    (
        "0.18.0",
        "KU _get_kv_cache_groups_uniform_page_size; v1/engine/core.py _initialize_kv_caches",
        {"near_equal": 1.5, "final_block": "smallest"},
    ),
    ("0.19.0", "KU _max_memory_usage_bytes_from_groups", {"need": "groups"}),
    (
        "0.20.0",
        (
            "KI KVQuantMode, SlidingWindowMLASpec, SlidingWindowSpec.head_size_v; KU group_and_unify_kv_cache_specs, "
            "resolve_kv_cache_block_sizes"
        ),
        {
            "kinds": {"SlidingWindowMLASpec"},
            "fields": {
                "kv_quant_mode",
                "alignment",
                "tokens_per_state",
                "states_per_token",
                "model_version",
            },
            "value_width_kinds": {"FullAttentionSpec", "SinkFullAttentionSpec", "SlidingWindowSpec"},
            "quant_modes": {"INT8_PER_TOKEN_HEAD", "FP8_PER_TOKEN_HEAD", "NVFP4", "TURBOQUANT"},
            "nvfp4_kinds": {"FullAttentionSpec", "SinkFullAttentionSpec"},
            "packing": "tuples",
            "tuple_padding": True,
            "single_group_context_parallel": True,
        },
    ),
    (
        "0.20.1",
        "KU _report_kv_cache_config, _pool_bytes_per_block, get_kv_cache_configs",
        {"tokens": "concurrency", "override": "memory"},
    ),
    (
        "0.21.0",
        "KU unify_hybrid_kv_cache_specs; KI AttentionSpec.real_page_size_bytes",
        {
            "promotion_keeps": {"head_size_v", "kv_quant_mode"},
            "nvfp4_kinds": {"SlidingWindowSpec", "ChunkedLocalAttentionSpec", "CrossAttentionSpec"},
        },
    ),
    (
        "0.22.0",
        "KI HiddenStateCacheSpec, MambaSpec.max_memory_usage_bytes",
        {"kinds": {"HiddenStateCacheSpec"}, "mamba_all_speculates": True},
    ),
    (
        "0.23.0",
        "KU _bucket_layers_by_page_size; KI SlidingWindowMLASpec.real_page_size_bytes",
        {"tuple_pool": "slots", "sliding_v4_by_dtype": True},
    ),
    ("0.24.0", "KU unify_kv_cache_spec_page_size", {"pads_attention": "by_backend"}),
    (
        "0.25.0",
        "KI RSWASpec, KVQuantMode, real_page_size_bytes of each kind",
        {
            "kinds": {"RSWASpec"},
            "fields": {"rswa_window"},
            "quant_modes": {"INT4_PER_TOKEN_HEAD"},
            "int4_kinds": {
                "FullAttentionSpec",
                "SinkFullAttentionSpec",
                "RSWASpec",
                "MLAAttentionSpec",
                "ChunkedLocalAttentionSpec",
                "CrossAttentionSpec",
            },
        },
    ),
    (
        "0.26.0",
        "config/vllm.py max_in_flight_tokens; KU unify_kv_cache_spec_page_size, group_and_unify_kv_cache_specs",
        {
            "length_split": "dcp",
            "in_flight": "concurrent",
            "runner": "by_model",
            "pads_mamba": True,
            "tuples_need_mixed_pages": True,
            "single_group_context_parallel": False,
        },
    ),
    (
        "0.27.0",
        (
            "KU get_max_concurrency_for_kv_cache_config, _promote_local_kv_cache_specs, "
            "_try_get_full_allocation_fallback_groups, _get_packed_kv_cache_layout; KI MLAAttentionSpec.merge"
        ),
        {
            "concurrency": "per_group",
            "bucket_by": "merge",
            "mla_merge": "by_fields",
            "full_fallback": True,
            "tuple_padding": False,
            "tuple_pool": "widest",
            "promotion_padding": "grow",
            "promotion_takes_full_block": True,
            "promotion_failure": "Failed to promote local KV cache specs to one unified type",
        },
    ),
    (
        "0.28.0",
        "KI AttentionSpec.head_size_v, SlidingWindowSpec.extra_retained_tokens; KU get_kv_cache_groups",
        {
            "fields": {"extra_retained_tokens"},
            "value_width_kinds": {"ChunkedLocalAttentionSpec", "CrossAttentionSpec", "RSWASpec", "CircularBufferSpec"},
            "merge_compares_value_width": True,
            "int4_kinds": {"SlidingWindowSpec"},
            "promotion_keeps_all": True,
            "hidden_blocks": "divisor",
        },
    ),
    (
        "0.29.0",
        "KU _get_packed_kv_cache_groups, _get_kv_cache_bytes_per_block, get_kv_cache_configs; KI CircularBufferSpec",
        {
            "kinds": {"CircularBufferSpec"},
            "fields": {"num_prefill_checkpoint_blocks", "tp_replicated"},
            "mamba_type_compares": (
                "num_speculative_blocks",
                "num_prefill_checkpoint_blocks",
                "page_size_bytes",
                "tp_replicated",
            ),
            "pads_attention": "non_mla",
            "packing": "block_outer",
            "state_buckets": {"MambaSpec"},
            "need": "blocks",
            "reserves_null_block": True,
        },
    ),
    (
        "0.30.0",
        "KU _get_packed_kv_cache_groups, _ensure_min_page_size; KI SparseCacheRole; config/vllm.py use_v2_model_runner",
        {
            "fields": {"cache_role"},
            "state_buckets": {"CircularBufferSpec", "SlidingWindowSpec", "SlidingWindowMLASpec"},
            "mla_merge_roles": True,
            "runner": "v2",
            "own_glm_layout": True,
            "final_block": "cacheable",
            "hidden_blocks": "grows",
        },
    ),
    (
        "0.31.0",
        "KI KVCacheSpec.dcp_sharded, block_stride_alignment; KU unify_hybrid_kv_cache_specs",
        {
            "fields": {"dcp_sharded", "block_stride_alignment", "max_tp_shards", "bounded_replay"},
            "length_split": "dcp_if_sharded",
            "stride_alignment": "lcm",
            "promotion_splits_replicated": True,
        },
    ),
    (
        "0.32.0",
        "KU _get_layer_block_stride, _get_kv_cache_bytes_per_block",
        {"stride_alignment": "layer", "own_glm_layout": False},
    ),
    ("0.33.0", "v1/core/kv_cache_planning.py: moved, the arithmetic of 0.32.0", {}),
)
