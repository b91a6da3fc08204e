# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PLC0415 - see the package's docstring: what is heavy is imported when it is needed
"""`kvflags db vacuum|export`: what is done to a database's contents, and not to its revision."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated

import typer

from kvflags.errors import UsageError
from kvflags_cli import span_files
from kvflags_cli.extras import needs_the_collector
from kvflags_cli.options import AsJson, Db, example
from kvflags_cli.output import say, show
from kvflags_cli.parse import moment
from kvflags_cli.progress import advancing
from kvflags_cli.settings import DEFAULT_DB

__all__ = ["EXPORT_EXAMPLE", "VACUUM_EXAMPLE", "export", "vacuum"]

VACUUM_EXAMPLE = example("kvflags db vacuum --db sqlite:///kvflags.db")
EXPORT_EXAMPLE = example(
    "kvflags db export --since 24h -o spans.ndjson.gz",
    "kvflags db export --since 2027-02-14 --until 2027-02-15 -o - | jq .error_type",
)

Out = Annotated[
    str,
    typer.Option(
        "-o",
        "--out",
        metavar="FILE",
        help="Where to; compressed if it ends in .gz; - for stdout.",
        show_default=False,
    ),
]
Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="TIME",
        help="From this time on: 2027-02-14T12:00:00Z, or 24h for a day ago.",
        show_default="the first span",
    ),
]
Until = Annotated[
    str | None, typer.Option("--until", metavar="TIME", help="Before this time.", show_default="the last span")
]


def vacuum(db: Db = DEFAULT_DB, as_json: AsJson = False) -> None:
    """Make the database as small as what is in it. SQLite: while nobody serves it, with twice its size of disk free."""
    with needs_the_collector():
        import kvflags_migrations as migrations
        from kvflags_collector.store import connect

        migrations.check(db)
        with connect.exclusive(db), connect.opened(db) as engine:
            before, after = connect.vacuum(engine)
            url = connect.shown(db)
    show("vacuum", {"url": url, "before_bytes": before, "after_bytes": after}, as_json=as_json)


def export(out: Out, since: Since = None, until: Until = None, db: Db = DEFAULT_DB, as_json: AsJson = False) -> None:
    """Write raw spans to a file, a JSON document a line, by the time of their start. Also beside a collector."""
    if as_json and out == "-":
        raise UsageError("-o - and --json both write to stdout", hint="name a file: -o spans.ndjson.gz")
    now = datetime.now(UTC)
    pieces = _pieces(db, _ns(since, "--since", now), _ns(until, "--until", now))
    number = span_files.write(advancing(pieces, "exporting"), out)
    if out == "-":
        say(f"{number:,} spans")
    else:
        show("export", {"path": out, "spans": number}, as_json=as_json)


def _pieces(db: str, since_ns: int | None, until_ns: int | None) -> Iterator[tuple[float, list[str]]]:
    """(share of the time that is done, lines)."""
    with needs_the_collector():
        import kvflags_migrations as migrations
        from kvflags_collector.store import connect
        from kvflags_collector.store.export import documents, window

        migrations.check(db)
        with connect.opened(db) as engine:
            first, end = window(engine, since_ns, until_ns)
            for at, lines in documents(engine, first, end):
                yield (at - first + 1) / (end - first), lines


def _ns(text: str | None, option: str, now: datetime) -> int | None:
    if text is None:
        return None
    from kvflags_collector.times import parsed

    return parsed(moment(text, option, now)) * 1000
