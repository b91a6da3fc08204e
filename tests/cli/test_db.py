# SPDX-License-Identifier: Apache-2.0
"""`kvflags db` on real databases."""

import gzip
import json
import sqlite3
import time
from contextlib import closing

import pytest

from kvflags_collector.store.database import Database
from kvflags_collector.store.spans import insert_spans
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


def _filled(number):
    """Spans of an hour ago in the database that commands look for."""
    begin = time.time_ns() - 3600 * 10**9
    fixed = {"name": "kv.transfer", "kind": 3, "status": 0, "end_ns": begin, "resource": b"r", "received_us": 0}
    rows = [(begin + n, b"t" * 16, n.to_bytes(8, "big")) for n in range(number)]
    with closing(Database("sqlite:///kvflags.db", upgrade=True)) as db, db.append() as conn:
        insert_spans(conn, rows, ("start_ns", "trace_id", "span_id"), fixed)


def test_vacuum_makes_a_file_smaller(kvflags):
    _filled(5000)
    with closing(sqlite3.connect("kvflags.db")) as connection, connection:
        connection.execute("DELETE FROM spans")
    document = kvflags("db", "vacuum", "--json").document
    sizes = document["data"].pop("before_bytes"), document["data"].pop("after_bytes")
    assert document == {"schema": "kvflags/1", "kind": "vacuum", "data": {"url": "sqlite:///kvflags.db"}}
    assert sizes[1] < sizes[0] / 2
    assert kvflags("db", "check").code == 0
    assert kvflags("db", "vacuum").out.startswith("database  sqlite:///kvflags.db\nbefore    ")


def test_vacuum_leaves_a_database_alone_that_is_served_or_not_ours(kvflags):
    assert kvflags("db", "vacuum", "--json").document["error"]["code"] == "database_revision"
    _filled(1)
    with closing(Database("sqlite:///kvflags.db")):
        result = kvflags("db", "vacuum", "--json")
    assert (result.code, result.document["error"]["code"]) == (5, "database_busy")


@pytest.mark.parametrize("name", ["spans.ndjson", "spans.ndjson.gz"])
def test_export_writes_a_file_that_is_whole(kvflags, tmp_path, name):
    _filled(12_000)
    # Beside a collector that has it open.
    with closing(Database("sqlite:///kvflags.db")):
        result = kvflags("db", "export", "-o", name, "--json")
    assert result.document["data"] == {"path": name, "spans": 12_000}
    opened = gzip.open if name.endswith(".gz") else open
    with opened(tmp_path / name, "rt") as file:
        lines = [json.loads(line) for line in file]
    assert [int(line["span_id"], 16) for line in lines] == list(range(12_000))
    assert sorted(path.name for path in tmp_path.glob("spans*")) == [name]


def test_export_of_a_window_and_to_a_pipe(kvflags):
    _filled(2)
    for window, number in (
        (("--since", "2h"), 2),
        (("--since", "30m"), 0),
        (("--until", "2h"), 0),
        (("--until", "1m"), 2),
    ):
        result = kvflags("db", "export", "-o", "-", *window)
        assert (len(result.out.splitlines()), result.err) == (number, f"{number} spans\n")
    assert kvflags("db", "export", "-o", "-", "--since", "2027-02-14", "--until", "2027-02-14T01:00:00+01:00").code == 0


def test_what_cannot_be_exported(kvflags, tmp_path):
    _filled(1)
    for arguments, message, hint in (
        (("-o", "nowhere/x"), "cannot write nowhere/x: No such file or directory", "name another file: -o FILE"),
        (
            ("-o", "x", "--since", "soon"),
            "--since: not a time: 'soon'",
            "such as 2027-02-14T12:00:00Z, or 24h for a day ago",
        ),
        (("-o", "-"), "-o - and --json both write to stdout", "name a file: -o spans.ndjson.gz"),
    ):
        result = kvflags("db", "export", *arguments, "--json")
        assert (result.code, result.document["error"]["message"], result.document["error"]["hint"]) == (
            2,
            message,
            hint,
        )
    assert list(tmp_path.glob("x*")) == []


def test_an_export_that_fails_leaves_what_was_there(kvflags, tmp_path, monkeypatch):
    _filled(1)
    (tmp_path / "x").write_text("before")

    def fails(*_):
        yield 1, ["{}"]
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kvflags_collector.store.export.documents", fails)
    result = kvflags("db", "export", "-o", "x")
    assert (result.code, result.err.splitlines()[0]) == (2, "error: cannot write x: No space left on device")
    assert ((tmp_path / "x").read_text(), list(tmp_path.glob("x*"))) == ("before", [tmp_path / "x"])
