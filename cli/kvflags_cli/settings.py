# SPDX-License-Identifier: Apache-2.0
"""Where the command line gets its settings from: the option, else the environment, else the default."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from urllib.parse import urlsplit

from kvflags import local_token
from kvflags.errors import UsageError
from kvflags.local_token import LocalToken
from kvflags.settings import Setting

__all__ = [
    "DEFAULT_COLLECTOR",
    "DEFAULT_DB",
    "VARIABLES",
    "Connection",
    "connection",
    "hub",
    "own",
    "this_author",
    "this_person",
]

DEFAULT_COLLECTOR = "http://127.0.0.1:4318"
DEFAULT_DB = "sqlite:///kvflags.db"

# What the command line itself reads; the settings of engines are declared in kvflags.settings.
VARIABLES: tuple[Setting, ...] = (
    Setting("KVFLAGS_COLLECTOR_URL", DEFAULT_COLLECTOR, "The collector to talk to; `--collector` goes before it"),
    Setting(
        "KVFLAGS_TOKEN",
        "",
        "The token sent to the collector; else, on loopback, the admin's that `serve` left in the folder for state",
    ),
    Setting("KVFLAGS_DB", DEFAULT_DB, "The database of `serve` and `db`; `--db` goes before it"),
    Setting(
        "KVFLAGS_SHARE", "", "`on`: `kvflags feedback submit` may send. DO_NOT_TRACK and vLLM's own forms outrank it"
    ),
    Setting(
        "KVFLAGS_ORGANISATION_KEY",
        "`$XDG_CONFIG_HOME/kvflags/organisation.key` or `~/.config/kvflags/organisation.key`",
        "The file with the private key that bundles are signed with; made on first use, for its owner alone",
    ),
    Setting("KVFLAGS_WEBHOOK_SECRET", "", "What `serve --webhook` signs with; 16 bytes at least"),
    Setting("KVFLAGS_STRICT", "", "`1` shows a traceback where kvflags itself is at fault"),
    Setting("NO_COLOR", "", "Set to anything: no colours"),
)


@dataclass(frozen=True, slots=True)
class Connection:
    """One collector as it was named. `origin` says by what, for messages: an option, a variable or the default.

    hub: whether it is that of others. local: what a collector of this machine left for us, where it was looked for.
    """

    url: str
    token: str
    origin: str
    hub: bool = False
    local: LocalToken | None = field(default=None, compare=False)

    @property
    def loopback(self) -> bool:
        """Whether the collector is on this machine, where a proxy of the environment has no business."""
        return _is_loopback(self.url)


def connection(option: str | None, environ: Mapping[str, str] = os.environ) -> Connection:
    """The collector to talk to. Raises UsageError when its address is not an http(s) URL."""
    url, origin = _address(option, environ)
    if wrong := _wrong_with(url):
        # The value is not repeated: it may hold a password.
        raise UsageError(f"{origin}: {wrong}", hint=f"give an address such as {DEFAULT_COLLECTOR}")
    url = url.rstrip("/")
    token = environ.get("KVFLAGS_TOKEN", "").strip()
    return Connection(url, token, origin) if token else own(url, origin, environ)


def own(url: str, origin: str, environ: Mapping[str, str] = os.environ) -> Connection:
    """The collector at this address, with the token that it left for us if it is on this machine."""
    where = local_token.place(_port(url), environ) if _is_loopback(url) else None
    local = local_token.read(where) if where else None
    return Connection(url, local.value if local else "", origin, local=local)


def hub(address: str) -> Connection:
    """The hub that --to names, asked without a token: ours is for our own collector. Raises UsageError."""
    if wrong := _wrong_with(address):
        raise UsageError(f"--to: {wrong}", hint="give the hub's address, such as https://hub.example")
    return Connection(address.rstrip("/"), "", "--to", hub=True)


def this_author(environ: Mapping[str, str] = os.environ) -> str | None:
    """user@host: who a change is recorded under when --author does not say. None with a token: its name says it."""
    return None if environ.get("KVFLAGS_TOKEN", "").strip() else this_person()


def this_person() -> str:
    """user@host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # A container may run under a number that no passwd entry belongs to.
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def _address(option: str | None, environ: Mapping[str, str]) -> tuple[str, str]:
    if option is not None:
        return option, "--collector"
    variable = environ.get("KVFLAGS_COLLECTOR_URL")
    return (variable, "KVFLAGS_COLLECTOR_URL") if variable else (DEFAULT_COLLECTOR, "the default")


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _port(url: str) -> int:
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme == "https" else 80)


def _wrong_with(url: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not url.isprintable() or " " in url:
        return "it is not a collector's address"
    if parts.username or parts.password:
        return "an address holds no user name or password; the token goes into KVFLAGS_TOKEN"
    return ""
