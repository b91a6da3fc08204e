# SPDX-License-Identifier: Apache-2.0
"""The view of a report: the verdict in words with why and next, then what it rests on. Laid out for 80 columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from kvflags_cli.render.flags import target
from kvflags_cli.render.numbers import ABSENT, amount, count, milliseconds, moment, percent, size, yes_no
from kvflags_cli.render.tables import heading, pairs, table
from kvflags_cli.render.words import verdict

__all__ = ["report"]

Json = dict[str, Any]


def report(document: Json) -> Iterator[RenderableType]:
    """`document` is the report dict, schema kvflags.report/1."""
    yield from _verdict(document["verdict"])
    yield heading("FLAG")
    yield _flag(document)
    for words, part in (
        ("ARMS", _arms(document["arms"])),
        ("TRANSFERS BY DEPLOYMENT", _transfers(document["deployments"])),
        ("LAYOUT BY DEPLOYMENT", _layouts(document["deployments"])),
        ("NOTES", _notes(document["deployments"])),
        ("ALARMS", _alarms(document["alarms"])),
        ("FEEDBACK", _feedback(document["feedback"])),
        ("DATA HEALTH", _health(document["data_health"])),
    ):
        if part is not None:
            yield heading(words)
            yield part


def _verdict(one: Json) -> Iterator[RenderableType]:
    yield Text.assemble(verdict(one["state"]), f"  {one['reason']}")
    yield pairs([*(("why" if n == 0 else "", says) for n, says in enumerate(one["why"])), ("next", one["next"])])


def _flag(document: Json) -> RenderableType:
    flag = document["flag"]
    return pairs(
        [
            ("flag", f"{flag['key']} ({flag['feature']})"),
            ("phase", f"{flag['phase']}, revision {flag['revision']}"),
            ("target", target(flag["target"])),
            ("generated", moment(document["generated_at"])),
            ("fresh as of", moment(document["fresh_as_of"])),
        ]
    )


# The arms stand beside each other, one measure a line: that is how they are compared.
_MEASURES: tuple[tuple[str, Callable[[Json], str]], ...] = (
    ("deployments", lambda arm: count(arm["deployments"])),
    ("transfers", lambda arm: count(arm["transfers"])),
    ("failed", lambda arm: count(arm["failed"])),
    ("bytes", lambda arm: size(arm["bytes"])),
    ("descriptors per transfer", lambda arm: amount(arm["descriptors_per_transfer"])),
    ("blocks per transfer", lambda arm: amount(arm["blocks_per_transfer"])),
    ("post time mean", lambda arm: _time(arm, "post_ms", "mean")),
    ("post time p50", lambda arm: _time(arm, "post_ms", "p50")),
    ("post time p99", lambda arm: _time(arm, "post_ms", "p99")),
    ("transfer time mean", lambda arm: _time(arm, "transfer_ms", "mean")),
    ("transfer time p50", lambda arm: _time(arm, "transfer_ms", "p50")),
    ("transfer time p99", lambda arm: _time(arm, "transfer_ms", "p99")),
)


def _arms(arms: list[Json]) -> RenderableType | None:
    if not arms:
        return None
    kinds = sorted({kind for arm in arms for kind in arm["errors"] or {}})
    errors = [(f"  {kind}", *(_failures(arm, kind) for arm in arms)) for kind in kinds]
    rows = [(name, *(read(arm) for arm in arms)) for name, read in _MEASURES]
    after_failed = 1 + [name for name, _ in _MEASURES].index("failed")
    rows[after_failed:after_failed] = errors
    return table(("", *(f">{(arm['arm'] or 'no arm').upper()}" for arm in arms)), rows)


def _failures(arm: Json, kind: str) -> str:
    # A kind that did not occur is 0 only where something was transferred.
    return ABSENT if arm["transfers"] is None else count((arm["errors"] or {}).get(kind, 0))


def _transfers(deployments: list[Json]) -> RenderableType | None:
    columns = ("~DEPLOYMENT", "ARM", ">TRANSFERS", ">FAILED", ">DESCR", ">POST", ">TRANSFER")
    rows = [
        (
            " ".join(_which(one)),
            one["arm"] or ABSENT,
            count(one["transfers"]),
            count(one["failed"]),
            amount(one["descriptors_per_transfer"]),
            _time(one, "post_ms", "p50"),
            _time(one, "transfer_ms", "p50"),
        )
        for one in deployments
    ]
    return table(columns, rows) if rows else None


def _layouts(deployments: list[Json]) -> RenderableType | None:
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


def _notes(deployments: list[Json]) -> RenderableType | None:
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


def _alarms(alarms: list[Json]) -> RenderableType | None:
    rows = [
        (Text(one["kind"], style="red"), " ".join(_which(one)), one["says"], moment(one["first_at"])) for one in alarms
    ]
    return table(("KIND", "~DEPLOYMENT", "~WHAT", "SINCE"), rows) if rows else None


def _feedback(feedback: Json) -> RenderableType:
    counts = Text(f"{feedback['positive']} positive, {feedback['negative']} negative")
    rows = [
        (
            one["sign"],
            one["source"],
            one.get("deployment") or ABSENT,
            one.get("tag") or ABSENT,
            one.get("comment") or ABSENT,
        )
        for one in feedback["items"]
    ]
    return Group(counts, table(("SIGN", "SOURCE", "~DEPLOYMENT", "TAG", "~COMMENT"), rows)) if rows else counts


def _health(health: Json) -> RenderableType:
    return pairs(
        [
            ("effective among treated", percent(health["effective_share"])),
            ("mixed generations", count(health["mixed_generations"])),
            ("dropped spans", count(health["dropped_spans"])),
            ("incomplete transfers", count(health["incomplete"])),
        ]
    )


def _which(one: Json) -> tuple[str, str]:
    epoch = one.get("epoch")
    return one["deployment"] or ABSENT, f"{one['generation']}" + (f" #{epoch}" if epoch is not None else "")


def _time(one: Json, name: str, statistic: str) -> str:
    return milliseconds((one[name] or {}).get(statistic))


def _exercised(value: Any) -> str:  # noqa: ANN401 - a flag of older collectors, or counts by outcome
    if isinstance(value, dict):
        return count(value.get("ok"))
    return yes_no(value)
