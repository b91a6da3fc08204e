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
    "kvflags decide cross-layer-blocks --deployment prod/chat/llama-70b --generation r41 -o env > kvflags.env",
    "kvflags decide cross-layer-blocks --deployment prod/chat/llama-70b --generation r41 -o helm-values",
)


class Form(StrEnum):
    """How the decision is written."""

    ENV = "env"
    HELM_VALUES = "helm-values"
    CONFIGMAP = "configmap"
    JSON = "json"


Output = Annotated[Form, typer.Option("-o", "--output", help="An environment file, Helm values, a ConfigMap, or JSON.")]


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
    kind = {Form.HELM_VALUES: "decision_helm_values", Form.CONFIGMAP: "decision_configmap"}.get(output, "decision")
    show(kind, answer, as_json=as_json or output is Form.JSON)
