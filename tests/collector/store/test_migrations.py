# SPDX-License-Identifier: Apache-2.0
"""Migrations: up, down and up again with data; one line of history; the tables that the code believes in."""

import importlib
import pkgutil
import sqlite3

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

import kvflags_collector.store
import kvflags_migrations as migrations
from kvflags.errors import ErrorCode, OperatorError, UsageError
from kvflags_collector.store.database import Database
from kvflags_collector.store.metadata import metadata

DEPLOYMENT = "INSERT INTO deployments VALUES ('d', 1, 2, NULL, NULL, NULL, NULL)"


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/kvflags.db"


@pytest.fixture
def raw(tmp_path):
    """The file, by SQLite's own means; give it statements."""

    def run(*statements):
        connection = sqlite3.connect(tmp_path / "kvflags.db")
        try:
            rows = [connection.execute(statement).fetchall() for statement in statements]
            connection.commit()
            return rows[-1]
        finally:
            connection.close()

    return run


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
        assert compare_metadata(MigrationContext.configure(conn, opts={"compare_type": True}), metadata) == []
    db.close()


def test_asking_creates_nothing(url, tmp_path):
    assert migrations.current(url) is None
    with pytest.raises(OperatorError):
        migrations.check(url)
    assert list(tmp_path.iterdir()) == []


def test_up_down_and_up_step_by_step(url, raw):
    assert migrations.current(url) is None
    for revision in history():
        assert migrations.upgrade(url, revision) == revision
    for revision in [*history()[:-1][::-1], "base"]:
        found = migrations.downgrade(url, revision)
        assert found == (None if revision == "base" else revision)
    assert raw("SELECT name FROM sqlite_master WHERE type = 'table'") == [("alembic_version",)]
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
    assert raw("SELECT name FROM sqlite_master") == [("recipes",)]


def test_a_migration_that_fails_leaves_the_database_as_it_was(url, raw):
    migrations.upgrade(url, "0001_control")
    raw("DELETE FROM alembic_version")
    before = raw("SELECT sql FROM sqlite_master ORDER BY name")
    with pytest.raises(Exception, match="already exists"):
        migrations.upgrade(url)
    assert raw("SELECT sql FROM sqlite_master ORDER BY name") == before


def test_a_revision_that_does_not_exist(url):
    with pytest.raises(UsageError, match="no way to revision 'nonsense'"):
        migrations.upgrade(url, "nonsense")


def test_a_database_in_use_is_not_migrated(url):
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
        with pytest.raises(sqlite3.IntegrityError):
            raw(refused)
