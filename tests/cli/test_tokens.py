# SPDX-License-Identifier: Apache-2.0
"""`kvflags tokens`, and a collector beyond loopback as a process: over TLS, with tokens, on both ports."""

from __future__ import annotations

import datetime as dt
import ipaddress
import re
import ssl
import subprocess
import sys
from pathlib import Path

import grpc
import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


@pytest.fixture
def certificate(tmp_path) -> Path:
    """cert.pem and key.pem, in the working directory, for 127.0.0.1."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kvflags")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (tmp_path / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    (tmp_path / "key.pem").write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    return tmp_path / "cert.pem"


@pytest.fixture
def beyond(kvflags, certificate):
    """(https address, gRPC's address, the first token) of `kvflags serve --host 0.0.0.0`."""
    token = kvflags("tokens", "create", "admin", "--scope", "admin", "--db", "sqlite:///kvflags.db", "--json").document
    options = ["--host", "0.0.0.0", "--port", "0", "--grpc-port", "0", "--tls-cert", "cert.pem", "--tls-key", "key.pem"]
    command = [sys.executable, "-W", "error", "-m", "kvflags_cli", "serve", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            found = re.search(r"https://0\.0\.0\.0(:\d+) and grpc://0\.0\.0\.0(:\d+)", process.stdout.readline())
            yield f"https://127.0.0.1{found[1]}", f"127.0.0.1{found[2]}", token["data"]["token"]
        finally:
            process.terminate()


def test_beyond_loopback_everything_needs_a_token_on_both_ports(beyond, certificate):
    address, grpc_address, admin = beyond
    with httpx.Client(base_url=address, verify=ssl.create_default_context(cafile=str(certificate))) as http:
        assert http.get("/readyz").status_code == 200
        assert http.get("/api/v1/flags").status_code == 401
        headers = {"Authorization": f"Bearer {admin}"}
        assert http.get("/api/v1/flags", headers=headers).status_code == 200
        new = {"name": "reader", "scope": "read"}
        reader = http.post("/api/v1/tokens", json=new, headers=headers).json()["token"]
    credentials = grpc.ssl_channel_credentials(certificate.read_bytes())
    with grpc.secure_channel(grpc_address, credentials) as channel:
        call = channel.unary_unary(_EXPORT)
        assert call(b"", timeout=20, metadata=[("authorization", f"Bearer {admin}")]) == b""
        for metadata, code in (
            ([], grpc.StatusCode.UNAUTHENTICATED),
            ([("authorization", f"Bearer {reader}")], grpc.StatusCode.PERMISSION_DENIED),
        ):
            with pytest.raises(grpc.RpcError) as refused:
                call(b"", timeout=20, metadata=metadata)
            assert refused.value.code() == code
            assert "ingest" in refused.value.details()


def test_the_command_line_with_a_token_and_without(beyond, certificate, kvflags, monkeypatch):
    address, _, admin = beyond
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    monkeypatch.setenv("KVFLAGS_COLLECTOR_URL", address)
    denied = kvflags("flags", "list")
    assert (denied.code, denied.err) == (
        4,
        "error: a token is needed\n\nhint: set KVFLAGS_TOKEN to a token with the scope `read`; an admin makes one with"
        " `kvflags tokens create`\n",
    )
    monkeypatch.setenv("KVFLAGS_TOKEN", admin)
    kvflags("flags", "create", "clb", "--feature", "cross_layer_blocks")
    assert '"author": "admin"' in kvflags("flags", "show", "clb", "--json").out


def test_made_shown_once_listed_and_revoked(fleet, kvflags):
    made = kvflags("tokens", "create", "engines", "--scope", "ingest", "--expires", "90d", "--author", "ann")
    secret = re.search(r"kvf_[\w-]{43}", made.out)[0]
    assert "shown this once" in made.err
    [listed] = kvflags("tokens", "list", "--json").document["data"]
    assert (listed["name"], listed["scope"], listed["state"], listed["author"]) == ("engines", "ingest", "live", "ann")
    assert secret not in kvflags("tokens", "list").out
    ended = kvflags("tokens", "revoke", listed["id"], "--json").document["data"]
    assert ended["state"] == "revoked"
    missing = kvflags("tokens", "revoke", "nonsense", "--json")
    assert (missing.code, missing.document["error"]["code"]) == (2, "unknown_token")


def test_the_database_is_left_alone_while_it_is_served(fleet, kvflags, tmp_path):
    result = kvflags("tokens", "create", "admin", "--scope", "admin", "--db", f"sqlite:///{tmp_path}/fleet.db")
    assert (result.code, "another kvflags process holds" in result.err) == (5, True)


def test_what_the_database_refuses(kvflags):
    result = kvflags("tokens", "create", "a b", "--scope", "admin", "--db", "sqlite:///kvflags.db")
    assert (result.code, result.err.splitlines()[0]) == (
        2,
        "error: name: String should match pattern '^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$'",
    )
