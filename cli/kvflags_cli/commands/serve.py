# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PLC0415 - see the package's docstring: what is heavy is imported when it is needed

"""`kvflags serve`: run the collector in this process. Imports the service when called."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from kvflags_cli.extras import needs_the_collector
from kvflags_cli.options import AsJson, Db, example
from kvflags_cli.output import show
from kvflags_cli.parse import duration
from kvflags_cli.serve_file import settings_from
from kvflags_cli.settings import DEFAULT_DB, this_person

__all__ = ["EXAMPLE", "serve"]

_DAY_S = 86_400

EXAMPLE = example("kvflags serve", "kvflags serve --db sqlite:////var/lib/kvflags/kvflags.db --port 4318")

Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Settings: a YAML mapping of these options. Environment and command line go before it.",
        callback=settings_from,
        is_eager=True,
        show_default=False,
    ),
]
Host = Annotated[str, typer.Option("--host", metavar="HOST", help="The address to listen on.")]
Port = Annotated[
    int, typer.Option("--port", metavar="PORT", min=0, max=65535, help="The port to listen on; 0: any that is free.")
]
GrpcPort = Annotated[
    str | None,
    typer.Option(
        "--grpc-port",
        metavar="PORT|off",
        help="The port for OTLP/gRPC; by default 4317 beside the HTTP port 4318, else off.",
        show_default=False,
    ),
]
Heartbeat = Annotated[str, typer.Option("--heartbeat", metavar="TIME", help="How often engines report.")]
StartLease = Annotated[
    str, typer.Option("--start-lease", metavar="TIME", help="How long a starting engine may take to load its weights.")
]


Cert = Annotated[
    str | None,
    typer.Option("--tls-cert", metavar="FILE", help="The certificate chain, PEM; with --tls-key.", show_default=False),
]
TlsKey = Annotated[
    str | None, typer.Option("--tls-key", metavar="FILE", help="The certificate's key, PEM.", show_default=False)
]
Drain = Annotated[
    str,
    typer.Option("--drain", metavar="TIME", help="How long what is being answered may go on after SIGTERM."),
]
KeepRaw = Annotated[str, typer.Option("--keep-raw", metavar="TIME", help="How long spans are kept; 9d at least.")]
KeepMinutes = Annotated[
    str, typer.Option("--keep-minutes", metavar="TIME", help="How long roll-ups by the minute and events are kept.")
]
KeepHours = Annotated[
    str,
    typer.Option("--keep-hours", metavar="TIME", help="How long those by the hour are kept; 90d at least. Days stay."),
]
LogFormat = Annotated[str, typer.Option("--log-format", metavar="text|json", help="How the log is written, to stderr.")]
LogLevel = Annotated[
    str, typer.Option("--log-level", metavar="LEVEL", help="debug, info (each refusal too), warning or error.")
]
Insecure = Annotated[
    bool,
    typer.Option("--insecure-bind", help="Listen beyond this machine without TLS: a proxy or a mesh encrypts."),
]
RequireTokens = Annotated[
    bool, typer.Option("--require-tokens", help="Ask for tokens on loopback too: for a collector behind a proxy.")
]
Webhook = Annotated[
    str | None,
    typer.Option(
        "--webhook",
        metavar="URL",
        help="Tell this address of steps, automatic actions, approvals and replacements; signed with "
        "KVFLAGS_WEBHOOK_SECRET. See docs/webhook.md.",
        show_default=False,
    ),
]
Hub = Annotated[
    bool, typer.Option("--hub", help="Take signed bundles of other fleets, without a token: be a hub. See docs/hub.md.")
]


def serve(
    *,
    config: Config = None,  # noqa: ARG001 - its callback takes it in
    db: Db = DEFAULT_DB,
    host: Host = "127.0.0.1",
    port: Port = 4318,
    grpc_port: GrpcPort = None,
    heartbeat: Heartbeat = "30s",
    start_lease: StartLease = "30m",
    tls_cert: Cert = None,
    tls_key: TlsKey = None,
    insecure_bind: Insecure = False,
    require_tokens: RequireTokens = False,
    hub: Hub = False,
    webhook: Webhook = None,
    drain: Drain = "5s",
    keep_raw: KeepRaw = "15d",
    keep_minutes: KeepMinutes = "90d",
    keep_hours: KeepHours = "730d",
    log_format: LogFormat = "text",
    log_level: LogLevel = "warning",
    as_json: AsJson = False,
) -> None:
    """Run the collector until it is stopped. A new database is created, an older one upgraded.

    On loopback engines and readers need no token. Changes need the admin's: it is left in a file for this user alone,
    where the command line finds it.

    One line on stdout says when it is ready, and where. `kvflags config show --origin` says what it would go by.
    """
    with needs_the_collector():
        from kvflags_collector.serve import serve as run
        from kvflags_collector.settings import Settings
        from kvflags_collector.settings import grpc_port as resolved
        from kvflags_collector.store.retention import Retention
        from kvflags_collector.webhook.send import Target
    settings = Settings(
        db=db,
        host=host,
        port=port,
        grpc_port=resolved(grpc_port, port),
        heartbeat_s=duration(heartbeat, "--heartbeat"),
        start_lease_s=duration(start_lease, "--start-lease"),
        tls_cert=tls_cert,
        tls_key=tls_key,
        insecure_bind=insecure_bind,
        require_tokens=require_tokens,
        local_admin=this_person(),
        hub=hub,
        webhook=Target(webhook, os.environ.get("KVFLAGS_WEBHOOK_SECRET", "")) if webhook else None,
        drain_s=duration(drain, "--drain"),
        retention=Retention(
            raw=duration(keep_raw, "--keep-raw") / _DAY_S,
            minutes=duration(keep_minutes, "--keep-minutes") / _DAY_S,
            hours=duration(keep_hours, "--keep-hours") / _DAY_S,
        ),
        log_format=log_format,
        log_level=log_level,
    )
    # What the service says goes to stderr where stdout belongs to the one document, which is written at the end.
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        run(settings)
    if as_json:
        show("serve", {"state": "stopped"}, as_json=True)
