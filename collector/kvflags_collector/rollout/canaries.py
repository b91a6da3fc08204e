# SPDX-License-Identifier: Apache-2.0
"""What canaries found: kept for every generation; a mismatch is an alarm, and condemns what is treated."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, case, func, select

from kvflags.errors import ErrorCode, NotFound
from kvflags.flags import Comparison, Variant
from kvflags_collector.feedback.document import Canaries
from kvflags_collector.rollout import pins, raising
from kvflags_collector.store import control_tables as tables
from kvflags_collector.store.feedback_tables import canaries
from kvflags_collector.times import rfc3339

__all__ = ["KIND", "MISMATCH", "counts", "mismatched", "says", "take"]

# The kind of the alarm, the tag of the feedback, and the reason of the condemnation.
KIND = "canary_mismatch"
MISMATCH = "mismatch"


def take(conn: Connection, place: tuple[str, str], found: dict[str, Any], *, author: str, now: int) -> dict[str, Any]:
    """Keep one result of a (deployment, generation), and act on it. Writes.

    Raises:
        NotFound: no engine of this deployment ever registered.
    """
    deployment, generation = place
    if not raising.is_known(conn, deployment):
        raise NotFound(
            f"no deployment {deployment!r}",
            hint="see `kvflags deployments list`",
            code=ErrorCode.UNKNOWN_DEPLOYMENT,
        )
    epoch = raising.epoch_in_force(conn, deployment, generation)
    row = {"deployment": deployment, "generation": generation, "epoch": epoch, "author": author, "recorded_us": now}
    conn.execute(canaries.insert().values(**row, **found))
    condemned = _act(conn, place, epoch, found, now) if found["outcome"] == MISMATCH else []
    return {"deployment": deployment, "generation": generation, "epoch": epoch, "recorded_at": rfc3339(now)} | {
        "condemned": condemned,
        "says": f"{generation} is condemned under {', '.join(condemned)}." if condemned else "The collector keeps it.",
    }


def says(deployment: str, generation: str, detail: dict[str, Any]) -> str:
    """The alarm in one sentence."""
    found = detail["canary"]
    by = "" if found["max_delta"] is None else f", by up to {found['max_delta']:.3g} nats"
    return (
        f"{deployment} {generation}: {found['mismatched']} of {found['compared']} prompts get other logprobs from a "
        f"fetched KV cache than from a local prefill{by}"
    )


def mismatched(conn: Connection, flag: str, as_of_us: int) -> list[str]:
    """Deployments in which an epoch of the flag that is in the comparison and treated had a mismatch. Reads."""
    own = _own(flag, as_of_us)
    query = select(tables.pins.c.deployment).where(*own, canaries.c.outcome == MISMATCH)
    query = query.where(tables.pins.c.variant == Variant.ON, tables.pins.c.comparison == Comparison.INCLUDED)
    return sorted(set(conn.scalars(query)))


def counts(conn: Connection, flag: str, as_of_us: int) -> dict[str, Canaries]:
    """By variant: deployments that a canary compared, those with a mismatch, the largest difference in nats. Reads."""
    p, c = tables.pins.c, canaries.c
    differing = case((c.outcome == MISMATCH, p.deployment))
    query = select(
        p.variant, func.count(p.deployment.distinct()), func.count(differing.distinct()), func.max(c.max_delta)
    ).where(*_own(flag, as_of_us), c.compared > 0)
    return {
        variant: {"deployments": compared, "mismatched": found, "max_delta": delta}
        for variant, compared, found, delta in conn.execute(query.group_by(p.variant).order_by(p.variant))
    }


def _own(flag: str, as_of_us: int) -> tuple[Any, ...]:
    p, c = tables.pins.c, canaries.c
    same = (p.deployment == c.deployment, p.generation == c.generation, p.epoch == c.epoch)
    return (*same, p.flag == flag, c.recorded_us <= as_of_us)


def _act(conn: Connection, place: tuple[str, str], epoch: int, found: dict[str, Any], now: int) -> list[str]:
    deployment, generation = place
    names = ("mismatched", "compared", "max_delta", "tolerance")
    cause = {"canary": {name: found[name] for name in names}}
    raising.raise_alarm(conn, KIND, deployment, generation, epoch=epoch, cause=cause, now=now)
    raising.complain(conn, KIND, deployment, generation, comment=says(deployment, generation, cause), now=now)
    p = tables.pins.c
    held = pins.open_pins(conn, p.deployment == deployment, p.generation == generation, p.variant == Variant.ON)
    return [pins.condemn(conn, pin, KIND).flag for pin in held]
