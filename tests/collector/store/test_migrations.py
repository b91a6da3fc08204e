# SPDX-License-Identifier: Apache-2.0
"""Migrations: up, down and up again with data; one line of history; the tables that the code believes in."""

import importlib
import json
import pkgutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect
from sqlalchemy.exc import IntegrityError

import kvflags_collector.store
import kvflags_migrations as migrations
from kvflags.errors import ErrorCode, OperatorError, UsageError
from kvflags_collector.store.connect import engine_for
from kvflags_collector.store.database import Database
from kvflags_collector.store.metadata import metadata

DEPLOYMENT = "INSERT INTO deployments VALUES ('d', 1, 2, NULL, NULL, NULL, NULL)"


@pytest.fixture
def url(databases):
    """A database that is not there yet, or has nothing in it."""
    made = databases.new(migrated=False)
    yield made
    databases.drop(made)


@pytest.fixture
def raw(url):
    """The database by plain statements; gives the rows of the last."""

    def run(*statements):
        with closing_engine(url) as engine, engine.begin() as conn:
            results = [conn.exec_driver_sql(statement) for statement in statements]
            return results[-1].all() if results[-1].returns_rows else []

    return run


@contextmanager
def closing_engine(url):
    engine = engine_for(url)
    try:
        yield engine
    finally:
        engine.dispose()


def tables_of(url):
    with closing_engine(url) as engine:
        return set(inspect(engine).get_table_names())


def shape_of(url):
    """Tables and their columns."""
    with closing_engine(url) as engine:
        inspector = inspect(engine)
        return {name: [column["name"] for column in inspector.get_columns(name)] for name in tables_of(url)}


def history():
    config = Config()
    config.set_main_option("script_location", migrations.__path__[0])
    return [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()][::-1]


def test_history_is_one_line_from_the_control_plane():
    line = history()
    assert line[0] == "0001_control"
    assert line[-1] == migrations.head()
    assert len(set(line)) == len(line)


def test_the_tables_are_those_the_code_believes_in(url):
    for module in pkgutil.iter_modules(kvflags_collector.store.__path__):
        importlib.import_module(f"kvflags_collector.store.{module.name}")
    db = Database(url, upgrade=True)
    with db.read() as conn:

        def ours(thing, name, kind, *_):
            # Of what differs by database, only what this one has.
            return kind != "index" or thing.ddl_if is None or conn.dialect.name == "postgresql"

        opts = {"compare_type": True, "include_object": ours}
        assert compare_metadata(MigrationContext.configure(conn, opts=opts), metadata) == []
    db.close()


def test_asking_creates_nothing(url):
    assert migrations.current(url) is None
    with pytest.raises(OperatorError):
        migrations.check(url)
    path = Path(url.removeprefix("sqlite:///"))
    assert not path.exists()
    assert url.startswith("sqlite") or tables_of(url) == set()


def test_up_down_and_up_step_by_step(url, raw):
    assert migrations.current(url) is None
    for revision in history():
        assert migrations.upgrade(url, revision) == revision
    for revision in [*history()[:-1][::-1], "base"]:
        found = migrations.downgrade(url, revision)
        assert found == (None if revision == "base" else revision)
    assert tables_of(url) == {"alembic_version"}
    assert migrations.upgrade(url) == migrations.head()
    migrations.check(url)


def test_data_of_the_control_plane_survives_what_comes_after(url, raw):
    migrations.upgrade(url, "0001_control")
    raw("INSERT INTO collectors VALUES ('one', 7)", DEPLOYMENT)
    migrations.upgrade(url)
    migrations.downgrade(url, "0001_control")
    assert raw("SELECT * FROM collectors") == [("one", 7)]
    assert raw("SELECT id, last_seen_us FROM deployments") == [("d", 2)]


def test_a_new_file_and_an_older_revision_are_upgraded_when_asked(url):
    migrations.upgrade(url, "0001_control")
    Database(url, upgrade=True).close()
    assert migrations.current(url) == migrations.head()


