# SPDX-License-Identifier: Apache-2.0
"""The process: one line when ready, refusals before anything is touched, an end within seconds, nothing lost."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from kvflags.errors import ErrorCode, OperatorError, UsageError
from kvflags_collector.serve import serve
from kvflags_collector.settings import DEFAULT_DB, Settings, database_url

RUN = """
import sys
from kvflags.errors import KvflagsError
from kvflags_collector.serve import serve
from kvflags_collector.settings import Settings
try:
    serve(Settings(db=sys.argv[1], port=int(sys.argv[2])))
except KvflagsError as error:
    sys.exit(f"{error.code}: {error.message}; {error.hint}")
"""


@contextmanager
def collector(url: str, port: int = 0) -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", RUN, url, str(port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        yield process, line.split()[4] if line else ""
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            pipe.close()


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/kvflags.db"


def test_from_start_to_stop(url):
    change: dict[str, Any] = {"author": "ann", "reason": "try it"}
    with collector(url) as (process, address), httpx.Client(base_url=address, trust_env=False) as http:
        assert http.get("/readyz").json() == {"status": "ok"}
        made = http.post("/api/v1/flags", json={"key": "clb", "feature": "cross_layer_blocks", **change})
        assert made.status_code == 201
        process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        assert process.wait(10) == 0
        assert time.monotonic() - began < 5
        assert process.stderr is not None
        assert process.stderr.read() == ""
    # What was acknowledged is there again.
    with collector(url) as (process, address):
        assert httpx.get(f"{address}/api/v1/flags/clb", trust_env=False).json() == made.json()


def test_killed_it_loses_nothing_acknowledged_and_starts_again(url):
    with collector(url) as (process, address), httpx.Client(base_url=address, trust_env=False) as http:
        told = [
            http.post("/api/v1/engines/register", json={"registration_id": f"r{n}", "deployment": "d"}).status_code
            for n in range(20)
        ]
        process.kill()
        process.wait()
    assert told == [200] * 20
    with collector(url) as (process, address):
        items = httpx.get(f"{address}/api/v1/engines", trust_env=False).json()["items"]
    assert sorted(item["registration_id"] for item in items) == sorted(f"r{n}" for n in range(20))


def test_engines_registering_at_once_over_the_wire_agree(url):
    told: dict[int, Any] = {}
    barrier = threading.Barrier(8)
    with collector(url) as (_, address):
        change = {"author": "ann", "reason": "try it"}
        flag = {"key": "clb", "feature": "cross_layer_blocks", **change}
        assert httpx.post(f"{address}/api/v1/flags", json=flag, trust_env=False).status_code == 201

        def start(number: int) -> None:
            barrier.wait()
            body = {"registration_id": f"r{number}", "deployment": "d", "features": ["cross_layer_blocks"]}
            told[number] = httpx.post(f"{address}/api/v1/engines/register", json=body, trust_env=False).json()

        threads = [threading.Thread(target=start, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    decisions = [told[number]["decisions"][0] for number in range(8)]
    assert decisions == [decisions[0]] * 8
    assert decisions[0]["epoch"] == 1


def test_a_second_on_the_same_database_is_refused(url):
    with collector(url), collector(url) as (second, _):
        assert second.wait(20) == 1
        assert second.stderr is not None
        assert second.stderr.read().startswith(f"database_busy: another kvflags process holds {url}; stop it")


def test_a_port_in_use_touches_no_database(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OperatorError) as refused:
            serve(Settings(db=f"sqlite:///{tmp_path}/kvflags.db", port=port))
    assert refused.value.code == ErrorCode.PORT_IN_USE
    assert refused.value.message == f"127.0.0.1:{port} is in use"
    assert "--port" in refused.value.hint
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "example.invalid", ""])
def test_beyond_loopback_only_on_purpose(host):
    with pytest.raises(UsageError) as refused:
        Settings(host=host)
    assert "--insecure-bind" in refused.value.hint
    assert Settings(host=host, insecure_bind=True).host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "::1", "localhost"])
def test_loopback_needs_nothing(host):
    assert Settings(host=host).insecure_bind is False


def test_an_address_that_is_not_ours(tmp_path):
    with pytest.raises(OperatorError, match=r"192\.0\.2\.1") as refused:
        serve(Settings(host="192.0.2.1", port=0, insecure_bind=True, db=f"sqlite:///{tmp_path}/k.db"))
    assert "--host" in refused.value.hint


@pytest.mark.parametrize(
    "wrong",
    [{"port": -1}, {"port": 65_536}, {"heartbeat_s": 0}, {"heartbeat_s": float("nan")}, {"start_lease_s": 1}],
)
def test_settings_out_of_range(wrong):
    with pytest.raises(UsageError) as refused:
        Settings(**wrong)
    assert refused.value.hint


def test_where_the_database_is():
    assert database_url("sqlite:///a.db", {"KVFLAGS_DB": "sqlite:///b.db"}) == "sqlite:///a.db"
    assert database_url(None, {"KVFLAGS_DB": "sqlite:///b.db"}) == "sqlite:///b.db"
    assert database_url(None, {}) == DEFAULT_DB == "sqlite:///kvflags.db"
