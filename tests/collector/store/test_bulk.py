# SPDX-License-Identifier: Apache-2.0
"""Spans in bulk: what each request tells in its own columns, all of it, once, on either database."""

from __future__ import annotations

import pytest
from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError

from kvflags_collector.store.bulk import Bulk
from kvflags_collector.store.spans import insert_all
from kvflags_collector.store.telemetry_tables import spans

NOON_NS = 1_798_891_200 * 10**9
DAY_NS = 86_400 * 10**9
FIXED = {"end_ns": 0, "name": "kv.transfer", "kind": 3, "status": 0, "resource": b"r", "received_us": 0}


def _told(*numbers, names=(), **constants):
    """A request whose spans tell their number in `names` too."""
    rows = [(NOON_NS + n % 2 * DAY_NS, b"t" * 16, n.to_bytes(8, "big"), *[n] * len(names)) for n in numbers]
    return Bulk(rows, ("start_ns", "trace_id", "span_id", *names), FIXED | constants)


def _stored(db):
    c = spans.c
    with db.read() as conn:
        rows = conn.execute(select(c.span_id, c.rank, c.bytes, c.arm, c.mode, c.effective, c.epoch)).all()
    return sorted((int.from_bytes(row[0], "big"), *row[1:]) for row in rows)


@pytest.fixture(params=[1, 50])
def many(request):
    """As few and as many of each as make SQLite bind what they share, or write it into the statement."""
    return request.param


def test_requests_with_different_columns_are_stored_together(db, many):
    one, two = range(many), range(many, 2 * many)
    with db.append() as conn:
        insert_all(
            conn,
            [_told(*one, names=("rank",), arm="control"), Bulk([], (), {}), _told(*two, mode="pu\tsh\\", effective=1)],
        )
    assert _stored(db) == [
        *((n, n, None, "control", None, None, 0) for n in one),
        *((n, None, None, "", "pu\tsh\\", True, 0) for n in two),
    ]


def test_what_is_there_already_stays_and_the_rest_is_stored(db, many):
    with db.append() as conn:
        insert_all(conn, [_told(*range(many), names=("bytes",))])
    again = _told(*range(2 * many), names=("rank",))
    for _ in range(2):
        with db.append() as conn:
            # Also twice in one transaction, and in one request.
            insert_all(conn, [again, again._replace(rows=[*again.rows, *again.rows])])
            insert_all(conn, [again])
    old = [(n, None, n, "", None, None, 0) for n in range(many)]
    assert _stored(db) == old + [(n, n, None, "", None, None, 0) for n in range(many, 2 * many)]


ODD = [
    *map(chr, range(1, 128)),
    "\\N",
    "\\.",
    "\\x41",
    "\\\\t",
    "\r\n",
    "",
    " ",
    "NULL",
    "é\u2028\u202e\U0001f600",
    "'; DROP TABLE spans; --",
]


def test_whatever_text_a_client_sends_comes_back_as_it_was(db):
    rows = [(NOON_NS + n, b"t" * 16, n.to_bytes(8, "big"), text, None) for n, text in enumerate(ODD)]
    told = Bulk(rows, ("start_ns", "trace_id", "span_id", "mode", "rank"), FIXED | {"arm": "".join(ODD)})
    with db.append() as conn:
        insert_all(conn, [told])
    with db.read() as conn:
        found = conn.execute(select(spans.c.mode, spans.c.arm, spans.c.rank).order_by(spans.c.start_ns)).all()
    assert found == [(text, "".join(ODD), None) for text in ODD]


@pytest.mark.parametrize("size", [1_000, 40_000, 1_200_000])
def test_what_all_share_may_be_long(db, size):
    with db.append() as conn:
        insert_all(conn, [_told(*range(70), name="'" * size)])
    with db.read() as conn:
        assert conn.execute(select(func.count(), func.min(func.length(spans.c.name)))).one() == (70, size)


def test_a_span_that_cannot_be_stored_is_not_taken_for_one_that_is_there(db, many):
    bad = _told(*range(many), end_ns=None)
    with pytest.raises(IntegrityError), db.append() as conn:
        insert_all(conn, [_told(100), bad])
    assert _stored(db) == []
