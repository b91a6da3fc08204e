# SPDX-License-Identifier: Apache-2.0
"""`kvflags feedback`: say how a flag did in a deployment, change it, take it back, and read what was said."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated, Any

import typer

from kvflags.errors import UsageError
from kvflags_cli.commands import connect
from kvflags_cli.forms import Form
from kvflags_cli.options import AsJson, Author, Collector, Deployment, Key, Output, Reason, example
from kvflags_cli.output import show
from kvflags_cli.parse import identity
from kvflags_cli.settings import this_author

__all__ = ["app"]

app = typer.Typer(
    help="What was measured of a flag and what people say of it.",
    rich_markup_mode=None,
    epilog=example("kvflags feedback list cross-layer-blocks"),
)


class Tag(StrEnum):
    """What it is about."""

    LATENCY = "latency"
    ERRORS = "errors"
    QUALITY = "quality"
    MEMORY = "memory"
    CRASH = "crash"


Id = Annotated[
    str, typer.Argument(metavar="ID", help="As `kvflags feedback list` shows it, such as g12.", show_default=False)
]
Sign = Annotated[
    bool | None, typer.Option("--positive/--negative", help="Whether it was for the better.", show_default=False)
]
Tags = Annotated[list[Tag] | None, typer.Option("--tag", help="What it is about. Repeat it.", show_default=False)]
_COMMENT = "What you saw, up to 10,000 bytes; - reads it from stdin."
Comment = Annotated[str, typer.Option("--comment", metavar="TEXT", help=_COMMENT)]
NewComment = Annotated[str | None, typer.Option("--comment", metavar="TEXT", help=_COMMENT, show_default=False)]
Revision = Annotated[
    int | None,
    typer.Option("--revision", min=1, help="Only while it is at this revision.", show_default=False),
]


@app.command(
    epilog=example(
        "kvflags feedback give cross-layer-blocks --deployment prod/chat/a --negative --tag latency --comment 'p99 up'"
    )
)
def give(
    *,
    key: Key,
    deployment: Deployment,
    comment: Comment,
    positive: Sign = None,
    tag: Tags = None,
    author: Author = None,
    collector: Collector = None,
    as_json: AsJson = False,
) -> None:
    """Say how a flag did in a deployment. Engines, releases and arm are filled in by the collector."""
    if positive is None:
        raise UsageError("was it for the better or for the worse?", hint="add --positive or --negative")
    body = _said(positive=positive, tag=tag, comment=comment)
    body |= {"deployment": identity(deployment, "--deployment"), "author": author or this_author()}
    with connect(collector) as client:
        show("feedback", client.post("flags", key, "feedback", body=body), as_json=as_json)


@app.command("list", epilog=example("kvflags feedback list cross-layer-blocks --json"))
def list_feedback(key: Key, output: Output = Form.TABLE, collector: Collector = None, as_json: AsJson = False) -> None:
    """List what was measured and given, the newest first; also what was withdrawn."""
    with connect(collector) as client:
        show("feedback_list", client.items("flags", key, "feedback"), output, as_json=as_json)


@app.command("show", epilog=example("kvflags feedback show cross-layer-blocks g12"))
def show_feedback(
    key: Key, name: Id, output: Output = Form.TABLE, collector: Collector = None, as_json: AsJson = False
) -> None:
    """Show one that was given: on which engines and releases, and every revision of it."""
    with connect(collector) as client:
        show("feedback", client.get("flags", key, "feedback", name), output, as_json=as_json)


@app.command(epilog=example("kvflags feedback edit cross-layer-blocks g12 --positive --reason 'it was the network'"))
def edit(
    *,
    key: Key,
    name: Id,
    reason: Reason,
    positive: Sign = None,
    tag: Tags = None,
    comment: NewComment = None,
    revision: Revision = None,
    author: Author = None,
    collector: Collector = None,
    as_json: AsJson = False,
) -> None:
    """Change what was said: sign, tags or comment. What stood there before is kept."""
    body = _said(positive=positive, tag=tag, comment=comment) | _why(reason, revision, author)
    with connect(collector) as client:
        show("feedback", client.put("flags", key, "feedback", name, body=body), as_json=as_json)


@app.command(epilog=example("kvflags feedback withdraw cross-layer-blocks g12 --reason 'wrong deployment'"))
def withdraw(
    *,
    key: Key,
    name: Id,
    reason: Reason,
    revision: Revision = None,
    author: Author = None,
    collector: Collector = None,
    as_json: AsJson = False,
) -> None:
    """Take it back: it no longer counts, and stays readable."""
    with connect(collector) as client:
        answer = client.post("flags", key, "feedback", name, "withdraw", body=_why(reason, revision, author))
    show("feedback", answer, as_json=as_json)


def _said(*, positive: bool | None, tag: list[Tag] | None, comment: str | None) -> dict[str, Any]:
    said: dict[str, Any] = {} if positive is None else {"sign": "positive" if positive else "negative"}
    if tag:
        said["tags"] = [one.value for one in tag]
    if comment is not None:
        said["comment"] = sys.stdin.read() if comment == "-" else comment
    return said


def _why(reason: str, revision: int | None, author: str | None) -> dict[str, Any]:
    return {"reason": reason, "revision": revision, "author": author or this_author()}
