"""What runs in an engine's own interpreter needs nothing of this project but `live_probe`: no other folder is there."""

import subprocess
import sys
from pathlib import Path

import pytest

from live_probe.child_process import child_environment

PACKAGE = Path(__file__).resolve().parents[2] / "live_probe"
TORCH_ONLY = (
    "buffers",
    "decoder",
    "experts",
    "graphs",
    "parameters",
    "run",
    "samplers",
    "selfcheck",
    "sequence",
    "simulated",
    "storages",
)
"""Modules that import torch as they load: the interpreter asked has it where they are wanted."""
PLAIN = sorted(path.stem for path in PACKAGE.glob("*.py") if path.stem not in (*TORCH_ONLY, "__init__", "torch_child"))


@pytest.mark.parametrize("module", ["vllm_worker", "vllm_child", "vllm_extension", "cards_here"])
def test_an_entry_into_the_engines_interpreter_is_plain(module):
    assert module in PLAIN


def test_an_interpreter_without_our_packages_imports_the_probe(tmp_path):
    """As another environment sees it: the standard library, and the one folder that is linked for it."""
    script = f"import importlib\nfor name in {PLAIN!r}: importlib.import_module('live_probe.' + name)"
    environment = {**child_environment(tmp_path), "PYTHONPATH": str(tmp_path / "import")}
    ended = subprocess.run(
        [sys.executable, "-S", "-c", script], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
