"""Length, dtype, stages, and the sources of a config."""

from __future__ import annotations

import json

import pytest

from reconstruct.planner import catalogue
from reconstruct.planner.config import layer_specs, plan_kv_cache
from reconstruct.planner.config_sources import UnreadableConfig, cache_folder, find_config
from reconstruct.planner.config_stages import stage_sizes
from reconstruct.planner.errors import Unsupported, WouldNotStart
from tests.reconstruct.planner import configs
from tests.reconstruct.planner.config_cases import launch


def _length(config, version="0.32.0", **settings):
    return layer_specs(config, launch(version, **{"max_model_len": None, **settings})).launch.max_model_len


@pytest.mark.parametrize(
    ("rope", "version", "length"),
    [
        (None, "0.32.0", 32768),
        ({"rope_type": "linear", "factor": 4.0}, "0.32.0", 131072),
        ({"rope_type": "llama3", "factor": 8.0}, "0.32.0", 32768),
        ({"rope_type": "llama3", "factor": 8.0}, "0.5.5", 32768),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192}, "0.28.0", 32768),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}, "0.28.0", 131072),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}, "0.32.0", 32768),
        ({"type": "longrope", "factor": 32.0}, "0.32.0", 4096),
        ({"type": "longrope", "factor": 32.0}, "0.10.2", 32768),
    ],
)
def test_rope_scaling_by_release(rope, version, length):
    """config/model.py _get_and_verify_max_len of the release."""
    config = {
        **configs.LLAMA_8B,
        "max_position_embeddings": 32768,
        "rope_scaling": rope,
        "original_max_position_embeddings": 4096,
    }
    assert _length(config, version) == length


def test_more_than_the_model_supports_is_refused():
    """The engine needs VLLM_ALLOW_LONG_MAX_MODEL_LEN for that."""
    with pytest.raises(WouldNotStart, match="131072"):
        _length(configs.LLAMA_8B, max_model_len=131073)


