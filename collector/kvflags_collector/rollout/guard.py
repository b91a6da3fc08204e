# SPDX-License-Identifier: Apache-2.0
"""Guardrails: what may stop a rollout by itself, with the evidence that it acted on. Reads only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, func, select

from kvflags.flags import Arm, Flag
from kvflags_collector.rollout.mixed import TRANSITION
from kvflags_collector.store.control_tables import alarms, flag_revisions, opts
from kvflags_collector.store.rollup_tables import rollups_minute
from kvflags_collector.times import SECOND, from_rfc3339, rfc3339
from kvflags_collector.verdict.actions import Act

__all__ = ["Act", "Finding", "Guard", "acted", "circuit_breaker", "fresh"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A limit was passed, and what is to be done about it: to `deployment`, to `stratum`, or (neither) to the fleet.

    `interval`: the confidence interval that was judged, null where the rule has no statistics; `window`: the time that
    was looked at.
    """

    metric: str
    value: float
    limit: float
    n: int
    says: str
    act: Act
    deployment: str | None = None
    stratum: str | None = None
    interval: tuple[float, float] | None = None
    window: tuple[str | None, str | None] | None = None

    @property
    def key(self) -> tuple[str, str, str | None]:
        """What it rests on. A fleet's or stratum's is another one with each newly treated event."""
        begins, ends = self.window or (None, None)
        return self.metric, self.deployment or self.stratum or "", begins if self.deployment else ends

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


# Everything that may stop a rollout has this shape: findings of one flag at one time, from what is stored.
Guard = Callable[[Connection, Flag, int], Sequence[Finding]]


def fresh(conn: Connection, flag: Flag, found: Iterable[Finding]) -> list[Finding]:
    """Without what was acted upon before: whoever let the rollout go on since has seen it.

    What is opted out is out, and needs no second finding while its engines wait to be replaced.
    """
    found = list(found)
    if not found:
        return []
    before = {_read(one).key for one in _recorded(conn, flag.key)}
    out = set(conn.scalars(select(opts.c.deployment).where(opts.c.flag == flag.key, opts.c.opted == "out")))
    return [
        one
        for one in found
        if one.key not in before and one.deployment not in out and one.stratum not in flag.rolled_back
    ]


def acted(conn: Connection, key: str, as_of_us: int) -> set[tuple[str, str, int]]:
    """What guardrails found of deployments, and somebody had let the rollout go on after by then.

    (metric, deployment, since when in microseconds) each.
    """
    r = flag_revisions.c
    went_on = select(func.max(r.revision)).where(
        r.key == key, r.action.in_(["resume", "start"]), r.recorded_us <= as_of_us
    )
    found = map(_read, _recorded(conn, key, before=conn.scalar(went_on) or 0))
    return {
        (one.metric, one.deployment, from_rfc3339(one.window[0]))
        for one in found
        if one.deployment and one.window and one.window[0]
    }


def _recorded(conn: Connection, key: str, before: int | None = None) -> list[dict[str, Any]]:
    r = flag_revisions.c
    query = select(r.evidence).where(r.key == key, r.action.like("guardrail%")).order_by(r.revision)
    if before is not None:
        query = query.where(r.revision < before)
    return [one for evidence in conn.scalars(query) for one in evidence["findings"]]


def _read(stored: Mapping[str, Any]) -> Finding:
    pairs = {name: tuple(stored[name]) if stored[name] else None for name in ("interval", "window")}
    # Before there was `act`, what named a deployment took it out and what named none ended the rollout.
    act = Act(stored.get("act") or (Act.TAKE_OUT if stored["deployment"] else Act.ABORT))
    return Finding(**{**stored, **pairs, "act": act})


# No statistics: so many errors in two buckets in a row mean a broken deployment and not a bad minute.
_BUCKET_US = 300 * SECOND
_ERRORS, _SHARE = 50, 0.01


def circuit_breaker(conn: Connection, _: Flag, now: int) -> list[Finding]:
    """Treated deployments with 50 errors and 1 % of transfers failed in each of the last two whole 5-minute buckets.

    A deployment in transition between two epochs fails transfers for that reason, and is left out.
    """
    end = now // _BUCKET_US * _BUCKET_US
    buckets = _counts(conn, end - 2 * _BUCKET_US, end)
    spared = _in_transition(conn)
    return [
        _finding(deployment, counts, end)
        for deployment, counts in sorted(buckets.items())
        if deployment not in spared and len(counts) == 2 and all(map(_broken, counts.values()))
    ]


def _in_transition(conn: Connection) -> set[str]:
    standing = (alarms.c.kind == TRANSITION, alarms.c.ended_us.is_(None))
    return set(conn.scalars(select(alarms.c.deployment).where(*standing)))


def _counts(conn: Connection, begin: int, end: int) -> dict[str, dict[int, tuple[int, int]]]:
    """{deployment: {bucket: (transfers, failed)}} of the treatment arm."""
    m = rollups_minute.c
    query = (
        select(m.deployment, m.minute_us, func.sum(m.transfers), func.sum(m.failed))
        .where(m.minute_us >= begin, m.minute_us < end, m.arm == Arm.TREATMENT)
        .group_by(m.deployment, m.minute_us)
    )
    buckets: dict[str, dict[int, tuple[int, int]]] = defaultdict(dict)
    for deployment, minute, transfers, failed in conn.execute(query):
        bucket = minute // _BUCKET_US
        before = buckets[deployment].get(bucket, (0, 0))
        buckets[deployment][bucket] = (before[0] + int(transfers), before[1] + int(failed))
    return buckets


def _broken(counts: tuple[int, int]) -> bool:
    transfers, failed = counts
    return failed >= _ERRORS and failed >= _SHARE * transfers


def _finding(deployment: str, counts: dict[int, tuple[int, int]], end: int) -> Finding:
    transfers, failed = (sum(column) for column in zip(*counts.values(), strict=True))
    share = failed / transfers
    return Finding(
        metric="transfer_errors",
        value=share,
        limit=_SHARE,
        n=transfers,
        says=f"{failed} of {transfers} transfers failed within 10 minutes",
        act=Act.TAKE_OUT,
        deployment=deployment,
        window=(rfc3339(end - 2 * _BUCKET_US), rfc3339(end)),
    )
