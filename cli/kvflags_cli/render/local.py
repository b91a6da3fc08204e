# SPDX-License-Identifier: Apache-2.0
"""Views of what the command line knows without a collector: doctor, help topics, the database's revision."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from kvflags_cli.render.numbers import ABSENT, count, size
from kvflags_cli.render.tables import heading, pairs, table
from kvflags_cli.render.words import outcome

__all__ = [
    "config",
    "config_origins",
    "database",
    "doctor",
    "engine",
    "environment",
    "exit_codes",
    "export",
    "topic",
    "vacuum",
]

Json = dict[str, Any]


def doctor(document: Json) -> Iterator[RenderableType]:
    for check in document["checks"]:
        yield Text.assemble(outcome(check["outcome"]), f"  {check['name']}: {check['says']}")
        if check["hint"]:
            yield Text(f"  hint: {check['hint']}")
    found = document["findings"]
    yield heading("No findings." if not found else f"{found} finding{'s' if found > 1 else ''}.")


def engine(document: Json) -> Iterator[RenderableType]:
    facts = document["facts"].items()
    yield pairs([(name, ABSENT if value is None else str(value)) for name, value in facts])
    refused = document["refusals"]
    if not refused:
        yield heading(f"It will work: the gate is met, and the layout to ask for is {document['layout']}.")
        return
    yield heading("It will not be treated:")
    yield table(
        ("CODE", "CLASS", "~BECAUSE", "REPORT"),
        ((one["code"], one["class"], one["says"], one["reference"] or ABSENT) for one in refused),
    )


def exit_codes(rows: list[Json]) -> Iterable[RenderableType]:
    return [
        table(
            (">CODE", "~MEANING", "~ERRORS"),
            ((str(row["code"]), row["meaning"], ", ".join(row["errors"]) or ABSENT) for row in rows),
        )
    ]


def environment(rows: list[Json]) -> Iterator[RenderableType]:
    for reader in dict.fromkeys(row["read_by"] for row in rows):
        yield heading(f"READ BY {reader.upper()}")
        for row in rows:
            if row["read_by"] == reader:
                yield Text(row["name"], style="bold") + Text(f" (default: {row['default'] or 'not set'})")
                yield Text(f"    {row['meaning']}")


def config(rows: list[Json]) -> Iterator[RenderableType]:
    yield from _config(rows, ("~NAME", "~VALUE"), lambda row: (row["name"], _value(row)))


def config_origins(rows: list[Json]) -> Iterator[RenderableType]:
    columns = ("~NAME", "~VALUE", "~ORIGIN")
    yield from _config(rows, columns, lambda row: (row["name"], _value(row), row["origin"]))


def _config(
    rows: list[Json], columns: tuple[str, ...], cells: Callable[[Json], tuple[str, ...]]
) -> Iterator[RenderableType]:
    for reader in dict.fromkeys(row["read_by"] for row in rows):
        yield heading(f"READ BY {reader.upper()}")
        yield table(columns, (cells(row) for row in rows if row["read_by"] == reader))
    for row in rows:
        if row["problem"]:
            yield Text(f"\n{row['name']}: {row['problem']}")


def _value(row: Json) -> str:
    value = row["value"]
    return ABSENT if value is None else str(value).lower() if isinstance(value, bool) else value


def topic(document: Json) -> Iterable[RenderableType]:
    return [Text(document["text"])]


def database(document: Json) -> Iterable[RenderableType]:
    return [
        pairs([("database", document["url"]), ("revision", document["revision"] or "none"), ("head", document["head"])])
    ]


def vacuum(document: Json) -> Iterable[RenderableType]:
    sizes = [(name, size(document[f"{name}_bytes"])) for name in ("before", "after")]
    return [pairs([("database", document["url"]), *sizes])]


def export(document: Json) -> Iterable[RenderableType]:
    return [pairs([("file", document["path"]), ("spans", count(document["spans"]))])]