def test_a_length_of_minus_one_fits_the_memory():
    """Auto-fit starts from the model's own length and ends at what the memory holds, a whole number of blocks."""
    plan = plan_kv_cache(configs.LLAMA_8B, launch(max_model_len=-1), 2_000_000_000)
    assert plan.max_model_len == (2_000_000_000 // 2_097_152 - 1) * 16


@pytest.mark.parametrize(
    ("stated", "runner", "version", "dtype"),
    [
        ("float32", "auto", "0.32.0", "bfloat16"),
        ("float32", "pooling", "0.32.0", "float16"),
        ("float32", "auto", "0.8.5", "float16"),
        ("float16", "auto", "0.32.0", "float16"),
    ],
)
def test_a_float32_checkpoint_is_cast(stated, runner, version, dtype):
    """config/model.py _resolve_auto_dtype."""
    stages = layer_specs({**configs.LLAMA_8B, "torch_dtype": stated}, launch(version, runner=runner)).stages
    assert {spec.dtype for spec in stages[0]} == {dtype}


@pytest.mark.parametrize(
    ("layers", "stages", "version", "sizes"),
    [
        (61, 4, "0.32.0", (15, 15, 16, 15)),
        (61, 4, "0.7.3", (15, 15, 15, 16)),
        (62, 4, "0.32.0", (15, 16, 16, 15)),
        (8, 4, "0.32.0", (2, 2, 2, 2)),
        (7, 4, "0.32.0", (2, 2, 2, 1)),
    ],
)
def test_layers_are_dealt_to_stages(layers, stages, version, sizes):
    """distributed/utils.py get_pp_indices."""
    assert stage_sizes(layers, stages, tuple(int(part) for part in version.split("."))) == sizes


def test_the_draft_stands_on_the_last_stage():
    """61 layers over two stages, and the module on the second."""
    speculation = {"method": "mtp", "num_speculative_tokens": 1}
    stages = layer_specs(configs.DEEPSEEK_V3, launch(pipeline_parallel_size=2, speculative_config=speculation)).stages
    assert [len(stage) for stage in stages] == [31, 31]


def test_more_stages_than_layers_are_refused():
    """Every stage needs a layer."""
    with pytest.raises(WouldNotStart, match="stages"):
        stage_sizes(3, 4, (0, 32))


@pytest.mark.parametrize(("ranks", "dcp"), [(8, 2), (16, 4), (4, 3)])
def test_context_parallelism_needs_more_ranks_than_key_heads(ranks, dcp):
    """Eight ranks for eight key heads leave nothing to share; 16 allow 2, not 4."""
    with pytest.raises(WouldNotStart):
        layer_specs(configs.LLAMA_8B, launch(tensor_parallel_size=ranks, decode_context_parallel_size=dcp))


def test_every_catalogue_entry_plans_or_says_why():
    """On the newest release known to have them all."""
    refused = [model for model in catalogue.known_ids() if not _plans(model)]
    assert all("NVFP4" in model and "GLM-5" in model for model in refused)
    assert len(catalogue.known_ids()) > 200


def _plans(model):
    try:
        return layer_specs(catalogue.find(model), launch(dtype="bfloat16", max_model_len=None)) is not None
    except WouldNotStart:
        return False


def test_the_catalogue_matches_letter_by_letter():
    """No similar name will do."""
    assert catalogue.find("meta-llama/Llama-3.1-8B-Instruct")["num_hidden_layers"] == 32
    assert catalogue.find("meta-llama/llama-3.1-8b-instruct") is None
    assert catalogue.find("someone/Llama-3.1-8B-Instruct") is None


def test_a_given_file_or_folder_comes_first(tmp_path, monkeypatch):
    """--config FILE or DIR, whatever the catalogue says."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    (tmp_path / "config.json").write_text(json.dumps(configs.QWEN_NEXT), encoding="utf-8")
    for given in (tmp_path, tmp_path / "config.json"):
        found = find_config("meta-llama/Llama-3.1-8B", given)
        assert (found.source, found.config["model_type"]) == ("given", "qwen3_next")


def test_the_local_cache_is_looked_up_by_exact_id(tmp_path, monkeypatch):
    """refs/main names the snapshot."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    folder = tmp_path / "models--acme--thing"
    for commit, layers in (("aaa", 1), ("bbb", 2)):
        (folder / "snapshots" / commit).mkdir(parents=True)
        (folder / "snapshots" / commit / "config.json").write_text(json.dumps({"n": layers}), encoding="utf-8")
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("aaa\n", encoding="utf-8")
    found = find_config("acme/thing")
    assert (found.source, found.config) == ("cache", {"n": 1})
    assert find_config("acme/other") is None


def test_the_catalogue_comes_last(tmp_path, monkeypatch):
    """Without a file and without a download."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert find_config("facebook/opt-125m").source == "catalogue"


def test_the_cache_folder_follows_the_environment(tmp_path, monkeypatch):
    """HF_HUB_CACHE before HF_HOME before the user's cache folder."""
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "hub"
    monkeypatch.delenv("HF_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "huggingface" / "hub"


@pytest.mark.parametrize("content", ["[1, 2]", "{", "", "[" * 500_000 + "]" * 500_000])
def test_an_unreadable_config_says_so(tmp_path, content):
    """Not JSON, no mapping, or deeper than any reader goes."""
    path = tmp_path / "config.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UnreadableConfig, match=r"config\.json"):
        find_config("any/model", path)
    with pytest.raises(UnreadableConfig, match="missing"):
        find_config("any/model", tmp_path / "missing")


@pytest.mark.parametrize(
    "fields", [{"model_type": "llama", "num_hidden_layers": 10**9}, {"model_type": "gpt2", "n_layer": 10**9}]
)
def test_a_number_of_layers_beyond_any_model_is_refused(fields):
    """Each layer is laid out: a slip must not take the host's memory."""
    config = {"hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 512, **fields}
    with pytest.raises(Unsupported, match="layers"):
        layer_specs(config, launch("0.33.0"))


def test_fetching_without_the_extra_says_what_to_install(tmp_path, monkeypatch):
    """The extra is called hub."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    with pytest.raises(Unsupported, match=r"kvforensics\[hub\]"):
        find_config("acme/thing", fetch=True)
