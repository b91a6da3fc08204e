# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PLC0415 - see the package's docstring: what is heavy is imported when it is needed
"""`kvflags db`: bring a database to this release's revision, tell where it is, look after what is in it.

Imports the service when called.
"""

from __future__ import annotations

from typing import Annotated

import typer

from kvflags_cli.commands import db_upkeep
from kvflags_cli.exit_codes import ExitCode
from kvflags_cli.extras import needs_the_collector
from kvflags_cli.options import AsJson, Db, example
from kvflags_cli.output import say, show
from kvflags_cli.settings import DEFAULT_DB

__all__ = ["app", "revisions"]

app = typer.Typer(
    help="Create, upgrade, inspect, shrink and export the collector's database. Stop the collector before a change.",
    rich_markup_mode=None,
    epilog=example("kvflags db upgrade --db sqlite:///kvflags.db"),
)

Down = Annotated[str, typer.Argument(metavar="REVISION", help="Where to: `base`, or a revision.", show_default=False)]


@app.command(epilog=example("kvflags db upgrade"))
def upgrade(db: Db = DEFAULT_DB, as_json: AsJson = False) -> None:
    """Bring the database to the revision of this release, creating it if need be."""
    with needs_the_collector():
        import kvflags_migrations as migrations

        migrations.upgrade(db)
    _show(db, as_json)


@app.command(epilog=example("kvflags db downgrade 0001_control"))
def downgrade(revision: Down, db: Db = DEFAULT_DB, as_json: AsJson = False) -> None:
    """Take the database down to REVISION. What later revisions hold is lost: copy the database first."""
    with needs_the_collector():
        import kvflags_migrations as migrations

        migrations.downgrade(db, revision)
    _show(db, as_json)


@app.command(epilog=example("kvflags db current"))
def current(db: Db = DEFAULT_DB, as_json: AsJson = False) -> None:
    """Show the database's revision and the one that this release needs."""
    _show(db, as_json)


@app.command(epilog=example("kvflags db check && kvflags serve"))
def check(db: Db = DEFAULT_DB, as_json: AsJson = False) -> None:
    """Exit 1 when the database is at another revision than this release needs."""
    found, head = _show(db, as_json)
    if found != head:
        say("\nhint: kvflags db upgrade")
        raise typer.Exit(ExitCode.FINDING)


app.command(epilog=db_upkeep.VACUUM_EXAMPLE)(db_upkeep.vacuum)
app.command(epilog=db_upkeep.EXPORT_EXAMPLE)(db_upkeep.export)


def revisions(url: str) -> tuple[str | None, str]:
    """The database's revision (None: it has none) and the one that this release needs."""
    with needs_the_collector():
        import kvflags_migrations as migrations

        return migrations.current(url), migrations.head()


def _show(url: str, as_json: bool) -> tuple[str | None, str]:
    found, head = revisions(url)
    with needs_the_collector():
        from kvflags_collector.store.connect import shown

    show("database", {"url": shown(url), "revision": found, "head": head}, as_json=as_json)
    return found, head
