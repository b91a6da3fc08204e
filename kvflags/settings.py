# SPDX-License-Identifier: Apache-2.0
"""What the operator said: the engine's settings, read once from the environment. Never raises.

A malformed value becomes a problem in words and the safe default, so that a typing error never stops an engine. Every
problem begins with its code (for a setting, its name) and ": "; registrations and heartbeats carry the codes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePosixPath
from typing import NamedTuple

from kvflags import lab
from kvflags.environ import Reader, id_problem, problem_code, says_no
from kvflags.flags import Isolation, Role, Variant

__all__ = ["SETTINGS", "Setting", "Settings", "Telemetry", "id_problem", "problem_code"]

# How long a start may wait for the collector. Loading weights takes tens of seconds: 2 more go unseen, a hang does not.
_WAIT_S = 2.0


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
        "KVFLAGS_TELEMETRY",
        "on",
        "`on`: sent to the collector; `local`: kept in the folder for state, nothing is sent or asked, with or without"
        " a collector; `off`: as `KVFLAGS_DISABLED`. Any other word is `local`",
    ),
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
        "Where the last decision, the marks of unclean stops and what was sent last are kept",
    ),
    Setting("KVFLAGS_STRICT", "", "`1` raises our own errors instead of falling back: for our tests"),
    Setting(lab.SETTING, "", "`1` lets the CPU backend accept the layout: for the demo and the tests"),
)


class Telemetry(StrEnum):
    """How far what is measured goes: nowhere (nothing is), no further than this machine, to the collector."""

    OFF = "off"
    LOCAL = "local"
    ON = "on"


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
    telemetry: str = Telemetry.ON
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
        read = Reader(environ)
        telemetry = _telemetry(read, environ)
        return cls(
            collector_url=read.url("KVFLAGS_COLLECTOR_URL"),
            token=read.token("KVFLAGS_TOKEN"),
            ca_file=environ.get("OTEL_EXPORTER_OTLP_CERTIFICATE") or None,
            deployment=read.deployment(),
            generation=read.id("KVFLAGS_GENERATION", "the generation is `default`") or "default",
            role=read.choice("KVFLAGS_ROLE", tuple(Role)),
            isolation=read.choice("KVFLAGS_ISOLATION", tuple(Isolation)) or Isolation.UNKNOWN,
            disabled=telemetry is Telemetry.OFF or not says_no(environ.get("KVFLAGS_DISABLED", "")),
            telemetry=telemetry,
            force=read.choice("KVFLAGS_FORCE", tuple(Variant)),
            wait_s=read.wait("KVFLAGS_ON_UNREACHABLE", _WAIT_S),
            decision=environ.get("KVFLAGS_DECISION", "").strip() or None,
            decision_key=environ.get("KVFLAGS_DECISION_KEY", "").strip() or None,
            state_dir=read.state_dir("KVFLAGS_STATE_DIR"),
            kv_cache_layout=environ.get("VLLM_KV_CACHE_LAYOUT") or None,
            nixl_telemetry=not says_no(environ.get("NIXL_TELEMETRY_ENABLE") or "1"),
            lab=lab.active(environ),
            problems=tuple(read.problems),
        )

    @property
    def asks(self) -> str | None:
        """The collector that this engine talks to, if it talks to one."""
        return None if self.disabled or self.telemetry != Telemetry.ON else self.collector_url

    @property
    def destination(self) -> str | None:
        """Where what is measured goes: the collector's address, a `file:` address on this machine, or nowhere."""
        if self.disabled or self.telemetry == Telemetry.ON:
            return self.asks
        return (PurePosixPath(self.state_dir) / "local").as_uri() if self.state_dir else None


def _telemetry(read: Reader, environ: Mapping[str, str]) -> Telemetry:
    name = "KVFLAGS_TELEMETRY"
    value = environ.get(name, "").strip().lower()
    if value in {"", Telemetry.ON}:
        return Telemetry.ON
    if says_no(value):
        return Telemetry.OFF
    if value != Telemetry.LOCAL:
        # Whoever sets it wants less than everything. Of the two that send nothing this one still follows the decision
        # last heard, so that prefill and decode go on agreeing.
        read.wrong(name, f"{value[:40]!r} is taken for local", "set it to on, local or off, or not at all")
    return Telemetry.LOCAL
