# SPDX-License-Identifier: Apache-2.0
"""Views for people: one per kind of document, as Rich tables and lines. Imported only when no JSON was asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rich.console import RenderableType

from kvflags_cli.render import (
    access,
    canary,
    decision,
    feedback,
    flags,
    fleet,
    hub,
    local,
    overview,
    plan,
    report,
    rollout,
    simulation,
    telemetry,
)

__all__ = ["VIEWS"]

VIEWS: Mapping[str, Callable[[Any], Iterable[RenderableType]]] = {
    "bundle": hub.bundle,
    "canary": canary.canary,
    "changes": flags.changes,
    "config": local.config,
    "config_origins": local.config_origins,
    "database": local.database,
    "declaration": fleet.declaration,
    "deployment": fleet.deployment,
    "decision": rollout.decision,
    "decision_configmap": decision.configmap,
    "decision_helm_values": decision.helm_values,
    "deployments": fleet.deployments,
    "doctor": local.doctor,
    "engines": fleet.engines,
    "environment": local.environment,
    "exit_codes": local.exit_codes,
    "engine": local.engine,
    "explanation": rollout.explanation,
    "export": local.export,
    "flag": flags.flag,
    "flags": flags.flags,
    "feedback": feedback.feedback,
    "feedback_list": feedback.listing,
    "fleet_plan": plan.census,
    "forced": fleet.forced,
    "hub_report": hub.report,
    "history": rollout.history,
    "organisation_key": hub.organisation_key,
    "organisations": hub.organisations,
    "opted": fleet.opted,
    "receipt": hub.receipt,
    "revoked": hub.revoked,
    "reopened": fleet.reopened,
    "restarts": plan.restarts,
    "restarts_script": plan.script,
    "treated": rollout.treated,
    "validation": flags.validation,
    "report": report.report,
    "rollout": overview.overview,
    "rollout_status": rollout.status,
    "simulation": simulation.simulation,
    "telemetry": telemetry.telemetry,
    "token": access.token,
    "tokens": access.tokens,
    "topic": local.topic,
    "vacuum": local.vacuum,
}
