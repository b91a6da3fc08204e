# SPDX-License-Identifier: Apache-2.0
"""The database server is killed under a running collector, and comes back after every lease has ended."""

import pytest
from needed import absent
from postgres_server import Server, programs
from sqlalchemy import func, select

from kvflags_collector.store.control_tables import pins
from kvflags_collector.store.database import Database

LEASE_US = 90_000_000


@pytest.fixture
def server():
    if programs() is None:
        absent("PostgreSQL", "postgresql")
    server = Server(durable=True)
    yield server
    server.stop()


@pytest.fixture
def url(server):
    server.execute("CREATE DATABASE away")
    Database(server.url("away"), upgrade=True).close()
    return server.url("away")


def decisions(api):
    with api.db.read() as conn:
        return conn.scalar(select(func.count()).select_from(pins))


def test_three_leases_away_and_one_new_decode_engine_at_its_return(api, server):
    api.create()
    api.pair("g1")
    api.aim(percent=100)
    assert {told["variant"] for told in api.pair("g2")} == {"on"}
    assert api("POST", "/api/v1/flags/clb/abort", {"author": "ann", "reason": "because"})[0] == 200
    before = decisions(api)
    server.kill()
    api.now += LEASE_US
    for answer in (api.beat("g2-decode"), api.register("early", generation="g2", role="decode"), api("GET", "/readyz")):
        assert answer[0] == 503
    api.now += 2 * LEASE_US
    server.start()
    status, answer = api.register("late", generation="g2", role="decode")
    assert (status, answer["decisions"][0]["variant"], answer["decisions"][0]["state"]) == (200, "on", "condemned")
    assert api.beat("g2-decode")[0] == 200
    assert decisions(api) == before
