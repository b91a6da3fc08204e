# SPDX-License-Identifier: Apache-2.0
"""Views of bundles, receipts, and a hub's report."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from kvflags_cli.render.numbers import ABSENT, count
from kvflags_cli.render.tables import heading, pairs, table

__all__ = ["bundle", "organisation_key", "organisations", "receipt", "report", "revoked"]

Json = dict[str, Any]


def bundle(made: Json) -> Iterable[RenderableType]:
    """All of it, as it is sent; never folded, so that what is on the screen is the document."""
    return [Text(json.dumps(made, indent=2), no_wrap=True, overflow="ignore")]


def organisation_key(one: Json) -> Iterable[RenderableType]:
    return [pairs([("public key", one["key"]), ("private key in", one["file"])])]


def receipt(one: Json) -> Iterable[RenderableType]:
    shown = ("receipt", "organisation", "feature", "state", "recorded_at")
    return [pairs([(name.replace("_", " "), one[name]) for name in shown])]


def revoked(one: Json) -> Iterable[RenderableType]:
    what = "everything, for good" if one["left"] else "1 bundle"
    return [f"Taken back from the hub: {what} (organisation {one['organisation']})."]


def organisations(items: list[Json]) -> Iterable[RenderableType]:
    columns = ("ID", "STATE", "~NAME", ">BUNDLES", ">REVOKED", "~LAST")
    shown = ("organisation", "state", "name", "bundles", "revoked", "last_at")
    rows = ([ABSENT if item[name] is None else str(item[name]) for name in shown] for item in items)
    return [table(columns, rows) if items else "Nobody sent anything yet."]


def report(found: Json) -> Iterable[RenderableType]:
    said = found["verdict"]
    yield f"{said['state'].upper()}  {said['reason']}"
    yield pairs([*(("why" if at == 0 else "", says) for at, says in enumerate(said["why"])), ("next", said["next"])])
    yield heading("EVIDENCE")
    numbers = ("organisations", "fleets", "deployments", "treated", "control")
    yield pairs([(name, count(found[name])) for name in numbers] + [("until", found["evidence_until"] or ABSENT)])
    if found["outcomes"]:
        yield heading("OUTCOMES")
        yield table(
            ("OUTCOME", ">ORGS", ">CHANGE", ">INTERVAL", ">LIMIT", "STANDING", ">LARGEST", ">WITHOUT IT"),
            map(_outcome, found["outcomes"]),
        )
    if found["strata"]:
        yield heading("STRATA")
        yield table(("~STRATUM", ">ORGS", ">TREATED", ">CHANGE", ">INTERVAL", "READY"), map(_stratum, found["strata"]))


def _outcome(one: Json) -> list[str]:
    without = one["without_largest"]
    return [
        one["outcome"].replace("_", " "),
        str(one["organisations"] + one["unchanged"]),
        *_change(one),
        one["limit"],
        one["standing"],
        ABSENT if one["largest_share"] is None else f"{one['largest_share']:.0%}",
        _percent(without["change"]) if without else ABSENT,
    ]


def _stratum(one: Json) -> list[str]:
    primary = _change(one["outcomes"][0]) if one["outcomes"] else (ABSENT, ABSENT)
    ready = "yes" if one["ready"] else "no"
    return [one["name"], str(one["organisations"]), count(one["treated"]), *primary, ready]


def _change(one: Json) -> tuple[str, str]:
    """Where nobody has a figure, nothing changed anywhere."""
    if one["change"] is None:
        return ("none", ABSENT) if one["unchanged"] else (ABSENT, ABSENT)
    return _percent(one["change"]), f"{_percent(one['low'])} to {_percent(one['high'])}"


def _percent(value: float | None) -> str:
    return "unbounded" if value is None else f"{value:+.1%}"
