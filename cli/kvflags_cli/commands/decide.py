# SPDX-License-Identifier: Apache-2.0
"""`kvflags decide`: a signed decision to hand out with a deployment, so that engines agree even when cut off."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from kvflags_cli.commands import connect
from kvflags_cli.options import AsJson, Collector, Deployment, Generation, Key, example
from kvflags_cli.output import show
from kvflags_cli.parse import identity

__all__ = ["EXAMPLE", "decide"]

EXAMPLE = example(
    "kvflags decide cross-layer-blocks --deployment prod/chat/llama-70b --generation r41 -o env > kvflags.env"
)


class Form(StrEnum):
    """How the decision is written."""

    ENV = "env"
    JSON = "json"


Output = Annotated[Form, typer.Option("-o", "--output", help="Lines for an environment file, or a JSON document.")]


def decide(
    *,
    key: Key,
    deployment: Deployment,
    generation: Generation,
    output: Output = Form.ENV,
    collector: Collector = None,
    as_json: AsJson = False,
) -> None:
    """Pin a generation now and print its signed decision, to be set on all of its prefill and decode engines."""
    body = {
        "deployment": identity(deployment, "--deployment"),
        "generation": identity(generation, "--generation"),
    }
    with connect(collector) as client:
        answer = client.post("flags", key, "decide", body=body)
    show("decision", answer, as_json=as_json or output is Form.JSON)