def test_another_revision_is_refused_with_the_command_that_helps(url, raw):
    migrations.upgrade(url)
    migrations.downgrade(url, "base")
    for refused in (lambda: Database(url), lambda: migrations.check(url)):
        with pytest.raises(OperatorError) as error:
            refused()
        assert error.value.code == ErrorCode.DATABASE_REVISION
        assert error.value.message == f"the database is at revision none, this kvflags needs {migrations.head()}"
        assert error.value.hint == "run `kvflags db upgrade`"


def test_a_newer_database_is_refused_and_left_alone(url, raw):
    migrations.upgrade(url)
    raw("UPDATE alembic_version SET version_num = '9999_later'")
    for refused in (
        lambda: Database(url),
        lambda: Database(url, upgrade=True),
        lambda: migrations.upgrade(url),
        lambda: migrations.downgrade(url, "base"),
    ):
        with pytest.raises(OperatorError, match="9999_later, which this kvflags does not know") as error:
            refused()
        assert error.value.code == ErrorCode.DATABASE_REVISION
    assert raw("SELECT version_num FROM alembic_version") == [("9999_later",)]


def test_somebody_elses_database_is_left_alone(url, raw):
    raw("CREATE TABLE recipes (name TEXT)")
    with pytest.raises(OperatorError, match="not ours"):
        Database(url, upgrade=True)
    assert tables_of(url) == {"recipes"}


def test_a_migration_that_fails_leaves_the_database_as_it_was(url, raw):
    migrations.upgrade(url, "0001_control")
    raw("DELETE FROM alembic_version")
    before = shape_of(url)
    with pytest.raises(Exception, match="already exists"):
        migrations.upgrade(url)
    assert shape_of(url) == before


def test_processes_that_upgrade_at_once_do_it_once(url, raw):
    migrations.upgrade(url, "0001_control")
    raw("INSERT INTO collectors VALUES ('one', 7)")
    command = [sys.executable, "-m", "kvflags_cli", "db", "upgrade", "--db", url, "--json"]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    told = [(json.loads(process.communicate()[0]), process.returncode) for process in processes]
    # A file is for one process, so the others may find it held; on PostgreSQL they wait.
    done = [document["data"]["revision"] for document, code in told if code == 0]
    refused = [document["error"]["code"] for document, code in told if code != 0]
    assert done == [migrations.head()] * len(done) != []
    assert refused == ([ErrorCode.DATABASE_BUSY] * len(refused) if url.startswith("sqlite") else [])
    migrations.check(url)
    assert raw("SELECT * FROM collectors") == [("one", 7)]


def test_a_revision_that_does_not_exist(url):
    with pytest.raises(UsageError, match="no way to revision 'nonsense'"):
        migrations.upgrade(url, "nonsense")


def test_a_file_in_use_is_not_migrated(tmp_path):
    url = f"sqlite:///{tmp_path}/kvflags.db"
    db = Database(url, upgrade=True)
    with pytest.raises(OperatorError, match="another kvflags process"):
        migrations.downgrade(url, "base")
    db.close()


def test_the_database_refuses_two_pins_in_force_and_two_flags_of_a_feature(url, raw):
    migrations.upgrade(url)
    flag = "INSERT INTO flags VALUES ('{}', 'f', 1, 'draft', '{{}}', 0, 0, NULL)"
    pin = (
        "INSERT INTO pins (flag, deployment, generation, epoch, variant, comparison, reason, revision, state,"
        " pinned_by, pinned_us, closed_us) VALUES ('a', 'd', 'g', {}, 'on', 'excluded', 'r', 1, 'pinned', 'x', 0, {})"
    )
    raw(
        flag.format("a"),
        DEPLOYMENT,
        pin.format(1, 5),
        pin.format(2, "NULL"),
    )
    for refused in (flag.format("b"), pin.format(3, "NULL"), pin.format(1, 9)):
        with pytest.raises(IntegrityError):
            raw(refused)
