# SPDX-License-Identifier: Apache-2.0
"""The change to vLLM: it applies to the release that is installed, and asks for whole rows where it should alone."""

import ast
import importlib.util
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from kvflags.features import FEATURES

FILE = Path("vllm/distributed/kv_transfer/kv_connector/v1/nixl/connector.py")
PROVEN = [
    {"backend": "FLASH_ATTN", "block_size": 16, "kv_heads_per_rank": 4, "gpu": "H100", "vllm": "0.32"},
    {"backend": "TRITON_ATTN", "block_size": 64},
]


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """`get_required_kvcache_layout` of the patched file, run by itself: nothing of vLLM is imported."""
    folder = tmp_path_factory.mktemp("tree")
    (folder / FILE).parent.mkdir(parents=True)
    # Found without importing vLLM, which takes seconds.
    installed = Path(importlib.util.find_spec("vllm").origin).parents[1] / FILE
    (folder / FILE).write_text(installed.read_text())
    change = FEATURES["cross_layer_blocks"].patch(PROVEN, "kvflags report clb --as-of 2027-01-01")
    subprocess.run(["git", "apply", "-"], cwd=folder, input=change, text=True, check=True)
    tree = ast.parse((folder / FILE).read_text())
    [found] = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == "get_required_kvcache_layout"
    ]
    found.decorator_list, found.returns = [], None
    for argument in found.args.args:
        argument.annotation = None
    names = {"logger": SimpleNamespace(info_once=lambda *_: None, warning_once=lambda *_: None)}
    exec(compile(ast.Module([found], []), str(FILE), "exec"), names)
    return names["get_required_kvcache_layout"]


def _config(*, backend="FLASH_ATTN", block=16, heads=4, pp=1, dcp=1, connector="NixlConnector", mla=False):
    return SimpleNamespace(
        model_config=SimpleNamespace(use_mla=mla, get_num_kv_heads=lambda _: heads),
        parallel_config=SimpleNamespace(pipeline_parallel_size=pp, decode_context_parallel_size=dcp),
        attention_config=SimpleNamespace(backend=backend and SimpleNamespace(name=backend)),
        cache_config=SimpleNamespace(block_size=block),
        kv_transfer_config=SimpleNamespace(kv_connector=connector),
    )


@pytest.mark.parametrize(
    ("config", "layout"),
    [
        ({}, "BHLNC"),
        ({"backend": "TRITON_ATTN", "block": 64, "heads": 1}, "BHLNC"),
        ({"block": 32}, "LBHNC"),
        ({"heads": 8}, "LBHNC"),
        ({"backend": "FLASHINFER"}, "LBHNC"),
        ({"backend": None}, "LBHNC"),
        ({"pp": 2}, "LBHNC"),
        ({"dcp": 2}, "LBHNC"),
        ({"connector": "MultiConnector"}, "LBHNC"),
        ({"mla": True}, None),
    ],
)
def test_it_asks_where_it_is_proven_and_nowhere_else(asked, config, layout):
    assert asked(None, _config(**config)) == layout


def test_what_an_engine_calls_itself_is_a_literal_and_never_code():
    change = FEATURES["cross_layer_blocks"].patch([{"backend": "x' or True or '\n+evil"}], "r")
    added = [line[1:] for line in change.splitlines() if line.startswith("+") and not line.startswith("+++")]
    assert not any("evil" in line and "backend ==" not in line for line in added)
    [line] = [line for line in added if "backend ==" in line]
    assert ast.literal_eval(ast.parse(line.strip()[1:-1], mode="eval").body.comparators[0]) == "x' or True or '\n+evil"


def test_nothing_proven_asks_for_nothing():
    assert "(False)" in FEATURES["cross_layer_blocks"].patch([{}], "r")
