# SPDX-License-Identifier: Apache-2.0
"""The parts of a report that go deployment by deployment: transfers, layout, notes, alarms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from kvflags_cli.render.numbers import ABSENT, amount, count, milliseconds, moment, yes_no
from kvflags_cli.render.tables import pairs, table

__all__ = ["alarms", "layouts", "notes", "transfers"]

Json = dict[str, Any]


def transfers(deployments: list[Json]) -> RenderableType | None:
    columns = ("~DEPLOYMENT", "ARM", ">TRANSFERS", ">FAILED", ">DESCR", ">POST", ">TRANSFER")
    rows = [
        (
            " ".join(_which(one)),
            one["arm"] or ABSENT,
            count(one["transfers"]),
            count(one["failed"]),
            amount(one["descriptors_per_transfer"]),
            milliseconds(one["post_ms"], "p50"),
            milliseconds(one["transfer_ms"], "p50"),
        )
        for one in deployments
    ]
    return table(columns, rows) if rows else None


def layouts(deployments: list[Json]) -> RenderableType | None:
    columns = ("~DEPLOYMENT", "VARIANT", "REQUESTED", "RESOLVED", ">REGIONS", ">LAYERS", "EFFECTIVE", "EXERCISED")
    rows = [
        (
            " ".join(_which(one)),
            one["variant"] or ABSENT,
            layout.get("requested") or ABSENT,
            layout.get("resolved") or ABSENT,
            count(layout.get("regions")),
            count(layout.get("layers")),
            yes_no(layout.get("effective")),
            _exercised(one["exercised"]),
        )
        for one in deployments
        for layout in [one["layout"] or {}]
    ]
    return table(columns, rows) if rows else None


def notes(deployments: list[Json]) -> RenderableType | None:
    rows = [(" ".join(_which(one)), note) for one in deployments for note in _notes_on(one)]
    return pairs(rows) if rows else None


def _notes_on(one: Json) -> Iterator[str]:
    """What the tables have no column for: why it is not compared, what refuses it, how it failed, what it dropped."""
    if one["excluded_because"]:
        yield f"not compared: {one['excluded_because']}"
    for refusal in one["refusals"]:
        yield f"not eligible: {refusal['says']} ({refusal['code']})"
    for kind, failures in sorted((one["errors"] or {}).items()):
        yield f"failed: {count(failures)} {kind}"
    if one["dropped"]:
        yield f"dropped: {count(one['dropped'])} spans"


def alarms(items: list[Json]) -> RenderableType | None:
    rows = [
        (Text(one["kind"], style="red"), " ".join(_which(one)), one["says"], moment(one["first_at"])) for one in items
    ]
    return table(("KIND", "~DEPLOYMENT", "~WHAT", "SINCE"), rows) if rows else None


def _which(one: Json) -> tuple[str, str]:
    epoch = one.get("epoch")
    return one["deployment"] or ABSENT, f"{one['generation']}" + (f" #{epoch}" if epoch is not None else "")


def _exercised(value: Any) -> str:  # noqa: ANN401 - a flag of older collectors, or counts by outcome
    if isinstance(value, dict):
        return count(value.get("ok"))
    return yes_no(value)
