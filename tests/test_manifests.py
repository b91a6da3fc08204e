# SPDX-License-Identifier: Apache-2.0
"""The manifests of docs/engines.md give engines what they need: read as an engine reads its environment."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvflags.settings import SETTINGS, Settings

PAGE = (Path(__file__).parents[1] / "docs" / "engines.md").read_text()
SHAPES = dict(re.findall(r"^## ([^\n]+)\n(?:(?!^## ).)*?^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))


def _variables(node: Any) -> Iterator[tuple[str, Any]]:
    """Every (name, value) that a manifest sets: lists of variables, maps of a ConfigMap, literals of a generator."""
    if isinstance(node, dict):
        if str(node.get("name", "")).startswith("KVFLAGS_"):
            yield node["name"], node.get("value", node.get("valueFrom"))
        yield from ((name, value) for name, value in node.items() if name.startswith("KVFLAGS_"))
        if isinstance(patch := node.get("patch"), str):
            yield from _variables(yaml.safe_load(patch))
        for below in node.values():
            yield from _variables(below)
    elif isinstance(node, list):
        for below in node:
            if isinstance(below, str) and below.startswith("KVFLAGS_"):
                name, _, value = below.partition("=")
                yield name, value
            yield from _variables(below)


def _said(text: str) -> dict[str, list[Any]]:
    said: dict[str, list[Any]] = {}
    for name, value in _variables(list(yaml.safe_load_all(text))):
        said.setdefault(name, []).append(value)
    return said


def test_every_shape_of_a_fleet_is_there():
    assert list(SHAPES) == ["Plain Kubernetes", "llm-d", "production-stack", "Dynamo"]


@pytest.mark.parametrize("shape", SHAPES)
def test_an_engine_can_read_all_of_it(shape):
    said = _said(SHAPES[shape])
    assert set(said) <= {setting.name for setting in SETTINGS}
    label = {"fieldRef": {"fieldPath": "metadata.labels['llm-d.ai/role']"}}
    roles = ["prefill", "decode"] if said["KVFLAGS_ROLE"] == [label] else said["KVFLAGS_ROLE"]
    assert roles == ["prefill", "decode"]
    for role in roles:
        read = Settings.from_environ({name: values[0] for name, values in said.items()} | {"KVFLAGS_ROLE": role})
        assert read.problems == ()
        assert (read.generation, read.role, read.isolation) == ("r41", role, "recreate")
        assert str(read.deployment).startswith("prod/")


@pytest.mark.parametrize("shape", SHAPES)
def test_both_roles_share_deployment_and_generation(shape):
    said = _said(SHAPES[shape])
    for name in ("KVFLAGS_DEPLOYMENT", "KVFLAGS_GENERATION", "KVFLAGS_ISOLATION"):
        assert len(set(said[name])) == 1
    assert "pod-template-hash" not in SHAPES[shape]
