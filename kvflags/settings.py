# SPDX-License-Identifier: Apache-2.0
"""What the operator said: the engine's settings, read once from the environment. Never raises.

A malformed value becomes a problem in words and the safe default, so that a typing error never stops an engine. Every
problem begins with its code (for a setting, its name) and ": "; registrations and heartbeats carry the codes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import urlsplit

from kvflags import lab
from kvflags.flags import Isolation, Role, Variant

__all__ = ["SETTINGS", "Setting", "Settings", "id_problem", "problem_code"]

# A Kubernetes name is at most 253 bytes, and ids appear in URLs, labels and primary keys.
_MAX_ID_BYTES = 253

# How long a start may wait for the collector. Loading weights takes tens of seconds: 2 more go unseen, a hang does not.
_WAIT_S = 2.0
_MAX_WAIT_S = 86_400.0


class Setting(NamedTuple):
    """One row of the settings page: name, what holds when it is not set, meaning."""

    name: str
    default: str
    meaning: str


SETTINGS: tuple[Setting, ...] = (
    Setting(
        "KVFLAGS_COLLECTOR_URL", "", "Address of the collector, `http://HOST:4318`. Unset: nothing is sent anywhere"
    ),
    Setting("KVFLAGS_TOKEN", "", "Token with the scope `ingest`. Not needed on loopback"),
    Setting(
        "KVFLAGS_DEPLOYMENT",
        "`POD_NAMESPACE/APP_LABEL`, with `CLUSTER_NAME/` before it, where set",
        "cluster/namespace/name, the same on the prefill and decode engines that exchange KV. Without one an engine is"
        " observed and never switched",
    ),
    Setting(
        "KVFLAGS_GENERATION",
        "default",
        "Label of the release, the same on prefill and decode engines that may be paired",
    ),
    Setting(
        "KVFLAGS_ROLE", "from `kv_role`", "`prefill`, `decode` or `both`: what an engine with `kv_both` is used for"
    ),
    Setting(
        "KVFLAGS_ISOLATION",
        "unknown",
        "`recreate`, `bluegreen` or `router`: what keeps generations from being paired. Unknown: never switched on",
    ),
    Setting("KVFLAGS_DISABLED", "", "`1` switches kvflags off altogether: plain vLLM"),
    Setting(
        "KVFLAGS_FORCE", "", "`on` or `off`: this engine's own choice, over the collector's; leaves the comparison"
    ),
    Setting(
        "KVFLAGS_ON_UNREACHABLE",
        "off",
        "`off`: wait 2 s for the collector; `wait:SECONDS`: that long. Then the handed-out or last-heard decision",
    ),
    Setting("KVFLAGS_DECISION", "", "A signed decision, from `kvflags decide`, for engines that may be cut off"),
    Setting("KVFLAGS_DECISION_KEY", "", "The collector's public key that `KVFLAGS_DECISION` is checked with"),
    Setting(
        "KVFLAGS_STATE_DIR",
        "`$XDG_STATE_HOME/kvflags` or `~/.local/state/kvflags`",
        "Where the last decision and the marks of unclean stops are kept",
    ),
    Setting("KVFLAGS_STRICT", "", "`1` raises our own errors instead of falling back: for our tests"),
    Setting(lab.SETTING, "", "`1` lets the CPU backend accept the layout: for the demo and the tests"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one process. `wait_s` is in seconds; None stands for "not set", or set to something unusable.

    `kv_cache_layout` is vLLM's own VLLM_KV_CACHE_LAYOUT; `nixl_telemetry` is False where NIXL_TELEMETRY_ENABLE says no.
    """

    collector_url: str | None = None
    token: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    deployment: str | None = None
    generation: str = "default"
    role: str | None = None
    isolation: str = Isolation.UNKNOWN
    disabled: bool = False
    force: str | None = None
    wait_s: float = _WAIT_S
    decision: str | None = None
    decision_key: str | None = None
    state_dir: str | None = None
    kv_cache_layout: str | None = None
    nixl_telemetry: bool = True
    lab: bool = False
    problems: tuple[str, ...] = ()

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Settings:
        """Read everything. The order of problems is that of the table."""
        read = _Reader(environ)
        return cls(
            collector_url=read.url("KVFLAGS_COLLECTOR_URL"),
            token=read.token("KVFLAGS_TOKEN"),
            ca_file=environ.get("OTEL_EXPORTER_OTLP_CERTIFICATE") or None,
            deployment=read.deployment(),
            generation=read.id("KVFLAGS_GENERATION", "the generation is `default`") or "default",
            role=read.choice("KVFLAGS_ROLE", tuple(Role)),
            isolation=read.choice("KVFLAGS_ISOLATION", tuple(Isolation)) or Isolation.UNKNOWN,
            disabled=not _says_no(environ.get("KVFLAGS_DISABLED", "")),
            force=read.choice("KVFLAGS_FORCE", tuple(Variant)),
            wait_s=read.wait("KVFLAGS_ON_UNREACHABLE"),
            decision=environ.get("KVFLAGS_DECISION", "").strip() or None,
            decision_key=environ.get("KVFLAGS_DECISION_KEY", "").strip() or None,
            state_dir=read.state_dir("KVFLAGS_STATE_DIR"),
            kv_cache_layout=environ.get("VLLM_KV_CACHE_LAYOUT") or None,
            nixl_telemetry=not _says_no(environ.get("NIXL_TELEMETRY_ENABLE") or "1"),
            lab=lab.active(environ),
            problems=tuple(read.problems),
        )


