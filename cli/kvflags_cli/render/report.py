# SPDX-License-Identifier: Apache-2.0
"""The view of a report: the verdict in words with why and next, then what it rests on. Laid out for 80 columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from kvflags_cli.render.feedback import items
from kvflags_cli.render.flags import target
from kvflags_cli.render.numbers import count, moment, percent
from kvflags_cli.render.report_arms import arms
from kvflags_cli.render.report_effects import outcomes, strata
from kvflags_cli.render.report_fleet import alarms, layouts, notes, transfers
from kvflags_cli.render.tables import heading, pairs
from kvflags_cli.render.words import verdict

__all__ = ["report"]

Json = dict[str, Any]


def report(document: Json) -> Iterator[RenderableType]:
    """`document` is the report dict, schema kvflags.report/1."""
    yield from _verdict(document["verdict"])
    yield heading("FLAG")
    yield _flag(document)
    for words, part in (
        ("OUTCOMES", outcomes(document["outcomes"])),
        ("STRATA (time to first token)", strata(document["strata"])),
        ("ARMS", arms(document["arms"])),
        ("TRANSFERS BY DEPLOYMENT", transfers(document["deployments"])),
        ("LAYOUT BY DEPLOYMENT", layouts(document["deployments"])),
        ("NOTES", notes(document["deployments"])),
        ("ALARMS", alarms(document["alarms"])),
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


def _feedback(feedback: Json) -> RenderableType:
    counts = Text(f"{feedback['positive']} positive, {feedback['negative']} negative")
    return Group(counts, items(feedback["items"])) if feedback["items"] else counts


def _health(health: Json) -> RenderableType:
    return pairs(
        [
            ("effective among treated", percent(health["effective_share"])),
            ("mixed generations", count(health["mixed_generations"])),
            ("dropped spans", count(health["dropped_spans"])),
            ("incomplete transfers", count(health["incomplete"])),
            ("expired on prefill", count(health["expired"])),
        ]
    )
