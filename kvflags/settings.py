# SPDX-License-Identifier: Apache-2.0
"""What the operator said: the engine's settings, read once from the environment. Never raises.

A malformed value becomes a problem in words and the safe default, so that a typing error never stops an engine. Every
problem begins with its code (for a setting, its name) and ": "; registrations and heartbeats carry the codes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kvflags import lab
from kvflags.environ import Reader, id_problem, problem_code, says_no
from kvflags.flags import Isolation, Role, Variant

__all__ = ["SETTINGS", "Setting", "Settings", "id_problem", "problem_code"]

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
        read = Reader(environ)
        return cls(
            collector_url=read.url("KVFLAGS_COLLECTOR_URL"),
            token=read.token("KVFLAGS_TOKEN"),
            ca_file=environ.get("OTEL_EXPORTER_OTLP_CERTIFICATE") or None,
            deployment=read.deployment(),
            generation=read.id("KVFLAGS_GENERATION", "the generation is `default`") or "default",
            role=read.choice("KVFLAGS_ROLE", tuple(Role)),
            isolation=read.choice("KVFLAGS_ISOLATION", tuple(Isolation)) or Isolation.UNKNOWN,
            disabled=not says_no(environ.get("KVFLAGS_DISABLED", "")),
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
