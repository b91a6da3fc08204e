# SPDX-License-Identifier: Apache-2.0
"""`kvflags db` on real databases."""

import sqlite3

import pytest

from kvflags_migrations import head


def _document(url, revision):
    return {"schema": "kvflags/1", "kind": "database", "data": {"url": url, "revision": revision, "head": head()}}


def test_a_new_database_is_created_and_checked(kvflags):
    assert kvflags("db", "upgrade", "--json").document == _document("sqlite:///kvflags.db", head())
    assert kvflags("db", "check").out == f"database  sqlite:///kvflags.db\nrevision  {head()}\nhead      {head()}\n"


def test_the_environment_names_it_and_the_option_goes_before(kvflags, monkeypatch):
    monkeypatch.setenv("KVFLAGS_DB", "sqlite:///one.db")
    assert kvflags("db", "upgrade", "--json").document == _document("sqlite:///one.db", head())
    assert kvflags("db", "current", "--db", "sqlite:///two.db", "--json").document == _document(
        "sqlite:///two.db", None
    )


def test_down_and_up_again(kvflags):
    kvflags("db", "upgrade")
    assert kvflags("db", "downgrade", "0001_control", "--json").document["data"]["revision"] == "0001_control"
    result = kvflags("db", "check", "--json")
    assert (result.code, result.document) == (1, _document("sqlite:///kvflags.db", "0001_control"))
    assert result.err == "\nhint: kvflags db upgrade\n"
    assert kvflags("db", "upgrade").code == 0
    assert kvflags("db", "downgrade", "base", "--json").document["data"]["revision"] is None


@pytest.mark.parametrize(
    ("arguments", "code", "message", "hint"),
    [
        (
            ("upgrade", "--db", "nonsense"),
            "invalid",
            "'nonsense' is not a database URL",
            "for example --db sqlite:///kvflags.db",
        ),
        (
            ("upgrade", "--db", "mysql://h/d"),
            "invalid",
            "no support for mysql",
            "use --db sqlite:///kvflags.db, or postgresql://user@host/db",
        ),
        (
            ("downgrade", "0099"),
            "invalid",
            "no way to revision '0099': Can't locate revision identified by '0099'",
            "see `kvflags db current`",
        ),
    ],
)
def test_what_cannot_be_done(kvflags, arguments, code, message, hint):
    kvflags("db", "upgrade")
    result = kvflags("db", *arguments, "--json")
    assert (result.code, result.err) == (2, f"error: {message}\n\nhint: {hint}\n")
    assert result.document["error"] == {"code": code, "message": message, "hint": hint}


def test_a_database_of_a_newer_kvflags(kvflags):
    kvflags("db", "upgrade")
    with sqlite3.connect("kvflags.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    result = kvflags("db", "upgrade", "--json")
    assert result.code == 2
    assert result.document["error"] == {
        "code": "database_revision",
        "message": "the database is at revision 9999, which this kvflags does not know",
        "hint": "install the kvflags that wrote it",
    }


def test_doctor_looks_at_it(kvflags):
    kvflags("db", "upgrade")
    kvflags("db", "downgrade", "0001_control")

    def database(*arguments):
        checks = kvflags("doctor", "--json", *arguments).document["data"]["checks"]
        return [check for check in checks if check["name"] == "database"]

    assert database() == []
    assert database("--db", "sqlite:///kvflags.db") == [
        {
            "name": "database",
            "outcome": "finding",
            "says": f"at revision 0001_control, this release needs {head()}",
            "hint": "kvflags db upgrade",
        }
    ]
