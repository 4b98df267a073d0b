"""Where one start-up ends and the next begins."""

from __future__ import annotations

from parsers.log import read_log

EXCERPT = (
    "INFO 11-14 10:20:50 [gpu_worker.py:9] Available KV cache memory: 41.73 GiB\n"
    "INFO 11-14 10:20:51 [kv_cache_utils.py:9] GPU KV cache size: 341,840 tokens\n"
)
ARGUMENTS = "INFO 11-15 08:00:00 [utils.py:9] non-default args: {{'model': 'm', 'gpu_memory_utilization': {}}}\n"
BANNER = "INFO 11-15 07:59:59 [api_server.py:9] vLLM API server version 0.19.0\n"


def kinds(text):
    return [[s.kind for s in start.statements] for start in read_log(text.encode()).startups]


def test_the_arguments_behind_a_start_are_the_next_ones():
    """An excerpt without a banner, then a whole log: its arguments are nothing of the excerpt's."""
    assert kinds(EXCERPT + BANNER + ARGUMENTS.format(0.5) + EXCERPT) == [
        ["available", "tokens"],
        ["api_version", "changed_arguments", "available", "tokens"],
    ]


def test_a_copy_of_the_arguments_begins_nothing():
    said = BANNER + ARGUMENTS.format(0.5) + EXCERPT
    assert len(kinds(said + ARGUMENTS.format(0.5))) == 1
    assert len(kinds(said + ARGUMENTS.format(0.6))) == 2
