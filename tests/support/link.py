# SPDX-License-Identifier: Apache-2.0
"""A network link between engines and the collector that can fail in every way a real one does."""

from __future__ import annotations

import contextlib
import socket
import threading
from enum import Enum
from urllib.parse import urlsplit

from kvflags_cli.demo.pair import free_port

__all__ = ["Link", "State"]


class State(Enum):
    """What the link does with a new connection."""

    UP = "forwards to the collector"
    CUT = "refuses"
    SILENT = "accepts and never answers"
    BROKEN = "answers 500"


class Link:
    """`url` is what engines are given; `state` may be changed at any time and then also ends what is open."""

    def __init__(self, target: str, state: State = State.UP) -> None:
        self._target = (urlsplit(target).hostname or "", urlsplit(target).port or 0)
        self._state = state
        self._open: set[socket.socket] = set()
        self._port = free_port()
        self._listener = socket.create_server(("127.0.0.1", self._port))
        self.url = f"http://127.0.0.1:{self._port}"
        if state is State.CUT:
            self._listener.close()
        else:
            self._accepting()

    @property
    def state(self) -> State:
        return self._state

    @state.setter
    def state(self, state: State) -> None:
        was, self._state = self._state, state
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        if state is State.CUT and was is not State.CUT:
            # Shut down first: a thread blocked in accept() would otherwise keep the port.
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
        elif was is State.CUT and state is not State.CUT:
            self._listener = socket.create_server(("127.0.0.1", self._port))
            self._accepting()

    def close(self) -> None:
        self.state = State.CUT

    def _accepting(self) -> None:
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                self._open.add(connection)
                threading.Thread(target=self._handle, args=(connection,), daemon=True).start()

    def _handle(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            if self._state is State.UP:
                self._forward(connection)
            elif self._state is State.BROKEN:
                connection.recv(65536)
                connection.sendall(
                    b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                )
            else:
                while connection.recv(65536):
                    pass
        self._open.discard(connection)

    def _forward(self, connection: socket.socket) -> None:
        with socket.create_connection(self._target, timeout=10) as upstream:
            upstream.settimeout(None)
            back = threading.Thread(target=_copy, args=(upstream, connection), daemon=True)
            back.start()
            _copy(connection, upstream)
            back.join(10)


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
