# SPDX-License-Identifier: Apache-2.0
"""What the engines of a generation say of themselves, together: the layout, what it was used for, why it is refused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, Integer, RowMapping, cast, func, select

from kvflags.features import Feature
from kvflags.flags import Facts
from kvflags.telemetry.attributes import SPAN_NAME
from kvflags_collector.judge.generations import Generation
from kvflags_collector.store.telemetry_tables import spans

__all__ = ["dropped", "exercised", "in_words", "leave_out", "look", "problems", "refused"]

# How far back spans are asked where heartbeats cannot tell. Every rank of every transfer sends one.
_RECENT_NS = 3600 * 10**9


def look(conn: Connection, found: Sequence[Generation], now_us: int) -> None:
    """Fill in the `layout` of each: requested, resolved, regions, layers, effective."""
    for one in found:
        one.layout = _together(one)
    # With several ranks the heartbeat of rank 0 does not know about the others, but the spans of all do.
    unknown = [one for one in found if one.latest and one.layout["effective"] is None]
    told = _told_by_spans(conn, unknown, now_us) if unknown else {}
    for one in unknown:
        one.layout["effective"] = told.get((one.deployment, one.generation))


def leave_out(found: Iterable[Generation]) -> None:
    """Fill in that nothing is known of the `layout` of any: what engines say has no history."""
    for one in found:
        one.layout = _together(one)


def in_words(shape: dict[str, Any]) -> str:
    """What was asked for and what came of it."""
    asked = f"asked for {shape['requested']}" if shape["requested"] else "asked for no layout"
    came = f"vLLM settled on {shape['resolved']}" if shape["resolved"] else "what vLLM settled on is not known"
    regions = f", {shape['regions']} regions for {shape['layers']} layers" if shape["regions"] is not None else ""
    return f"{asked}, {came}{regions}"


def exercised(one: Generation) -> dict[str, int] | None:
    """Transfers that the engines counted themselves; None where none heartbeat."""
    return {name: sum(engine[name] for engine in one.engines) for name in ("ok", "errors")} if one.engines else None


def dropped(one: Generation) -> int:
    """Spans that the engines could not send."""
    by_rank_0: int = sum(engine["dropped_spans"] for engine in one.engines)
    return by_rank_0 + one.told.dropped_spans


def problems(one: Generation) -> set[str]:
    """The codes that its engines report."""
    return {problem for engine in one.engines for problem in engine["problems"]}


def refused(one: Generation, feature: Feature) -> list[dict[str, str]]:
    """Every rule of the gate that any of its engines meets, in words."""
    every = [met for engine in one.engines for met in feature.refusals(Facts.from_json(engine["facts"]))]
    return [{"code": code, "says": says} for code, says in {met.code: met.says for met in every}.items()]


def _together(one: Generation) -> dict[str, Any]:
    """Names that differ between engines are all given; numbers that differ are null."""
    values = {
        name: sorted({engine[name] for engine in one.engines if engine[name] is not None})
        for name in ("requested", "resolved", "regions", "layers")
    }
    return {
        **{name: " and ".join(values[name]) or None for name in ("requested", "resolved")},
        **{name: values[name][0] if len(values[name]) == 1 else None for name in ("regions", "layers")},
        "effective": _all_true(_effective(one, engine) for engine in one.engines),
    }


def _effective(one: Generation, engine: RowMapping) -> bool | None:
    """As rank 0 says in its heartbeat; with several ranks it does not know, and the others say it in events."""
    said: bool | None = engine["effective"]
    return one.told.every_rank(engine["engine_id"], engine["ranks"]) if said is None else said


def _all_true(values: Iterable[bool | None]) -> bool | None:
    """False as soon as one is; true only if all are; else not known."""
    given = list(values)
    if False in given:
        return False
    return True if given and None not in given else None


def _told_by_spans(conn: Connection, asked: Sequence[Generation], now_us: int) -> dict[tuple[str, str], bool]:
    c = spans.c
    query = (
        select(c.deployment, c.generation, func.min(cast(c.effective, Integer)))
        .where(c.start_ns >= now_us * 1000 - _RECENT_NS, c.name == SPAN_NAME, c.effective.is_not(None))
        .where(c.deployment.in_({one.deployment for one in asked}))
        .group_by(c.deployment, c.generation)
    )
    return {(deployment, generation): bool(least) for deployment, generation, least in conn.execute(query)}
