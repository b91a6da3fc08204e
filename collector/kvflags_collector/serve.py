# SPDX-License-Identifier: Apache-2.0
"""`kvflags serve`: one collector process on one database, until it is told to stop."""

from __future__ import annotations

import errno
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager

import uvicorn

from kvflags.errors import ErrorCode, OperatorError
from kvflags_collector.app import create_app
from kvflags_collector.settings import Settings
from kvflags_collector.store.database import Database

__all__ = ["serve"]

# What is being answered when SIGTERM comes may take that long; Kubernetes kills after 30 s, and closing the writer
# still has to fit. Exports time out after 10 s by themselves.
_DRAIN_S = 5


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT. A new or older database is upgraded first; says one line on stdout when ready.

    OperatorError: the port is in use, the database is held by another process or at a newer revision.
    """
    # The port first: whoever starts a second collector by mistake learns that, and not something about locks.
    with closing(_listen(settings)) as listener, closing(Database(settings.db, upgrade=True)) as db:
        config = uvicorn.Config(
            create_app(settings, db),
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_DRAIN_S,
        )
        with _signals_end_quietly():
            _Server(config, settings).run(sockets=[listener])


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, settings: Settings) -> None:
        super().__init__(config)
        self._settings = settings

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and sockets:
            host, port = sockets[0].getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            sys.stdout.write(f"kvflags collector ready on http://{shown}:{port} (database {self._settings.db})\n")
            sys.stdout.flush()


def _listen(settings: Settings) -> socket.socket:
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise OperatorError(f"{settings.host} is no address here: {error.strerror}", hint="check --host") from error
    listener = socket.socket(family, kind)
    # A restart must not wait a minute for connections of the process before it.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        # Bound is not enough: two processes can both bind with SO_REUSEADDR until one of them listens.
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise _cannot_listen(settings, error) from error
    return listener


def _cannot_listen(settings: Settings, error: OSError) -> OperatorError:
    where = f"{settings.host}:{settings.port}"
    if error.errno == errno.EADDRINUSE:
        return OperatorError(
            f"{where} is in use", hint="stop what listens there, or choose another --port", code=ErrorCode.PORT_IN_USE
        )
    return OperatorError(f"cannot listen on {where}: {error.strerror}", hint="check --host and --port")


@contextmanager
def _signals_end_quietly() -> Iterator[None]:
    """uvicorn raises the signal that stopped it once more when it is done; being told to stop is no failure."""
    names = (signal.SIGTERM, signal.SIGINT)
    before = {name: signal.signal(name, lambda *_: None) for name in names}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
