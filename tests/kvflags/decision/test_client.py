# SPDX-License-Identifier: Apache-2.0
"""The client against servers that misbehave in every way known: always in time, always with one of two errors."""

import datetime as dt
import ipaddress
import os
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from kvflags._version import __version__
from kvflags.decision import deadline
from kvflags.decision.client import Client, ClientError
from kvflags.errors import ErrorCode, Unavailable

# What a test gives a call, and what it may take: the rest is this machine being slow.
DEADLINE_S, SLACK_S = 0.4, 0.6


@contextmanager
def in_time(bound: float = DEADLINE_S) -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < bound + SLACK_S


def call(url: str, **options) -> dict:
    return Client(url, None, DEADLINE_S, **options).register({"a": 1})


def receive(connection: socket.socket) -> bytes:
    """The whole request."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def answering(data: bytes):
    def talk(connection, over):
        receive(connection)
        connection.sendall(data)

    return talk


def test_register_and_heartbeat(collector) -> None:
    collector.answer = lambda path, body: (200, {"path": path, "body": body})
    client = Client(collector.url + "/behind/a/path", "tok", 2)
    assert client.register({"x": "ü"}) == {"path": "/behind/a/path/api/v1/engines/register", "body": {"x": "ü"}}
    assert client.heartbeat("a/b", {}) == {"path": "/behind/a/path/api/v1/engines/a%2Fb/heartbeat", "body": {}}
    assert collector.headers[0]["Authorization"] == "Bearer tok"


def test_the_request_byte_by_byte(raw_server) -> None:
    heard = []

    def talk(connection, over):
        heard.append(receive(connection))
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    server = raw_server(talk)
    assert call(server.url) == {}
    assert heard == [
        b"POST /api/v1/engines/register HTTP/1.1\r\n"
        b"Host: 127.0.0.1:%d\r\n"
        b"User-Agent: kvflags/%s\r\n"
        b"Accept: application/json\r\n"
        b"Content-Type: application/json\r\n"
        b"Content-Length: 8\r\n"
        b"Connection: close\r\n"
        b"\r\n"
        b'{"a": 1}' % (server.port, __version__.encode())
    ]


def test_an_answer_in_chunks_and_one_that_ends_with_the_connection(raw_server) -> None:
    chunked = b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{"a\r\n5\r\n": 1}\r\n0\r\n\r\n'
    assert call(raw_server(answering(chunked)).url) == {"a": 1}
    assert call(raw_server(answering(b'HTTP/1.0 200 OK\r\n\r\n{"a": 2}')).url) == {"a": 2}


def test_a_server_that_keeps_the_connection_open_is_not_waited_for(raw_server) -> None:
    def talk(connection, over):
        receive(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        over.wait(10)

    with in_time(0):
        assert call(raw_server(talk).url) == {}


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    with in_time(0), pytest.raises(Unavailable, match="refused") as caught:
        call(f"http://127.0.0.1:{port}")
    assert "KVFLAGS_COLLECTOR_URL" in caught.value.hint


def test_accepts_and_never_answers(raw_server) -> None:
    server = raw_server(lambda connection, over: over.wait(10))
    with in_time(), pytest.raises(Unavailable, match="does not answer"):
        call(server.url)


def test_never_reads_what_is_sent(raw_server) -> None:
    server = raw_server(lambda connection, over: over.wait(10))
    with in_time(), pytest.raises(Unavailable):
        Client(server.url, None, DEADLINE_S).register({"padding": "x" * 20_000_000})


@pytest.mark.parametrize(
    ("head", "drop"),
    [
        (b"", b"H"),
        (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"{"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n{\r\n"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    ],
    ids=["status", "headers", "body", "chunks", "informational"],
)
def test_an_answer_that_trickles_in_does_not_stretch_the_deadline(raw_server, head, drop) -> None:
    def talk(connection, over):
        receive(connection)
        connection.sendall(head)
        while not over.wait(0.05):
            connection.sendall(drop)

    with in_time(), pytest.raises(Unavailable):
        call(raw_server(talk).url)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x00\xff" * 4096,
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nnot json!",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n[{}]",
        b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"half": ',
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 100_000,
        b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n" + b" " * 600_000,
        b"HTTP/1.1 200 OK\r\n\r\n" + b" " * 600_000,
    ],
    ids=["nothing", "ssh", "noise", "text", "list", "half", "chunk", "nested", "headers", "huge", "endless"],
)
def test_garbage_is_nobody(raw_server, answer) -> None:
    with in_time(), pytest.raises(Unavailable):
        call(raw_server(answering(answer)).url)


@pytest.mark.parametrize("status", [500, 502, 503, 504, 429])
def test_not_now(collector, status) -> None:
    collector.answer = lambda path, body: (status, {"error": {"code": "database_busy", "message": "m", "hint": "h"}})
    with pytest.raises(Unavailable) as caught:
        call(collector.url)
    assert (caught.value.code, caught.value.hint) == (ErrorCode.DATABASE_BUSY, "h")
    assert str(status) in caught.value.message


def test_a_refusal_carries_status_code_and_hint(collector) -> None:
    said = {"code": "unknown_registration", "message": "No such registration", "hint": "Register again"}
    collector.answer = lambda path, body: (404, {"error": said})
    with pytest.raises(ClientError) as caught:
        Client(collector.url, None, 2).heartbeat("r", {})
    error = caught.value
    assert (error.status, error.code, error.message, error.hint) == (
        404,
        ErrorCode.UNKNOWN_REGISTRATION,
        "No such registration",
        "Register again",
    )


@pytest.mark.parametrize(
    "document", [None, {}, {"error": "no"}, {"error": {"code": "later"}}, {"error": {"code": []}}, [1]]
)
def test_a_refusal_in_another_shape_is_still_a_refusal(collector, document) -> None:
    collector.answer = lambda path, body: (400, document)
    with pytest.raises(ClientError, match="answered 400") as caught:
        call(collector.url)
    assert (caught.value.status, caught.value.code) == (400, ErrorCode.INTERNAL)


def test_without_a_token_the_hint_names_the_setting(collector) -> None:
    collector.answer = lambda path, body: (401, {})
    with pytest.raises(ClientError) as caught:
        call(collector.url)
    assert (caught.value.code, "KVFLAGS_TOKEN" in caught.value.hint) == (ErrorCode.UNAUTHORIZED, True)


def test_a_redirect_is_not_followed(collector, raw_server) -> None:
    target = collector.url.encode()
    server = raw_server(answering(b"HTTP/1.1 307 T\r\nLocation: %s/x\r\nContent-Length: 0\r\n\r\n" % target))
    with pytest.raises(ClientError) as caught:
        call(server.url)
    assert caught.value.status == 307
    assert collector.requests == []


def test_proxies_are_not_used(collector, raw_server, monkeypatch) -> None:
    proxy = raw_server(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "https_proxy"):
        monkeypatch.setenv(name, proxy.url)
    assert call(collector.url) == {}
    assert (len(collector.requests), proxy.accepted) == (1, [])


def test_localhost_needs_no_resolver(collector, monkeypatch) -> None:
    monkeypatch.setattr(deadline, "_LOOKUP", "raise SystemExit(1)")
    assert call(collector.url.replace("127.0.0.1", "localhost")) == {}


def test_a_name_is_looked_up_in_a_process_of_its_own(collector, monkeypatch) -> None:
    found = "import json, sys; print(json.dumps([[2, '127.0.0.1']])) if sys.argv[1] == 'collector.test' else exit(1)"
    monkeypatch.setattr(deadline, "_LOOKUP", found)
    url = collector.url.replace("127.0.0.1", "collector.test")
    assert Client(url, None, 5).register({}) == {}


def test_the_lookup_itself_finds_what_the_system_knows(collector) -> None:
    # Not a literal in our eyes, and known to every resolver without a network.
    url = collector.url.replace("127.0.0.1", "127.1")
    assert Client(url, None, 5).register({}) == {}


def test_a_name_that_does_not_exist() -> None:
    with in_time(3), pytest.raises(Unavailable, match=r"no address|took too long"):
        Client("http://nobody.invalid:4318", None, 3).register({})


def test_a_resolver_that_hangs_is_killed(monkeypatch, tmp_path) -> None:
    pid_file = tmp_path / "pid"
    hang = f"import os, time; open({str(pid_file)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    monkeypatch.setattr(deadline, "_LOOKUP", hang)
    with in_time(1), pytest.raises(Unavailable, match=r"looking up slow\.test took too long"):
        Client("http://slow.test:4318", None, 1).register({})
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)


def test_an_address_that_swallows_packets_leaves_time_for_the_next(collector, monkeypatch) -> None:
    full = socket.socket()
    full.bind(("127.0.0.1", 0))
    full.listen(0)
    with full, socket.socket() as filler, socket.socket() as filler_2:
        # A full backlog swallows SYNs on Linux, as a firewall would.
        for waiting in (filler, filler_2):
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        connect = socket.socket.connect
        good = int(collector.url.rsplit(":", 1)[1])

        def reroute(self, address):
            connect(self, full.getsockname() if address[0] == "127.0.0.2" else ("127.0.0.1", good))

        monkeypatch.setattr(socket.socket, "connect", reroute)
        monkeypatch.setattr(deadline, "_addresses", lambda *_: [(2, "127.0.0.2"), (2, "127.0.0.1")])
        with in_time():
            assert call(collector.url) == {}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory) -> str:
    """A self-signed certificate for 127.0.0.1, with its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "kvflags test")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    pem = serialization.Encoding.PEM
    path.write_bytes(
        made.public_bytes(pem) + key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return str(path)


@pytest.fixture
def tls_server(certificate, raw_server):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    def talk(connection, over):
        with context.wrap_socket(connection, server_side=True) as secured:
            receive(secured)
            secured.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    return raw_server(talk)


def test_tls_with_a_certificate_that_we_were_told_to_trust(tls_server, certificate) -> None:
    url = f"https://127.0.0.1:{tls_server.port}"
    assert Client(url, None, 5, ca_file=certificate).register({}) == {}


def test_tls_with_a_certificate_that_nobody_vouches_for(tls_server) -> None:
    with pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
        Client(f"https://127.0.0.1:{tls_server.port}", None, 5).register({})


def test_a_certificate_file_that_is_not_there(tls_server) -> None:
    with pytest.raises(Unavailable):
        Client(f"https://127.0.0.1:{tls_server.port}", None, 5, ca_file="/no/such.pem").register({})


def test_a_handshake_that_trickles_in_does_not_stretch_the_deadline(raw_server) -> None:
    def talk(connection, over):
        connection.sendall(b"\x16\x03\x03\x40\x00\x02")
        while not over.wait(0.05):
            connection.sendall(b"\x00")

    server = raw_server(talk)
    # Certificates are read first, which the deadline does not cover: 20 ms.
    with in_time(), pytest.raises(Unavailable):
        call(f"https://127.0.0.1:{server.port}")


def test_no_time_at_all(collector) -> None:
    with in_time(0), pytest.raises(Unavailable):
        Client(collector.url, None, 0).register({})
    assert collector.requests == []
