# SPDX-License-Identifier: Apache-2.0
"""`kvflags report`: the verdict, with everything it rests on."""

from __future__ import annotations

from kvflags_cli.commands import connect
from kvflags_cli.options import AsJson, Collector, Key, example
from kvflags_cli.output import show

__all__ = ["EXAMPLE", "report"]

EXAMPLE = example("kvflags report cross-layer-blocks", "kvflags report cross-layer-blocks --json | jq .data.verdict")


def report(key: Key, collector: Collector = None, as_json: AsJson = False) -> None:
    """Print the verdict on a flag with its reasons, both arms, every deployment, alarms and feedback."""
    with connect(collector) as client:
        show("report", client.get("flags", key, "report"), as_json=as_json)
