# SPDX-License-Identifier: Apache-2.0
"""Deployments as rows: the four facts of each, what it transferred, and what has to be replaced. Filtered and paged."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, select

from kvflags.flags import Flag, PinState
from kvflags_collector.rollout import assign, leases, pins, treated
from kvflags_collector.store import control_tables as tables
from kvflags_collector.times import SECOND, rfc3339
from kvflags_collector.web.asked import Asked

__all__ = ["members", "replacing", "table"]

_ROWS = 50
_ARMS = ("treatment", "control", "none")
# Not heard for a day: taken for gone by counts, too.
_SILENT_US = 86_400 * SECOND
_FIGURES = ("transfers", "failed", "bytes", "descriptors_per_transfer", "post_ms", "transfer_ms")


def members(conn: Connection, flag: Flag, report: Mapping[str, Any], now: int) -> list[dict[str, Any]]:
    """Every deployment, what needs a person first: the latest generation of each and where it stands now. Reads."""
    latest = {row["deployment"]: row for row in report["deployments"] if row["latest"]}
    living = _by_deployment(leases.head_count(conn, now))
    p = tables.pins.c
    condemned = pins.open_pins(conn, p.flag == flag.key, p.state == PinState.CONDEMNED)
    on = Counter(one["deployment"] for one in treated.living(conn, flag.key, now))
    d = tables.deployments.c
    heard = {name: last for name, last in conn.execute(select(d.id, d.last_seen_us))}  # noqa: C416 (rows are no pairs to mypy)
    fleet = {one.deployment: one for one in assign.fleet(conn, flag, now)}
    rows = []
    for name in sorted(latest.keys() | fleet.keys(), key=lambda one: one or ""):
        member, row, last = fleet.get(name), latest.get(name, {}), heard.get(name)
        mine = living.get(name, {})
        rows.append(
            {
                "deployment": name,
                "generation": row.get("generation"),
                "epoch": row.get("epoch"),
                "state": row.get("state"),
                "variant": row.get("variant"),
                "arm": (member.previous.arm if member and member.previous else None) or row.get("arm"),
                "excluded_because": row.get("excluded_because"),
                "assigned": bool(member and member.previous and member.previous.arm),
                "eligible": member.eligible if member else None,
                "refusals": row.get("refusals", []),
                "effective": row["layout"]["effective"] if row else None,
                "exercised": row.get("exercised"),
                "live_engines": sum(mine.values()),
                "treated_engines": on[name],
                "to_replace": sum(mine.get(pin.generation, 0) for pin in condemned if pin.deployment == name),
                "last_seen_at": rfc3339(last),
                "silent": last is not None and now - last >= _SILENT_US,
                "verdict": row.get("verdict"),
                "problems": row.get("problems", []),
                "dropped": row.get("dropped", 0),
                **{figure: row.get(figure) for figure in _FIGURES},
            }
        )
    return sorted(rows, key=_urgency)


def table(rows: Sequence[Mapping[str, Any]], asked: Asked) -> dict[str, Any]:
    """The page of those asked for: `{total, found, page, pages, items}`."""
    found = [row for row in rows if _fits(row, asked)]
    pages = max(-(-len(found) // _ROWS), 1)
    page = min(asked.page, pages)
    return {
        "total": len(rows),
        "found": len(found),
        "page": page,
        "pages": pages,
        "items": found[(page - 1) * _ROWS : page * _ROWS],
    }


def replacing(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """What still runs under a pin that was condemned."""
    mine = [row for row in rows if row["to_replace"]]
    return {"deployments": len(mine), "engines": sum(row["to_replace"] for row in mine)}


def _by_deployment(living: Mapping[tuple[str | None, str], int]) -> dict[str | None, dict[str, int]]:
    found: dict[str | None, dict[str, int]] = defaultdict(dict)
    for (deployment, generation), number in living.items():
        found[deployment][generation] = number
    return found


def _urgency(row: Mapping[str, Any]) -> tuple[bool, bool, int, str]:
    wrong = bool(row["problems"] or row["silent"] or (row["arm"] == "treatment" and row["effective"] is False))
    return (not row["to_replace"], not wrong, _ARMS.index(row["arm"] or "none"), row["deployment"] or "")


def _fits(row: Mapping[str, Any], asked: Asked) -> bool:
    return all(_conditions(row, asked))


def _conditions(row: Mapping[str, Any], asked: Asked) -> Iterator[bool]:
    yield not asked.arm or asked.arm == (row["arm"] or "none")
    yield asked.q.casefold() in (row["deployment"] or "unidentified").casefold()
