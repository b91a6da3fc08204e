# SPDX-License-Identifier: Apache-2.0
"""The collector's settings: what `kvflags serve` was told, checked once."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from kvflags.errors import UsageError
from kvflags_collector.access.scopes import Scope
from kvflags_collector.logs import FORMATS, LEVELS
from kvflags_collector.rollout.leases import Timing
from kvflags_collector.store.retention import LEAST, Retention
from kvflags_collector.webhook.send import Target

__all__ = ["DEFAULT_DB", "Settings", "database_url", "grpc_port", "is_loopback"]

DEFAULT_DB = "sqlite:///kvflags.db"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One collector. Times in seconds. `grpc_port`: None for no gRPC.

    tls_cert, tls_key: PEM files; both or none. insecure_bind: serve beyond this machine without TLS, on purpose.
    require_tokens: ask for tokens on loopback too, for a collector behind a proxy.

    local_admin: on loopback a change needs a token, too, and an admin's of this name is left where the command line of
    the same user finds it. None: nothing on loopback needs one, as in an application that is embedded.

    hub: take bundles of other fleets, from anybody who signs them.

    drain_s: for how long what is being answered may go on after SIGTERM; a second signal ends it at once.

    webhook: who is told what happens to rollouts; None: nobody.

    retention: how long raw spans, minutes and hours are kept.

    UsageError for values out of range, and for an address beyond loopback without TLS or `insecure_bind`: whoever is on
    the way would read the tokens, and change the rollout with one.
    """

    db: str = DEFAULT_DB
    host: str = "127.0.0.1"
    port: int = 4318
    grpc_port: int | None = None
    heartbeat_s: float = 30.0
    start_lease_s: float = 1800.0
    tls_cert: str | None = None
    tls_key: str | None = None
    insecure_bind: bool = False
    require_tokens: bool = False
    local_admin: str | None = None
    hub: bool = False
    webhook: Target | None = None
    drain_s: float = 5.0
    log_format: str = "text"
    log_level: str = "warning"
    retention: Retention = field(default_factory=Retention)

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise UsageError(f"{self.port} is not a port", hint="--port takes 1 to 65535, or 0 for any free one")
        if self.grpc_port is not None and not 0 <= self.grpc_port <= 65_535:
            raise UsageError(
                f"{self.grpc_port} is not a port", hint="--grpc-port takes 1 to 65535, or 0 for any free one"
            )
        if not 0.1 <= self.heartbeat_s <= 3600:
            raise UsageError("heartbeats lie 0.1 to 3600 seconds apart", hint="the default is --heartbeat 30")
        if not self.heartbeat_s <= self.start_lease_s <= 86_400:
            raise UsageError("a starting lease lasts one heartbeat to a day", hint="the default is --start-lease 1800")
        if not 0 <= self.drain_s <= 300:
            raise UsageError("draining takes 0 to 300 seconds", hint="the default is --drain 5")
        self._check_logging()
        self._check_retention()
        if (self.tls_cert is None) != (self.tls_key is None):
            raise UsageError(
                "TLS needs a certificate and its key", hint="give both --tls-cert and --tls-key, or neither"
            )
        if not (self.tls_cert or self.insecure_bind or is_loopback(self.host)):
            raise UsageError(
                f"{self.host} is reachable from other machines, and without TLS tokens are read on the way",
                hint="give --tls-cert and --tls-key, bind to 127.0.0.1, or say --insecure-bind where a proxy encrypts",
            )

    def _check_logging(self) -> None:
        if self.log_format not in FORMATS:
            raise UsageError(f"no log format {self.log_format!r}", hint=f"--log-format takes {' or '.join(FORMATS)}")
        if self.log_level not in LEVELS:
            raise UsageError(f"no log level {self.log_level!r}", hint=f"--log-level takes {', '.join(LEVELS)}")

    def _check_retention(self) -> None:
        for name in asdict(LEAST):
            if getattr(self.retention, name) < getattr(LEAST, name):
                raise UsageError(
                    f"--keep-{name} takes {getattr(LEAST, name)} days at least",
                    hint="spans come up to 7 days late, and events are judged on the weeks around them",
                )

    @property
    def tokenless(self) -> frozenset[Scope]:
        """The scopes that need no token: beyond this machine none."""
        if self.require_tokens or not is_loopback(self.host):
            return frozenset()
        return frozenset(Scope) if self.local_admin is None else frozenset({Scope.INGEST, Scope.READ})

    @property
    def timing(self) -> Timing:
        return Timing(heartbeat_s=self.heartbeat_s, start_lease_s=self.start_lease_s)


def database_url(given: str | None, environ: Mapping[str, str]) -> str:
    """`--db`, else `KVFLAGS_DB`, else `kvflags.db` in the working directory."""
    return given or environ.get("KVFLAGS_DB") or DEFAULT_DB


def grpc_port(given: str | None, port: int) -> int | None:
    """`--grpc-port`: a port, or `off`; not given, 4317 beside an HTTP port of 4318 (the pair OTLP names), else off.

    UsageError for anything else.
    """
    if given is None:
        return 4317 if port == 4318 else None
    if given == "off":
        return None
    if not given.isdecimal():
        raise UsageError(f"--grpc-port: {given!r} is not a port", hint="1 to 65535, 0 for any free one, or off")
    return int(given)


def is_loopback(host: str) -> bool:
    """Whether an address (an IPv6 one also in brackets) or a name means this machine and nothing else."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
