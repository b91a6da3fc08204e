# SPDX-License-Identifier: Apache-2.0
"""`kvflags deployments`: what the collector has heard of, and what an operator does to one of them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kvflags.errors import ErrorCode, NotFound
from kvflags.flags import Isolation, Variant
from kvflags_cli.commands import connect
from kvflags_cli.forms import Form
from kvflags_cli.options import AsJson, Author, Collector, Flag, Generation, Name, Output, Reason, example
from kvflags_cli.output import say, show
from kvflags_cli.parse import identity, labels
from kvflags_cli.settings import this_author

__all__ = ["app"]

app = typer.Typer(
    help="The deployments that the collector knows, and what you say of each.",
    rich_markup_mode=None,
    epilog=example("kvflags deployments list"),
)

Clear = Annotated[bool, typer.Option("--clear", help="Take it back: what is dealt counts again.")]
Stated = Annotated[
    Isolation | None,
    typer.Option("--isolation", help="What keeps its generations from being paired.", show_default=False),
]
Prefill = Annotated[int, typer.Option("--prefill", metavar="N", min=1, help="How many prefill engines it has.")]
Decode = Annotated[int, typer.Option("--decode", metavar="N", min=1, help="How many decode engines it has.")]
Labels = Annotated[
    list[str] | None, typer.Option("--label", metavar="NAME=VALUE", help="A label. Repeat it.", show_default=False)
]
Backend = Annotated[
    str | None,
    typer.Option(
        "--backend",
        metavar="NAME",
        help="The attention backend its engines choose. Waives observation; it is not compared.",
        show_default=False,
    ),
]
BlockSize = Annotated[
    int | None,
    typer.Option("--block-size", metavar="TOKENS", min=1, help="The block size, with --backend.", show_default=False),
]
Chosen = Annotated[Variant, typer.Option("--variant", help="What the generation runs.")]


@app.command("list", epilog=example("kvflags deployments list", "kvflags deployments list -o name"))
def list_deployments(output: Output = Form.TABLE, collector: Collector = None, as_json: AsJson = False) -> None:
    """List the deployments."""
    with connect(collector) as client:
        show("deployments", client.items("deployments"), output, as_json=as_json)


@app.command("show", epilog=example("kvflags deployments show prod/chat/llama-70b"))
def show_deployment(
    name: Name, output: Output = Form.TABLE, collector: Collector = None, as_json: AsJson = False
) -> None:
    """Show one deployment: its flags, generations and what was declared of it."""
    wanted = identity(name, "DEPLOYMENT")
    with connect(collector) as client:
        listed = client.items("deployments", prefix=wanted)
    found = [item for item in listed if item["deployment"] == wanted]
    if not found:
        hint = "see `kvflags deployments list`"
        raise NotFound(f"there is no deployment {name!r}", hint=hint, code=ErrorCode.UNKNOWN_DEPLOYMENT)
    show("deployment", found[0], output, as_json=as_json)


@app.command(
    epilog=example(
        "kvflags deployments declare prod/chat/llama-70b --isolation recreate --reason 'strategy: Recreate'",
        "kvflags deployments declare prod/chat/new --backend FLASH_ATTN --label tier=canary --reason 'as its sister'",
    )
)
def declare(
    *,
    name: Name,
    reason: Reason,
    isolation: Stated = None,
    prefill: Prefill = 1,
    decode: Decode = 1,
    label: Labels = None,
    backend: Backend = None,
    block_size: BlockSize = None,
    author: Author = None,
    collector: Collector = None,
    as_json: AsJson = False,
) -> None:
    """State what is true of a deployment, also before it runs. Replaces what was declared before."""
    body: dict[str, Any] = {"isolation": isolation, "prefill": prefill, "decode": decode, "labels": labels(label or ())}
    body |= {"backend": backend, "block_size": block_size, **_who(name, reason, author)}
    with connect(collector) as client:
        show("declaration", client.put("declarations", body=body), as_json=as_json)


@app.command("opt-in", epilog=example("kvflags deployments opt-in prod/chat/a --flag KEY --reason 'we want it'"))
def opt_in(
    *,
    name: Name,
    flag: Flag,
    reason: Reason,
    clear: Clear = False,
    author: Author = None,
    collector: Collector = None,
    as_json: AsJson = False,
) -> None:
    """Treat a deployment from its next generation on, where gates allow. It leaves the comparison."""
    _opt(flag, None if clear else "in", _who(name, reason, author), collector, as_json=as_json)


@app.command("opt-out", epilog=example("kvflags deployments opt-out prod/chat/a --flag KEY --reason 'not before May'"))
def opt_out(
    *,
    name: Name,
    flag: Flag,
    reason: Reason,
    clear: Clear = False,
    author: Author = None,
    collector: Collector = None,
    as_json: AsJson = False,
) -> None:
    """Never treat a deployment, also once the feature is the default. What is on is condemned."""
    _opt(flag, None if clear else "out", _who(name, reason, author), collector, as_json=as_json)


@app.command(
    epilog=example("kvflags deployments force prod/chat/a --flag KEY --generation r42 --variant on --reason 'a trial'")
)
def force(
    *,
    name: Name,
    flag: Flag,
    generation: Generation,
    variant: Chosen,
    reason: Reason,
    author: Author = None,
    collector: Collector = None,
    as_json: AsJson = False,
) -> None:
    """Pin a generation that has not started, past gates and observation. It is not compared."""
    body = _who(name, reason, author) | {"variant": variant, "generation": identity(generation, "--generation")}
    with connect(collector) as client:
        show("forced", client.post("flags", flag, "pins", body=body), as_json=as_json)


@app.command(epilog=example("kvflags deployments reopen prod/chat/a --flag KEY --generation r41 --reason 'rolling on'"))
def reopen(
    *,
    name: Name,
    flag: Flag,
    generation: Generation,
    reason: Reason,
    author: Author = None,
    collector: Collector = None,
    as_json: AsJson = False,
) -> None:
    """Let a generation be decided anew while its engines live. Until they are replaced, layouts may differ."""
    body = _who(name, reason, author) | {"generation": identity(generation, "--generation")}
    with connect(collector) as client:
        show("reopened", client.post("flags", flag, "reopen", body=body), as_json=as_json)
    say("Engines that register now are decided anew; transfers between them and the old ones can fail until then.")


def _opt(flag: str, opted: str | None, body: dict[str, Any], collector: str | None, *, as_json: bool) -> None:
    with connect(collector) as client:
        show("opted", client.put("flags", flag, "opts", body=body | {"opted": opted}), as_json=as_json)
    say(f"next: kvflags rollout status {flag}")


def _who(name: str, reason: str, author: str | None) -> dict[str, Any]:
    return {"deployment": identity(name, "DEPLOYMENT"), "reason": reason, "author": author or this_author()}
