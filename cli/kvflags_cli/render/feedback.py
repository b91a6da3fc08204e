# SPDX-License-Identifier: Apache-2.0
"""Views of feedback: what was measured and given, and all that is known of one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rich.console import RenderableType

from kvflags_cli.render.numbers import ABSENT, moment
from kvflags_cli.render.tables import heading, pairs, table

__all__ = ["feedback", "items", "listing"]

Json = dict[str, Any]


def items(given: list[Json]) -> RenderableType:
    """A table of them, in the order they come in."""
    columns = ("ID", "SIGN", "SOURCE", "~DEPLOYMENT", "~TAGS", "~COMMENT")
    return table(columns, map(_row, given))


def listing(given: list[Json]) -> Iterable[RenderableType]:
    return [items(given) if given else "None yet. `kvflags feedback give` gives some."]


def feedback(one: Json) -> Iterator[RenderableType]:
    """One that was given, with its revisions."""
    fields = ("id", "deployment", "generation", "variant", "arm", "stratum", "author")
    said = [(name, str(one[name] or ABSENT)) for name in fields]
    said += [(f"{name} releases", ", ".join(found) or ABSENT) for name, found in one["releases"].items()]
    said += [("engine" if n == 0 else "", _engine(engine)) for n, engine in enumerate(one["engines"])]
    yield pairs([*said, ("state", "withdrawn" if one["withdrawn"] else "counts")])
    yield heading("REVISIONS")
    columns = (">", "ACTION", "SIGN", "TAGS", "~COMMENT", "~BY", "~WHY", "WHEN")
    yield table(columns, map(_revision, one["revisions"]))


def _row(one: Json) -> tuple[str, ...]:
    sign = "withdrawn" if one["withdrawn"] else one["sign"]
    return one["id"], sign, one["source"], one["deployment"] or ABSENT, _tags(one), one["comment"]


def _revision(one: Json) -> tuple[str, ...]:
    said = (one["action"], one["sign"], _tags(one), one["comment"])
    return (str(one["revision"]), *said, one["author"], one["reason"] or ABSENT, moment(one["recorded_at"]))


def _engine(one: Json) -> str:
    return f"{one['engine_id']} ({one['role']}, {one['generation']}, {one['resolved'] or 'layout unknown'})"


def _tags(one: Json) -> str:
    return ", ".join(one["tags"]) or ABSENT
