# SPDX-License-Identifier: Apache-2.0
"""Flags kept as files: applied, compared without changing anything, put away."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from sqlalchemy import Connection

from kvflags.errors import UsageError
from kvflags_collector.api.once import Once
from kvflags_collector.api.schemas.flags import Aim, Apply, FlagFile
from kvflags_collector.api.schemas.signed import Change
from kvflags_collector.rollout import flags, spec

__all__ = ["router"]

router = APIRouter(prefix="/api/v1/flags", tags=["flags"])


class _DryRun(Exception):
    """Carries what would have been answered out of the transaction that must not commit."""

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__()
        self.answer = answer


@router.put("/{key}")
def apply(key: str, body: Apply, once: Once) -> dict[str, Any]:
    """Make a flag as its file says, or, dry, say what would change; the same refusals either way."""
    if body.file.key != key:
        raise UsageError(f"the file is about {body.file.key!r}", hint=f"PUT /api/v1/flags/{body.file.key}")

    def act(conn: Connection, now: int) -> dict[str, Any]:
        who: dict[str, Any] = {"author": body.author, "reason": body.reason, "revision": body.revision or once.if_match}
        diff = spec.apply(conn, key, body.file.feature, _said(body.file), **who, now=now)
        answer = {"key": key, "dry_run": body.dry_run, "diff": diff, "revision": flags.get(conn, key).revision}
        if body.dry_run:
            raise _DryRun(answer)
        return answer

    try:
        return once(act)
    except _DryRun as dry:
        return dry.answer


@router.post("/{key}/archive")
def archive(key: str, body: Change, once: Once) -> dict[str, Any]:
    """Put an ended flag away; its feature is free for another."""
    who: dict[str, Any] = {"author": body.author, "reason": body.reason, "revision": body.revision or once.if_match}
    return once(lambda conn, now: flags.shown(conn, spec.archive(conn, key, **who, now=now).key, now))


def _said(file: FlagFile) -> dict[str, Any]:
    """The file in the flag's own units."""
    plain = file.model_dump(exclude={"key", "feature", "target", "overrides", "enrolment_percent", "holdback_percent"})
    return plain | {
        "target": file.target and _target(file.target),
        "overrides": {backend: _target(aim) for backend, aim in file.overrides.items()},
        "enrolment": flags.target(file.enrolment_percent, None).share,
        "holdback": flags.target(file.holdback_percent, None).share,
    }


def _target(aim: Aim) -> dict[str, Any]:
    return flags.target(aim.percent, aim.count).to_json()
