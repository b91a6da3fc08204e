# SPDX-License-Identifier: Apache-2.0
"""A signed decision as the files that deliver it. The same pin gives the same text, so that git sees no change."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.text import Text

__all__ = ["configmap", "helm_values"]

Json = dict[str, Any]


def helm_values(document: Json) -> Iterator[RenderableType]:
    """`env` as charts of vLLM take it: a list of names and values."""
    yield "env:"
    for name, value in _variables(document):
        yield f"  - name: {name}"
        yield _whole(f"    value: {json.dumps(value)}")


def configmap(document: Json) -> Iterator[RenderableType]:
    """For `envFrom` on the prefill and the decode workload alike."""
    yield "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: kvflags-decision\ndata:"
    for name, value in _variables(document):
        yield _whole(f"  {name}: {json.dumps(value)}")


def _variables(document: Json) -> tuple[tuple[str, str], ...]:
    return ("KVFLAGS_DECISION", document["signed"]), ("KVFLAGS_DECISION_KEY", document["key"])


def _whole(line: str) -> Text:
    return Text(line, no_wrap=True, overflow="ignore")
