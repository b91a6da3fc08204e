# SPDX-License-Identifier: Apache-2.0
"""How the decision travels: in `kv_connector_extra_config["kvflags"]`, pickled by vLLM to every engine core and worker.

Plain JSON, so that any launcher can carry it, and never the token. API servers that vLLM spawns build a configuration
of their own; they find what their parent decided in the environment.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from kvflags.flags import Decision, Variant

if TYPE_CHECKING:
    from vllm.config import VllmConfig

__all__ = ["ENVIRONMENT", "KEY", "Carried", "Source", "export", "get", "inherit", "put"]

KEY = "kvflags"
ENVIRONMENT = "KVFLAGS_INHERITED"


class Source(StrEnum):
    """Where the decision came from."""

    REGISTERED = "registered"
    HANDED_OUT = "handed_out"
    LAST_HEARD = "last_heard"
    FALLBACK = "fallback"
    LOCAL = "local"
    PLUGIN_NOT_LOADED = "plugin_not_loaded"
    TELEMETRY_DISABLED = "telemetry_disabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """What one process tree runs under; made in the front end, frozen from then on.

    `decision` is None where no flag applies: such an engine does what plain vLLM does and is only observed. `reason`
    says why in a word, also then. `registration` is the body that was (or would have been) sent, and so holds
    deployment, generation, role, local and facts; its id is made here, so that a worker can register later under the
    same one. `heartbeat_s` is in seconds. `problems` are codes. `url` is None where nothing is sent anywhere.
    """

    source: str
    reason: str
    registration_id: str
    decision: Decision | None = None
    registered: bool = False
    registration: Mapping[str, Any] = field(default_factory=dict)
    url: str | None = None
    heartbeat_s: float = 30.0
    problems: tuple[str, ...] = ()

    @property
    def variant(self) -> str:
        """What the engine does: `on` or `off`."""
        return self.decision.variant if self.decision else Variant.OFF

    @property
    def deployment(self) -> str | None:
        """None while unidentified."""
        return self.registration.get("deployment")

    @property
    def generation(self) -> str:
        return str(self.registration.get("generation", "default"))

    @property
    def role(self) -> str:
        """`prefill`, `decode` or `both`."""
        return str(self.registration.get("role", "both"))

    @property
    def local(self) -> str | None:
        """The operator's own setting that decided (`KVFLAGS_FORCE`, `VLLM_KV_CACHE_LAYOUT`), if one did."""
        local = self.registration.get("local")
        return str(local["source"]) if local else None

    def to_json(self) -> dict[str, Any]:
        """As it stands under `KEY`: the decision in sight, the rest beside it."""
        return {
            "decision": self.decision.to_json() if self.decision else None,
            "carried": {
                "source": self.source,
                "reason": self.reason,
                "registration_id": self.registration_id,
                "registered": self.registered,
                "registration": dict(self.registration),
                "url": self.url,
                "heartbeat_s": self.heartbeat_s,
                "problems": list(self.problems),
            },
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Carried:
        """The inverse of `to_json`. Raises KeyError, TypeError, ValueError or AttributeError for anything else."""
        decision, rest = document["decision"], dict(document["carried"])
        rest["problems"] = tuple(rest["problems"])
        return cls(decision=Decision.from_json(decision) if decision else None, **rest)


def put(vllm_config: VllmConfig, carried: Carried) -> None:
    """Write it into a VllmConfig that has a `kv_transfer_config`. Front end only, once."""
    transfer = vllm_config.kv_transfer_config
    extra = transfer.kv_connector_extra_config or {}
    # Through JSON, so that what is pickled names no class of ours, which another host may have in another release.
    plain = json.loads(json.dumps(carried.to_json()))
    # New dicts: two engines built from one dict of the caller's must not write into each other's.
    extra = {**extra, KEY: {**_ours(extra), **plain}}
    if children := extra.get("connectors"):
        # A MultiConnector makes a configuration for each of its connectors, out of what stands here for it alone.
        extra["connectors"] = [_with(child, plain) for child in children]
    transfer.kv_connector_extra_config = extra


def _with(child: Mapping[str, Any], plain: Mapping[str, Any]) -> Mapping[str, Any]:
    if not str(child.get("kv_connector")).startswith("Nixl"):
        return child
    extra = child.get("kv_connector_extra_config") or {}
    return {**child, "kv_connector_extra_config": {**extra, KEY: {**_ours(extra), **plain}}}


def get(vllm_config: VllmConfig) -> Carried | None:
    """Read it in any process; None where nobody decided (no plugin, no connector) or it cannot be read."""
    transfer = getattr(vllm_config, "kv_transfer_config", None)
    ours = _ours(getattr(transfer, "kv_connector_extra_config", None) or {})
    try:
        return Carried.from_json(ours)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _ours(extra: Mapping[str, Any]) -> Mapping[str, Any]:
    ours = extra.get(KEY)
    return ours if isinstance(ours, Mapping) else {}


def export(environ: MutableMapping[str, str], carried: Carried, pid: int) -> None:
    """Leave it for the API servers that the process `pid` is about to spawn. Called in that process."""
    environ[ENVIRONMENT] = json.dumps({**carried.to_json(), "parent": pid})


def inherit(
    environ: Mapping[str, str], parent: int, deployment: str | None, generation: str, role: str
) -> Carried | None:
    """What the process `parent` left for its API servers; None unless it is about this very engine.

    The parent's id is in it because the variable is inherited further than it is meant: an engine that a server starts
    for another purpose must take its own decision.
    """
    try:
        document = json.loads(environ.get(ENVIRONMENT, ""))
        carried = Carried.from_json(document)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    same = (carried.deployment, carried.generation, carried.role) == (deployment, generation, role)
    return carried if same and document.get("parent") == parent else None
