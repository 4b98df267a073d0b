"""What is masked in foreign text, and what must stay readable."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvforensics.report.redaction import clean, quoted, quoted_line, redact
from parsers.record import Record

MASKED = [
    ("/home/alice/models/x", "/home/***/models/x"),
    ("model='/Users/bob/llama', dtype", "model='/Users/***/llama', dtype"),
    ("/data/home/carol/m", "/data/home/***/m"),
    (r"C:\Users\Dave Smith\models\x", r"C:\Users\***\models\x"),
    (r"'c:\\Users\\dave\\x'", r"'c:\\Users\\***\\x'"),
    ("D:/Users/dave", "D:/Users/***"),
    ("at 10.12.0.7:29500", "at ***:29500"),
    ("distributed_init_method=tcp://10.1.2.3:45123", "distributed_init_method=tcp://***:45123"),
    ("connect fe80::1ff:fe23:4567:890a now", "connect *** now"),
    ("2001:db8:0:0:0:0:2:1", "***"),
    ("tcp://[2001:db8::1]:29500", "tcp://***:29500"),
    ("HF_TOKEN=hf_abcdefghijklmnop", "HF_TOKEN=***"),
    ("using hf_abcdefghijklmnop here", "using *** here"),
    ("OPENAI_API_KEY: 'sk-proj-abcdefghijkl'", "OPENAI_API_KEY: ***"),
    ("'api_key': ['secret one', 'b'], 'port': 1", "'api_key': ***, 'port': 1"),
    ("--api-key s3cr3t --port 1", "--api-key *** --port 1"),
    ("Authorization: Bearer abc.def-123", "Authorization: Bearer ***"),
    ("password=hunter2, x", "password=***, x"),
    ("AKIAIOSFODNN7EXAMPLE", "***"),
    ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIi.abc", "***"),
    ("https://me:pw@proxy.example.com/x", "https://***@proxy.example.com/x"),
    ("mail alice@example.co.uk now", "mail *** now"),
    ("GET http://inference-3.example.com:8000/v1", "GET http://***:8000/v1"),
    ("hostname=gpu-node-17, rank=0", "hostname=***, rank=0"),
    ("master_addr='gpu17.cluster'", "master_addr='***'"),
    ("on ip-10-0-3-4.ec2.internal up", "on *** up"),
    ("gpu17.lab.internal: start", "***: start"),
]

KEPT = [
    "Qwen/Qwen3-30B-A3B",
    "/root/.cache/huggingface/hub/models--Qwen",
    "http://localhost:8000",
    "http://0.0.0.0:8000 and 127.0.0.1",
    "https://huggingface.co/meta-llama",
    "vLLM 0.6.6.post1, torch 2.7.1",
    "version 0.9.0.1",
    "max_num_batched_tokens=8192, kv_cache_tokens: 100",
    "GPU KV cache size: 151,632 tokens",
    "token=None, hf_token: null",
    "c10::Error in std::vector at 12:34:56",
    "tokenizer='x', eos_token_id=2",
    "Maximum concurrency for 131,072 tokens per request: 1.16x",
    "[gpu_worker.py:298] Available KV cache memory: 13.88 GiB",
]


@pytest.mark.parametrize(("text", "masked"), MASKED)
def test_what_tells_of_someone_is_masked(text: str, masked: str) -> None:
    assert redact(text) == masked


@pytest.mark.parametrize("text", KEPT)
def test_what_tells_of_nobody_stays(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize("text", [text for text, _ in MASKED] + KEPT)
def test_masking_twice_changes_nothing(text: str) -> None:
    assert redact(redact(text)) == redact(text)


@pytest.mark.parametrize("text", [text for text, _ in MASKED] + KEPT)
def test_a_mask_can_be_as_long_as_what_it_hides(text: str) -> None:
    """The same is masked, and everything else stands where it stood."""
    drawn = redact(text, same_length=True)
    assert len(drawn) == len(text)
    assert re.sub(r"\*+", "***", drawn) == re.sub(r"\*+", "***", redact(text))
    assert all(now in {before, "*"} for before, now in zip(text, drawn, strict=True))


@pytest.mark.parametrize(
    ("text", "prefixed", "shown"),
    [
        ("def456ghi --port 8000 GiB", False, "*** --port 8000 GiB"),
        ("def456ghi', 'max_model_len': 8192", False, "***', 'max_model_len': 8192"),
        ("def456ghi --port 8000 GiB", True, "def456ghi --port 8000 GiB"),
        ("Available KV cache memory: 3 GiB", False, "Available KV cache memory: 3 GiB"),
        ("gpu_memory_utilization=0.95, x", False, "gpu_memory_utilization=0.95, x"),
        ("131072 tokens per request", False, "131072 tokens per request"),
    ],
)
def test_the_rest_of_a_key_is_masked_where_a_line_may_go_on(text: str, *, prefixed: bool, shown: str) -> None:
    assert quoted_line(Record(2, text, prefixed), mask=True) == shown
    assert quoted_line(Record(2, text, prefixed), mask=False) == text


@given(st.text(min_size=1, alphabet=st.characters(categories=["Lu", "Ll", "Nd"])), st.text(max_size=20))
def test_no_user_of_a_home_folder_is_left(user: str, rest: str) -> None:
    """Whatever follows, the name right after /home/ is gone."""
    assert redact(f"/home/{user}/{rest}").startswith("/home/***")


def test_clean_takes_out_what_nobody_sees() -> None:
    assert clean("a\x1b[31mb\tc\u202ed\udc80\x9b\u2028e") == "a?[31mb c?d?? e"
    assert clean("日本 é █") == "日本 é █"


@given(st.text())
def test_quoted_is_one_short_printable_line(text: str) -> None:
    """Nothing in foreign text can break out of its line."""
    shown = quoted(text, mask=True, most=40)
    assert shown.isprintable()
    assert len(shown) <= 40


def test_quoted_can_leave_names_in() -> None:
    assert quoted(" /home/alice/x\n", mask=False) == "/home/alice/x"
    assert quoted("x" * 50, mask=False, most=10) == "xxxxxxxxx…"
