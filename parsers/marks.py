"""What a log is searched for before anything is decoded.

Searching raw bytes is quick while the patterns are few and short (the SIMD search behind ahocorasick_rs), and slow with the
several hundred words of all rules. So it goes in two steps: fragments, a few dozen, of which every sentence holds one and
which requests rarely hold; then, on the lines that hold one, the words themselves.
"""

from __future__ import annotations

import functools

from parsers.rule import literals
from parsers.rules import RULES

FRAGMENTS = (
    "GiB", "lloc", 'py",', "tiali", "CPU ", "CUDA", "kv c", "Usin", "orld", "axim", "x_nu", "uto-", "oadi", "neCo", "idin",
    "kes ", "Work", "Appl", "vLLM", "Sett", "gs: ", "ptur", "most", "p sp", "oad ", "  ver", "  mod", "Hybr", "mamb", " GB ",
    "ckpo", "Uvic", "Init", "h.co", "ks: ", "ze: ", "re: ", "No a", "failed ", "nd task", "Cuda", "HIP ", 'E":[',
)  # fmt: skip
"""Every rule's sample holds one of these (a test says which does not: add a fragment of its words).

Four letters are enough where they begin unlike common words: the search compares the first three bytes of all at once, and
each that turns up often costs a look. The search slows down faster than the set grows (benchmarks/streaming.py measures).
"""

ERRORS = ("Error: ", "Exception: ", "OutOfResources: ")
"""Every exception's last line holds one of these; a sentence may stand behind it."""

BARE_ERRORS = ("AssertionError", "NotImplementedError")
"""Exceptions that are raised without a message."""

MEMORY = ("GiB", " MiB", "KV cache ", "out of memory")
"""Words of lines worth listing where no rule took them, so that new wordings show."""

FOREIGN = (
    ("SGLang", ("sglang", "max_total_num_tokens")),
    ("TensorRT-LLM", ("TensorRT-LLM", "[TRT-LLM]")),
    ("llama.cpp", ("llama_model_load", "llama_context:", "llama_kv_cache", "ggml_")),
    ("LMDeploy", ("lmdeploy", "[TM][INFO]")),
)
"""Words that only other engines' logs hold, to name the engine when refusing."""

BYTES = '"MESSAGE":['
"""journalctl -o json prints a line with colour or other control characters as a list of its bytes."""

FADING = (" throughput: ",)
"""Words that a busy log repeats without end and that say all they have to say on the first few lines."""


@functools.cache
def fragments() -> tuple[bytes, ...]:
    """Give what the whole log is searched for."""
    return tuple(f.encode() for f in (*FRAGMENTS, *ERRORS, *BARE_ERRORS))


@functools.cache
def words() -> tuple[bytes, ...]:
    """Give what a line must hold beside a fragment to be read."""
    said = (word for rule in RULES for word in literals(rule))
    return tuple(w.encode() for w in dict.fromkeys((*said, *MEMORY, *ERRORS, *BARE_ERRORS, BYTES)))


@functools.cache
def fading() -> tuple[bytes, ...]:
    """Give what is searched for only until it was met often enough."""
    return tuple(w.encode() for w in FADING)
