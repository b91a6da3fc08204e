# SPDX-License-Identifier: Apache-2.0
"""A run of the canary: each prompt, then what it all means."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from kvflags_cli.render.numbers import ABSENT
from kvflags_cli.render.tables import heading, table

__all__ = ["canary"]

_STYLES = {"match": "green", "mismatch": "bold red", "undecided": "yellow"}


def canary(document: dict[str, Any]) -> Iterator[RenderableType]:
    yield table(
        ("PROMPT", "OUTCOME", ">TOKENS", ">MAX DELTA", "~SAYS"),
        (
            (one["name"], _outcome(one["outcome"]), str(one["compared"]), _delta(one["delta"]), one["says"])
            for one in document["prompts"]
        ),
    )
    yield heading(document["says"])
    yield Text(
        f"{document['mismatched']} of {document['compared']} prompts differ by more than a tolerance of "
    ).append(f"{document['tolerance']:g} nats; the largest difference is {_delta(document['max_delta'])}.")
    if recorded := document["recorded"]:
        yield Text(recorded["says"])


def _outcome(name: str) -> Text:
    return Text(name, style=_STYLES[name])


def _delta(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.3g}"
