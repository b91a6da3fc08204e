# SPDX-License-Identifier: Apache-2.0

"""`kvflags serve`: run the collector in this process. Imports the service when called."""

from __future__ import annotations

from typing import Annotated

import typer

from kvflags_cli.commands.db import needs_the_collector
from kvflags_cli.options import AsJson, Db, example
from kvflags_cli.settings import DEFAULT_DB

__all__ = ["EXAMPLE", "serve"]

EXAMPLE = example("kvflags serve", "kvflags serve --db sqlite:////var/lib/kvflags/kvflags.db --port 4318")

Host = Annotated[str, typer.Option("--host", metavar="HOST", help="The address to listen on.")]
Port = Annotated[int, typer.Option("--port", metavar="PORT", min=0, max=65535, help="The port to listen on.")]
Heartbeat = Annotated[str, typer.Option("--heartbeat", metavar="TIME", help="How often engines report.")]
StartLease = Annotated[
    str, typer.Option("--start-lease", metavar="TIME", help="How long a starting engine may take to load its weights.")
]


def serve(
    *,
    db: Db = DEFAULT_DB,
    host: Host = "127.0.0.1",
    port: Port = 4318,
    heartbeat: Heartbeat = "30s",
    start_lease: StartLease = "30m",
    as_json: AsJson = False,
) -> None:
    """Run the collector until it is stopped. A new database is created; one of another revision is refused."""
    with needs_the_collector():
        pass
    raise NotImplementedError
