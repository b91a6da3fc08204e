# SPDX-License-Identifier: Apache-2.0
"""Raw spans as documents: all of a window, each once, in order, whatever the pieces they are read in."""

from __future__ import annotations

import json

import pytest

from kvflags_collector.store import export
from kvflags_collector.store.spans import insert_resources

MINUTE = 60 * 10**9


def _documents(db, since_ns=None, until_ns=None):
    first, end = export.window(db.engine, since_ns, until_ns)
    pieces = list(export.documents(db.engine, first, end))
    assert all(first <= at < end for at, _ in pieces)
    return [json.loads(line) for _, lines in pieces for line in lines]


def test_a_span_is_written_with_all_that_is_known_of_it(db, raw):
    fingerprint, attributes = b"f" * 16, '{"otel.trace_state":"ot=th:8","x":"\\u2028"}'
    with db.append() as conn:
        insert_resources(conn, {(fingerprint, '{"kvflags.deployment":"c/ns/a"}')}, raw.noon_us)
    row = raw.span(1, resource=fingerprint, attributes=attributes, effective=True, generation="")
    raw.store(row)
    [document] = _documents(db)
    assert document == {name: value for name, value in row.items() if value not in (None, "")} | {
        "trace_id": f"{1:032x}",
        "span_id": f"{1:016x}",
        "resource": {"kvflags.deployment": "c/ns/a"},
        "attributes": {"otel.trace_state": "ot=th:8", "x": "\u2028"},
    }
    assert not {"error_type", "generation", "variant"} & document.keys()


@pytest.mark.parametrize("piece", [1, 3, 4, 100])
def test_pieces_leave_out_nothing_and_repeat_nothing(db, raw, monkeypatch, piece):
    monkeypatch.setattr(export, "_PIECE", piece)
    # Some that began in the same nanosecond, and two on the next day.
    starts = [0, 0, 0, 0, 1, 2, 2, 86_400 * 10**9, 86_400 * 10**9]
    raw.store(*(raw.span(n, start_ns=raw.noon_ns + at) for n, at in enumerate(starts, 1)))
    found = [(one["start_ns"] - raw.noon_ns, int(one["span_id"], 16)) for one in _documents(db)]
    assert found == list(zip(starts, range(1, 10), strict=True))


def test_a_window_is_half_open_and_may_be_empty(db, raw):
    assert _documents(db) == []
    raw.store(*(raw.span(n, start_ns=raw.noon_ns + n * MINUTE) for n in range(1, 5)))
    minutes = [
        (one["start_ns"] - raw.noon_ns) // MINUTE
        for one in _documents(db, raw.noon_ns + 2 * MINUTE, raw.noon_ns + 4 * MINUTE)
    ]
    assert minutes == [2, 3]
    assert len(_documents(db, until_ns=raw.noon_ns + 2 * MINUTE)) == 1
    assert _documents(db, since_ns=raw.noon_ns + 5 * MINUTE) == []
