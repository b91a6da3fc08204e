# SPDX-License-Identifier: Apache-2.0
"""What the command line makes of a collector that is not there, is none, or is unwell: servers with one answer each."""

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from kvflags.errors import Unavailable
from kvflags_cli.client import Client
from kvflags_cli.complete import flag_keys
from kvflags_cli.settings import Connection


@pytest.fixture
def serving():
    """`serving(status, body) -> url`: a server that gives this answer to everything, and notes what it was asked."""
    servers = []

    def start(status, body):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                asked.append((self.path, self.headers.get("Authorization")))
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())

            def log_message(self, *_):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    asked = start.asked = []
    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def _error(code, message="m", hint="h"):
    return {"error": {"code": code, "message": message, "hint": hint}}


@pytest.mark.parametrize(
    ("status", "body", "exit_code", "code"),
    [
        (404, _error("unknown_flag"), 2, "unknown_flag"),
        (409, _error("stale_revision"), 2, "stale_revision"),
        (401, _error("unauthorized"), 4, "unauthorized"),
        (503, _error("database_busy"), 5, "database_busy"),
        (500, _error("internal"), 70, "internal"),
        # Codes of a newer collector: the status says what kind of error it is.
        (422, _error("of_a_newer_collector"), 2, "invalid"),
        (403, _error("of_a_newer_collector"), 4, "unauthorized"),
        (429, _error("of_a_newer_collector"), 5, "unreachable"),
        (500, _error("of_a_newer_collector"), 70, "internal"),
    ],
)
def test_the_collectors_error_is_passed_on(kvflags, serving, status, body, exit_code, code):
    result = kvflags("report", "k", "--collector", serving(status, body), "--json")
    assert (result.code, result.err) == (exit_code, "error: m\n\nhint: h\n")
    assert result.document["error"] == {"code": code, "message": "m", "hint": "h"}


@pytest.mark.parametrize("body", [b"<html>It works!</html>", b"[]", b'"ok"', b"\xff"])
@pytest.mark.parametrize("status", [200, 404, 502])
def test_something_else_listens_there(kvflags, serving, status, body):
    url = serving(status, body)
    result = kvflags("report", "k", "--collector", url)
    assert (result.code, result.out) == (5, "")
    assert result.err == (
        f"error: {url} answered {status}, but not as a kvflags collector does\n\n"
        "hint: its address comes from --collector; is something else listening there?\n"
    )


def test_nobody_listens(kvflags, free_port):
    result = kvflags("report", "k", "--collector", f"http://127.0.0.1:{free_port}", "--json")
    message = f"cannot reach the collector at http://127.0.0.1:{free_port} (from --collector): connection refused"
    hint = "start one with `kvflags serve`, or name yours with --collector URL or KVFLAGS_COLLECTOR_URL"
    assert (result.code, result.err) == (5, f"error: {message}\n\nhint: {hint}\n")
    assert result.document["error"] == {"code": "unreachable", "message": message, "hint": hint}


def test_it_accepts_and_never_answers():
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        with Client(Connection(url, "", "a test"), timeout=0.1) as client, pytest.raises(Unavailable) as raised:
            client.get("flags")
    assert raised.value.message == f"cannot reach the collector at {url} (from a test): it does not answer"


def test_pieces_of_a_path_are_quoted_and_the_token_is_sent(serving, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with Client(Connection(serving(200, {}), "secret", "a test")) as client:
        client.get("flags", "a/b?c#é", "explain", deployment="prod/chat & more")
    assert serving.asked == [
        ("/api/v1/flags/a%2Fb%3Fc%23%C3%A9/explain?deployment=prod%2Fchat+%26+more", "Bearer secret")
    ]


def test_completion_offers_what_begins_so(serving, monkeypatch):
    url = serving(200, {"items": [{"key": "cross-layer-blocks"}, {"key": "canary"}, {"key": "other"}]})
    monkeypatch.setenv("KVFLAGS_COLLECTOR_URL", url)
    assert flag_keys("c") == ["cross-layer-blocks", "canary"]


@pytest.mark.parametrize("answer", [(500, b"x"), (200, {"items": [{}]}), (200, {"items": None})])
def test_completion_is_silent_when_it_cannot(serving, monkeypatch, answer):
    monkeypatch.setenv("KVFLAGS_COLLECTOR_URL", serving(*answer))
    assert flag_keys("") == []
