# SPDX-License-Identifier: Apache-2.0
"""The view of a report: the verdict in words with why and next, then what it rests on. Laid out for 80 columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from kvflags_cli.render.feedback import items
from kvflags_cli.render.flags import target
from kvflags_cli.render.graduation import expiry
from kvflags_cli.render.numbers import ABSENT, count, moment, percent
from kvflags_cli.render.report_arms import arms
from kvflags_cli.render.report_effects import outcomes, strata
from kvflags_cli.render.report_fleet import alarms, layouts, notes, transfers
from kvflags_cli.render.tables import heading, pairs, table
from kvflags_cli.render.words import verdict
from kvflags_cli.render.written.sections import Section, sections

__all__ = ["report"]

Json = dict[str, Any]

_BEFORE = ("Evidence", "Still needed", "Declared criteria")
_AFTER = ("Positive and negative", "Coverage", "Failures by kind", "Restart cost", "Predicate of a default", "Way back")


def report(document: Json) -> Iterator[RenderableType]:
    """`document` is the report dict, schema kvflags.report/1."""
    # An older collector sends none of what is laid out in sections.
    further = list(sections(document)) if "evidence" in document else []
    yield from _verdict(document["verdict"])
    yield heading("FLAG")
    yield _flag(document)
    for words, part in (
        *_laid_out(further, _BEFORE),
        ("OUTCOMES", outcomes(document["outcomes"])),
        ("STRATA (time to first token)", strata(document["strata"])),
        *_laid_out(further, _AFTER),
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


def _laid_out(further: Iterable[Section], titles: Iterable[str]) -> Iterator[tuple[str, RenderableType]]:
    """As `sections` lays them out for every format; what has a table of its own here is left out."""
    for one in further:
        if one.title in titles:
            lines = [Text(line) for line in one.lines]
            # What may be long is folded; a number keeps its place.
            drawn = [table([f"~{name.upper()}" for name in one.columns], one.rows)] if one.rows else []
            yield one.title.upper(), Group(*lines, *drawn)


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
            *([("expires", expiry(flag["expires"], expired=flag["expired"]))] if flag.get("expires") else []),
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
            ("canary mismatches", _canaries(health["canaries"])),
        ]
    )


def _canaries(found: Json) -> str:
    """By variant: deployments with a mismatch, of those that a canary looked at."""
    sides = (f"{variant} {count(one['mismatched'])} of {count(one['deployments'])}" for variant, one in found.items())
    return ", ".join(sides) or ABSENT