def id_problem(value: str) -> str:
    """Why `value` cannot name a deployment or a generation; empty when it can. Collector and CLI ask here too."""
    if not value.strip():
        return "is empty"
    if not value.isprintable() or value != value.strip():
        return "has control characters, or white space at an end"
    if len(value.encode()) > _MAX_ID_BYTES:
        return f"is longer than {_MAX_ID_BYTES} bytes"
    return ""


def problem_code(problem: str) -> str:
    """The part of a problem that goes over the wire."""
    return problem.partition(": ")[0]


def _says_no(value: str) -> bool:
    return value.strip().lower() in {"", "0", "false", "no", "off"}


class _Reader:
    """Reads one setting at a time and collects what is wrong with them."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.problems: list[str] = []

    def wrong(self, name: str, says: str, hint: str) -> None:
        self.problems.append(f"{name}: {says}; hint: {hint}")

    def choice(self, name: str, allowed: tuple[str, ...]) -> str | None:
        value = self._environ.get(name, "").strip().lower()
        if value in allowed:
            return str(value)
        if value:
            self.wrong(name, f"{value[:40]!r} is ignored", f"set it to {', '.join(allowed)}, or not at all")
        return None

    def id(self, name: str, otherwise: str) -> str | None:
        value = self._environ.get(name)
        if value is None:
            return None
        if wrong := id_problem(value):
            self.wrong(name, f"it {wrong}", f"give 1 to {_MAX_ID_BYTES} printable bytes; until then {otherwise}")
            return None
        return value

    def deployment(self) -> str | None:
        if "KVFLAGS_DEPLOYMENT" in self._environ:
            return self.id("KVFLAGS_DEPLOYMENT", "this engine is observed as unidentified")
        namespace, app = self._environ.get("POD_NAMESPACE"), self._environ.get("APP_LABEL")
        if not namespace or not app:
            return None
        named = "/".join(part for part in (self._environ.get("CLUSTER_NAME"), namespace, app) if part)
        return None if id_problem(named) else named

    def url(self, name: str) -> str | None:
        value = self._environ.get(name, "").strip().rstrip("/")
        if value and not _is_address(value):
            # The value is not repeated: it may hold a password.
            self.wrong(
                name, "it is not an address", "write http://HOST:PORT or https://HOST, the token in KVFLAGS_TOKEN"
            )
            return None
        return value or None

    def token(self, name: str) -> str | None:
        # Files of secrets tend to end in a line feed, which would break the header they are sent in.
        value = self._environ.get(name, "").strip()
        if value and not (value.isascii() and value.isprintable() and " " not in value):
            self.wrong(name, "it has characters that no token has", "give the token that the collector was given")
            return None
        return value or None

    def wait(self, name: str) -> float:
        value = self._environ.get(name, "").strip().lower()
        if value in {"", "off"}:
            return _WAIT_S
        kind, _, number = value.partition(":")
        seconds = _number(number)
        if kind == "wait" and seconds is not None and 0 <= seconds <= _MAX_WAIT_S:
            return seconds
        self.wrong(name, f"{value[:40]!r} is ignored", "set it to off or wait:SECONDS, SECONDS at most 86400")
        return _WAIT_S

    def state_dir(self, name: str) -> str | None:
        home, state = self._environ.get("HOME", ""), self._environ.get("XDG_STATE_HOME", "")
        value = self._environ.get(name, "")
        if value.startswith("~/"):
            value = home + value[1:]
        if value and not _is_absolute(value):
            self.wrong(name, "it is not an absolute path", "give a directory that the engine can write to")
        for folder in (value, f"{state}/kvflags" if state else "", f"{home}/.local/state/kvflags" if home else ""):
            if _is_absolute(folder):
                return folder
        return None


def _is_absolute(path: str) -> bool:
    return path.startswith("/") and "\0" not in path


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _is_address(value: str) -> bool:
    try:
        parts = urlsplit(value)
        port_is_fine = parts.port is None or parts.port > 0
    except ValueError:
        return False
    extras = parts.username or parts.password or parts.query or parts.fragment
    plain = value.isascii() and value.isprintable() and " " not in value
    return parts.scheme in {"http", "https"} and bool(parts.hostname) and port_is_fine and not extras and plain
