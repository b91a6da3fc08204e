# SPDX-License-Identifier: Apache-2.0
"""Real sockets to talk to, and fakes of what vLLM would hand us. Each fake says so in its name."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

from kvflags.flags import Facts
from kvflags.settings import Settings


class FakeCollector:
    """Answers over real HTTP with whatever `answer(path, body)` returns: (status, document)."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict]] = []
        self.headers: list[dict[str, str]] = []
        self.answer: Callable[[str, dict], tuple[int, object]] = lambda path, body: (200, {})
        self.arrived = threading.Condition()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with outer.arrived:
                    outer.requests.append((self.path, body))
                    outer.headers.append(dict(self.headers))
                    status, document = outer.answer(self.path, body)
                    outer.arrived.notify_all()
                data = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def wait_for(self, count: int, kind: str = "", timeout: float = 5) -> list[dict]:
        """The bodies of at least `count` requests whose path ends in `kind`, once they have arrived."""
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.bodies(kind)) >= count, timeout), self.requests
            return self.bodies(kind)

    def bodies(self, kind: str = "") -> list[dict]:
        return [body for path, body in self.requests if path.endswith(kind)]

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def collector() -> Iterator[FakeCollector]:
    server = FakeCollector()
    yield server
    server.close()


class RawServer:
    """A listening socket whose connections are handed to `talk`, one thread each."""

    def __init__(self, talk: Callable[[socket.socket, threading.Event], None]) -> None:
        self.talk, self.over = talk, threading.Event()
        self.accepted: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.accepted.append(connection)
                self._threads.append(threading.Thread(target=self._talk, args=(connection,)))
                self._threads[-1].start()

    def _talk(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            self.talk(connection, self.over)

    def close(self) -> None:
        self.over.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(5)


@pytest.fixture
def raw_server() -> Iterator[Callable[..., RawServer]]:
    servers: list[RawServer] = []

    def make(talk: Callable[[socket.socket, threading.Event], None]) -> RawServer:
        servers.append(RawServer(talk))
        return servers[-1]

    yield make
    for server in servers:
        server.close()


@pytest.fixture
def fake_config() -> Callable[..., SimpleNamespace]:
    """The attributes of a VllmConfig that the decision reads."""

    def make(
        kv_role: str = "kv_producer", *, count: int = 1, rank: int = 0, node: int = 0, extra: dict | None = None
    ) -> SimpleNamespace:
        return SimpleNamespace(
            parallel_config=SimpleNamespace(_api_process_count=count, _api_process_rank=rank, node_rank_within_dp=node),
            kv_transfer_config=SimpleNamespace(
                kv_connector="NixlConnector",
                kv_role=kv_role,
                engine_id="engine-1",
                kv_connector_extra_config={} if extra is None else extra,
            ),
        )

    return make


@pytest.fixture
def facts() -> Facts:
    return Facts(
        vllm="0.32.0",
        nixl="1.5.1",
        model_class="gqa",
        architecture="LlamaForCausalLM",
        kv_heads_per_rank=4,
        connector="NixlConnector",
        isolation="recreate",
    )


@pytest.fixture
def settings(tmp_path) -> Callable[..., Settings]:
    """Settings as an engine's environment gives them."""

    def make(url: str | None = None, **environ: str) -> Settings:
        named = {"KVFLAGS_DEPLOYMENT": "eu/prod/chat", "KVFLAGS_GENERATION": "r41", "KVFLAGS_ISOLATION": "recreate"}
        where = {"KVFLAGS_COLLECTOR_URL": url} if url else {}
        return Settings.from_environ(named | {"KVFLAGS_STATE_DIR": str(tmp_path / "state")} | where | environ)

    return make


@pytest.fixture
def decided() -> dict:
    """A decision as the collector sends it."""
    return {
        "feature": "cross_layer_blocks",
        "flag": "cross-layer-blocks",
        "variant": "on",
        "arm": "treatment",
        "comparison": "included",
        "reason": "assigned",
        "revision": 3,
        "bucket": 1234,
        "epoch": 7,
        "state": "pinned",
        "signed": None,
    }
