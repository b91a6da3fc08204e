# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PLC0415 - see the package's docstring: what is heavy is imported when it is needed
"""`kvflags tokens`: who may do what. Through the collector; the first one through its database, with --db."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from kvflags_cli.commands import connect
from kvflags_cli.extras import needs_the_collector
from kvflags_cli.forms import Form
from kvflags_cli.options import AsJson, Author, Collector, Output, example
from kvflags_cli.output import say, show
from kvflags_cli.parse import duration
from kvflags_cli.settings import this_author

__all__ = ["app"]

app = typer.Typer(
    help="Make, list and revoke the tokens that a collector asks for: beyond loopback always, on it for changes.",
    rich_markup_mode=None,
    epilog=example("kvflags tokens create admin --scope admin --db sqlite:///kvflags.db"),
)


class Scope(StrEnum):
    """What a token is for."""

    INGEST = "ingest"
    READ = "read"
    OPERATE = "operate"
    ADMIN = "admin"


Name = Annotated[str, typer.Argument(metavar="NAME", help="Whose it is; changes are recorded under it.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="As `kvflags tokens list` shows it.", show_default=False)]
Scoped = Annotated[
    Scope,
    typer.Option("--scope", help="ingest: engines; read: reports; operate: changes too; admin: tokens too."),
]
Expires = Annotated[
    str | None,
    typer.Option("--expires", metavar="TIME", help="For how long it holds, such as 90d.", show_default="for ever"),
]
Direct = Annotated[
    str | None,
    typer.Option(
        "--db",
        metavar="URL",
        help="Not through a collector, but in this database, which none may be serving.",
        show_default=False,
    ),
]


@app.command(epilog=example("kvflags tokens create engines --scope ingest --expires 90d"))
def create(
    *,
    name: Name,
    scope: Scoped,
    expires: Expires = None,
    author: Author = None,
    db: Direct = None,
    collector: Collector = None,
    as_json: AsJson = False,
) -> None:
    """Make a token and show it, once. Names may repeat: make the next one before you revoke the last."""
    body = {
        "name": name,
        "scope": scope.value,
        "expires_s": None if expires is None else duration(expires, "--expires"),
        "author": author or this_author(),
    }
    if db is None:
        with connect(collector) as client:
            made = client.post("tokens", body=body)
    else:
        made = _in_database(db, body)
    show("token", made, as_json=as_json)
    say("The token is shown this once, and stored nowhere: put it into KVFLAGS_TOKEN of who it is for.")


@app.command("list", epilog=example("kvflags tokens list"))
def list_tokens(output: Output = Form.TABLE, collector: Collector = None, as_json: AsJson = False) -> None:
    """List the tokens, without their secrets; also those that have ended."""
    with connect(collector) as client:
        show("tokens", client.items("tokens"), output, as_json=as_json)


@app.command(epilog=example("kvflags tokens revoke 5f2c91d0"))
def revoke(token: Id, author: Author = None, collector: Collector = None, as_json: AsJson = False) -> None:
    """End a token for good."""
    with connect(collector) as client:
        show("token", client.post("tokens", token, "revoke", body={"author": author or this_author()}), as_json=as_json)


def _in_database(url: str, body: dict[str, Any]) -> dict[str, Any]:
    with needs_the_collector():
        from kvflags_collector.access.offline import create_token
    return create_token(url, body)
