# SPDX-License-Identifier: Apache-2.0
"""`kvflags explain`: why a deployment is treated or not, line by line."""

from __future__ import annotations

from kvflags_cli.commands import connect
from kvflags_cli.options import AsJson, Collector, Deployment, Key, example
from kvflags_cli.output import show
from kvflags_cli.parse import identity

__all__ = ["EXAMPLE", "explain"]

EXAMPLE = example("kvflags explain cross-layer-blocks --deployment prod/chat/llama-70b")


def explain(key: Key, deployment: Deployment, collector: Collector = None, as_json: AsJson = False) -> None:
    """Go down the order of precedence for one deployment and show the line that decides."""
    name = identity(deployment, "--deployment")
    with connect(collector) as client:
        show("explanation", client.get("flags", key, "explain", deployment=name), as_json=as_json)
