# SPDX-License-Identifier: Apache-2.0
"""`kvflags serve` as a process: ready, stopped, and each way in which it cannot start."""

import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, closing, contextmanager

import grpc
import httpx

from kvflags_collector.settings import grpc_port
from kvflags_migrations import head

READY = re.compile(r"kvflags collector ready on (http://127\.0\.0\.1:\d+) \(database sqlite:///kvflags\.db\)\n")
EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


@contextmanager
def _serving(*arguments):
    command = [sys.executable, "-W", "error", "-m", "kvflags_cli", "serve", "--port", "0", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


def test_it_says_when_it_is_ready_and_ends_when_told():
    with _serving("--heartbeat", "2s", "--start-lease", "5m") as process:
        url = READY.fullmatch(process.stdout.readline())[1]
        assert httpx.get(f"{url}/readyz").json() == {"status": "ok"}
        process.terminate()
        assert (process.wait(20), process.stdout.read(), process.stderr.read()) == (0, "", "")


def test_with_grpc_it_says_where_and_ends_when_told():
    with _serving("--grpc-port", "0") as process:
        line = process.stdout.readline()
        found = re.fullmatch(r"kvflags collector ready on http://\S+ and grpc://(127\.0\.0\.1:\d+) \(.*\)\n", line)
        with grpc.insecure_channel(found[1]) as channel:
            assert channel.unary_unary(EXPORT)(b"", timeout=20) == b""
        process.terminate()
        assert (process.wait(20), process.stderr.read()) == (0, "")


def _closed(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return True
    return False


_BEGUN = (
    b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-protobuf\r\n"
    b"Content-Length: 10\r\nExpect: 100-continue\r\n\r\n"
)


def test_what_is_under_way_over_http_and_over_grpc_is_waited_for_at_once():
    with _serving("--grpc-port", "0", "--drain", "60s") as process:
        http, rpc = map(int, re.findall(r"://127\.0\.0\.1:(\d+)", process.stdout.readline()))
        address = ("127.0.0.1", http)
        never = threading.Event()

        def body():
            never.wait(60)
            yield b""

        with ExitStack() as stack:
            slow = stack.enter_context(socket.create_connection(address, 20))
            channel = stack.enter_context(grpc.insecure_channel(f"127.0.0.1:{rpc}"))
            stack.callback(never.set)
            slow.sendall(_BEGUN)
            assert slow.recv(100).startswith(b"HTTP/1.1 100")
            hanging = channel.stream_unary(EXPORT).future(body())
            # On the same connection, so the one that hangs was seen before.
            assert channel.unary_unary(EXPORT)(b"", timeout=20) == b""
            process.terminate()
            # Either gives up by itself after 30.
            end = time.monotonic() + 20
            while not (_closed(http) and _closed(rpc)):
                assert time.monotonic() < end, "one waits for the other"
                time.sleep(0.05)
            assert (process.poll(), hanging.done()) == (None, False)
            process.terminate()
            assert process.wait(20) == 128 + signal.SIGTERM


def test_a_grpc_port_in_use(kvflags, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = kvflags("serve", "--port", "0", "--grpc-port", str(port))
    assert result.code == 2
    assert result.err == (
        f"error: 127.0.0.1:{port} is in use\n\nhint: stop what listens there, or choose another --grpc-port\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_which_port_grpc_gets():
    assert [grpc_port(None, 4318), grpc_port(None, 8080), grpc_port("off", 4318), grpc_port("0", 1)] == [
        4317,
        None,
        None,
        0,
    ]


def test_with_json_stdout_holds_one_document(kvflags):
    with _serving("--json") as process:
        assert READY.fullmatch(process.stderr.readline())
        process.terminate()
        assert process.wait(20) == 0
        assert process.stdout.read() == (
            '{\n  "schema": "kvflags/1",\n  "kind": "serve",\n  "data": {\n    "state": "stopped"\n  }\n}\n'
        )


def test_a_port_in_use(kvflags, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = kvflags("serve", "--port", str(port), "--json")
    message, hint = f"127.0.0.1:{port} is in use", "stop what listens there, or choose another --port"
    assert (result.code, result.err) == (2, f"error: {message}\n\nhint: {hint}\n")
    assert result.document["error"] == {"code": "port_in_use", "message": message, "hint": hint}
    assert list(tmp_path.iterdir()) == []


def test_a_database_of_a_newer_kvflags_is_left_alone(kvflags):
    kvflags("db", "upgrade")
    with closing(sqlite3.connect("kvflags.db")) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    result = kvflags("serve", "--port", "0", "--json")
    assert result.code == 2
    assert result.document["error"] == {
        "code": "database_revision",
        "message": "the database is at revision 9999, which this kvflags does not know",
        "hint": "install the kvflags that wrote it",
    }


def test_an_older_database_is_upgraded(kvflags):
    kvflags("db", "upgrade")
    kvflags("db", "downgrade", "0001_control")
    with _serving() as process:
        assert READY.fullmatch(process.stdout.readline())
    assert kvflags("db", "current", "--json").document["data"]["revision"] == head()


def test_what_serve_refuses(kvflags):
    for arguments, message, hint in (
        (
            ("--host", "0.0.0.0"),
            "0.0.0.0 is reachable from other machines, and without TLS tokens are read on the way",
            "give --tls-cert and --tls-key, bind to 127.0.0.1, or say --insecure-bind where a proxy encrypts",
        ),
        (
            ("--host", "0.0.0.0", "--insecure-bind"),
            "nobody could use a collector on 0.0.0.0: its database holds no token",
            "kvflags tokens create admin --scope admin --db sqlite:///kvflags.db",
        ),
        (
            ("--tls-cert", "cert.pem"),
            "TLS needs a certificate and its key",
            "give both --tls-cert and --tls-key, or neither",
        ),
        (
            ("--tls-cert", "cert.pem", "--tls-key", "key.pem"),
            "cannot use cert.pem with the key key.pem: No such file or directory",
            "--tls-cert takes a PEM file with the chain, --tls-key the key that belongs to it, without a password",
        ),
        (("--heartbeat", "0"), "heartbeats lie 0.1 to 3600 seconds apart", "the default is --heartbeat 30"),
        (
            ("--start-lease", "soon"),
            "--start-lease: not a duration: 'soon'",
            "such as 7d, 10m, 1h30m, or a number of seconds",
        ),
        (
            ("--grpc-port", "high"),
            "--grpc-port: 'high' is not a port",
            "1 to 65535, 0 for any free one, or off",
        ),
        (("--grpc-port", "65536"), "65536 is not a port", "--grpc-port takes 1 to 65535, or 0 for any free one"),
        (("--db", "sqlite:////nowhere/x.db"), "cannot open /nowhere/x.db.lock: No such file or directory", None),
    ):
        result = kvflags("serve", "--port", "0", *arguments)
        assert (result.code, result.out) == (2, "")
        assert result.err.startswith(f"error: {message}\n\nhint: {hint or ''}")
