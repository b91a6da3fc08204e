# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PLC0415 - see the package's docstring: what is heavy is imported when it is needed
"""`kvflags explain`: why a deployment is treated or not, line by line; or whether an engine could be."""

from __future__ import annotations

from typing import Annotated

import typer

from kvflags.errors import UsageError
from kvflags_cli.commands import connect
from kvflags_cli.complete import deployments, flag_keys
from kvflags_cli.forms import Form
from kvflags_cli.options import AsJson, Collector, Output, example
from kvflags_cli.output import show
from kvflags_cli.parse import identity

__all__ = ["EXAMPLE", "explain"]

EXAMPLE = example(
    "kvflags explain cross-layer-blocks --deployment prod/chat/llama-70b",
    'kvflags explain --engine-args "--model /models/llama -tp 2 --attention-backend FLASH_ATTN" --vllm 0.33',
)

_Key = Annotated[
    str | None, typer.Argument(metavar="[KEY]", help="The flag.", show_default=False, autocompletion=flag_keys)
]
_Deployment = Annotated[
    str | None,
    typer.Option(
        "--deployment", metavar="ID", help="The deployment: cluster/namespace/name.", autocompletion=deployments
    ),
]
_EngineArgs = Annotated[
    str | None,
    typer.Option("--engine-args", metavar="ARGS", help="Arguments of an engine that need not run; asks no collector."),
]
_Vllm = Annotated[str | None, typer.Option("--vllm", metavar="RELEASE", help="The release it would run, such as 0.33.")]
_Assume = Annotated[
    list[str] | None,
    typer.Option(
        "--assume",
        metavar="NAME=VALUE",
        help="A fact that arguments cannot say, such as gpu or model_class; repeatable.",
    ),
]


def explain(  # noqa: PLR0917 (Typer's way to declare a command)
    key: _Key = None,
    deployment: _Deployment = None,
    engine_args: _EngineArgs = None,
    vllm: _Vllm = None,
    assume: _Assume = None,
    output: Output = Form.TABLE,
    collector: Collector = None,
    as_json: AsJson = False,
) -> None:
    """Go down the order of precedence for one deployment and show the line that decides.

    With --engine-args: whether the gate would let such an engine be treated. What is not known is a no.
    """
    if engine_args is not None:
        if key is not None or deployment is not None or vllm is None:
            raise UsageError("--engine-args goes with --vllm, and without KEY and --deployment", hint=_HINT)
        show("engine", _engine(engine_args, vllm, assume or []), output, as_json=as_json)
        return
    if key is None or deployment is None or vllm or assume:
        raise UsageError("give KEY and --deployment, or --engine-args and --vllm", hint=_HINT)
    name = identity(deployment, "--deployment")
    with connect(collector) as client:
        show("explanation", client.get("flags", key, "explain", deployment=name), output, as_json=as_json)


_HINT = "see `kvflags explain --help`"


def _engine(engine_args: str, release: str, assumptions: list[str]) -> dict[str, object]:
    from kvflags.features import CROSS_LAYER_BLOCKS
    from kvflags_cli.engine_args import facts_of

    facts = facts_of(engine_args, release, assumptions)
    met = CROSS_LAYER_BLOCKS.refusals(facts)
    return {
        "feature": CROSS_LAYER_BLOCKS.name,
        "eligible": not met,
        "layout": None if met else CROSS_LAYER_BLOCKS.layout(facts),
        "facts": facts.to_json(),
        "refusals": [
            {"code": one.code, "class": one.rule_class.value, "says": one.says, "reference": one.reference}
            for one in met
        ],
    }
