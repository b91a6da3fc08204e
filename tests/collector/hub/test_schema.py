# SPDX-License-Identifier: Apache-2.0
"""The public JSON Schema of a bundle: it takes what a hub takes, and has no place for free text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bundles import bundle, key_of, signed
from jsonschema import Draft202012Validator

SCHEMA = json.loads((Path(__file__).parents[3] / "docs" / "reference" / "bundle.schema.json").read_text())


def _parts(schema: Any) -> Iterator[dict[str, Any]]:
    """Every object below that describes a value."""
    if isinstance(schema, dict):
        if "type" in schema:
            yield schema
        for below in schema.values():
            yield from _parts(below)
    elif isinstance(schema, list):
        for below in schema:
            yield from _parts(below)


def test_it_is_a_schema_and_takes_a_bundle():
    Draft202012Validator.check_schema(SCHEMA)
    Draft202012Validator(SCHEMA).validate(signed(key_of("org-0"), bundle("org-0")))


def test_every_string_comes_from_a_list_or_a_pattern_without_words():
    strings = [part for part in _parts(SCHEMA) if part["type"] == "string"]
    free = [part for part in strings if not {"enum", "const"} & part.keys() and "pattern" not in part]
    assert free == []
    patterns = {part["pattern"] for part in strings if "pattern" in part}
    # Keys, signatures and the pseudonym; a day; releases; and names of transports out of a list.
    assert len(patterns) == 7
    assert all(pattern.startswith("^") and pattern.endswith("$") for pattern in patterns)
    assert not [pattern for pattern in patterns if re.fullmatch(pattern, "acme")]


def test_every_object_is_closed_and_every_number_and_list_bounded():
    for part in _parts(SCHEMA):
        if part["type"] == "object":
            assert part["additionalProperties"] is False, part["title"]
        if part["type"] in {"integer", "number"}:
            assert {"minimum", "maximum"} <= part.keys(), part
        if part["type"] == "array":
            assert "maxItems" in part, part


@pytest.mark.parametrize(
    "change",
    [
        {"host": "gpu-7.acme.example"},
        {"deployments": 3.5},
        {"treated": "12"},
        {"made_on": "2027-1-15"},
        {"strata": [{"gpu": "acme-gpu", "treated": 9, "control": 9, "effects": []}]},
        {"architectures": [{"architecture": "AcmeForCausalLM", "deployments": 9}]},
        {"architectures": [{"architecture": "other", "deployments": 4}]},
        {"verdict": "great"},
    ],
)
def test_the_schema_and_the_hub_refuse_the_same(hub, change):
    sent = signed(key_of("org-0"), bundle("org-0") | change)
    assert not Draft202012Validator(SCHEMA).is_valid(sent)
    assert hub("POST", "/hub/bundles", sent)[0] == 400
