# SPDX-License-Identifier: Apache-2.0
"""The page of what one person said of a flag, schema `kvflags.page.feedback/1`, and of each change of that."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection

from kvflags_collector.feedback import given
from kvflags_collector.rollout import flags
from kvflags_collector.times import rfc3339
from kvflags_collector.web.views.version import version

__all__ = ["SCHEMA", "page"]

SCHEMA = "kvflags.page.feedback/1"
_SAID = (
    *("id", "flag", "deployment", "sign", "tags", "comment", "author", "recorded_at", "generation", "variant", "arm"),
    *("stratum", "releases", "revision", "changed_by", "changed_at", "withdrawn", "revisions"),
)


def page(conn: Connection, key: str, name: str, now: int) -> dict[str, Any]:
    """The document. NotFound for an unknown flag, and for what nobody gave: what was measured cannot be changed."""
    found = given.show(conn, flags.get(conn, key).key, name)
    said = {field: found[field] for field in _SAID}
    return {
        "schema": SCHEMA,
        "generated_at": rfc3339(now),
        "said": said,
        "cli": {} if said["withdrawn"] else _commands(said),
        "version": version(said),
    }


def _commands(said: Mapping[str, Any]) -> dict[str, str]:
    """The same from a shell: `{edit, withdraw}`."""
    which = f"{shlex.quote(said['flag'])} {said['id']}"
    why = f"--revision {said['revision']} --reason '...'"
    tags = "".join(f" --tag {tag}" for tag in said["tags"])
    return {
        "edit": f"kvflags feedback edit {which} --{said['sign']}{tags} --comment '...' {why}",
        "withdraw": f"kvflags feedback withdraw {which} {why}",
    }
