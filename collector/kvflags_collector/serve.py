# SPDX-License-Identifier: Apache-2.0
"""`kvflags serve`: one collector process on one database, until it is told to stop."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from types import FrameType

import uvicorn
from fastapi import FastAPI

from kvflags import local_token
from kvflags.errors import ErrorCode, OperatorError
from kvflags_collector import logs, tls
from kvflags_collector.access import local, tokens
from kvflags_collector.app import create_app
from kvflags_collector.ingest.grpc import GrpcServer
from kvflags_collector.settings import Settings
from kvflags_collector.store.connect import shown
from kvflags_collector.store.database import Database
from kvflags_collector.times import now_us

__all__ = ["serve"]

_log = logging.getLogger(__name__)


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT. A new or older database is upgraded first; says one line on stdout when ready.

    OperatorError: the port is in use, the database is held by another process or at a newer revision.
    """
    logs.configure(settings.log_format, settings.log_level)
    tls.check(settings)
    with ExitStack() as stack:
        # The ports first: whoever starts a second collector by mistake learns that, and not something about locks.
        listener = stack.enter_context(closing(_listen(settings.host, settings.port, "--port")))
        reserved = None
        if settings.grpc_port is not None:
            reserved = stack.enter_context(closing(_listen(settings.host, settings.grpc_port, "--grpc-port")))
        db = stack.enter_context(closing(Database(settings.db, upgrade=True)))
        if not settings.tokenless:
            _need_a_token(db, settings)
        elif settings.local_admin:
            _leave_a_token(db, settings.local_admin, listener.getsockname()[1])
        app = create_app(settings, db)
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=round(settings.drain_s),
            ssl_certfile=settings.tls_cert,
            ssl_keyfile=settings.tls_key,
        )
        with _signals_end_quietly():
            grpc = _Grpc(app, settings, reserved) if reserved else None
            _Server(app, config, settings, grpc).run(sockets=[listener])


class _Server(uvicorn.Server):
    """HTTP, and gRPC beside it on the same loop: begun when the app is up, ended before it goes down."""

    def __init__(self, app: FastAPI, config: uvicorn.Config, settings: Settings, grpc: _Grpc | None) -> None:
        super().__init__(config)
        self._app = app
        self._settings = settings
        self._grpc = grpc

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if not (self.started and sockets):
            return
        addresses = [f"http{'s' if self._settings.tls_cert else ''}://{_shown(sockets[0])}"]
        if self._grpc:
            try:
                addresses.append(f"grpc://{await self._grpc.start()}")
            except OperatorError:
                await self.shutdown(sockets)
                raise
        sys.stdout.write(
            f"kvflags collector ready on {' and '.join(addresses)} (database {shown(self._settings.db)})\n"
        )
        sys.stdout.flush()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal drains; the second ends at once, which loses nothing that was acknowledged."""
        if self.should_exit:
            os._exit(128 + sig)
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # An open page would hold the drain up to its end: it listens again when we are back.
        self._app.state.live.close()
        if self._grpc:
            # Both drain at once, so that `--drain` bounds them together.
            self._app.state.draining.append(asyncio.create_task(self._grpc.stop()))
        await super().shutdown(sockets)


class _Grpc:
    """gRPC opens its port itself. Until it does we hold it, so that a port in use is known before anything is done."""

    def __init__(self, app: FastAPI, settings: Settings, reserved: socket.socket) -> None:
        self._reserved = reserved
        self._drain_s = settings.drain_s
        self._address = _shown(reserved)
        self._server = GrpcServer(
            app.state.receiver,
            self._address,
            keyring=app.state.keyring,
            credentials=tls.grpc_credentials(settings),
        )

    async def start(self) -> str:
        self._reserved.close()
        await self._server.start()
        return self._address

    async def stop(self) -> None:
        await self._server.stop(self._drain_s)


def _need_a_token(db: Database, settings: Settings) -> None:
    with db.read() as conn:
        if tokens.live(conn, now_us()):
            return
    raise OperatorError(
        f"nobody could use a collector on {settings.host}: its database holds no token",
        hint=f"kvflags tokens create admin --scope admin --db {settings.db}",
    )


def _leave_a_token(db: Database, owner: str, port: int) -> None:
    """A collector that cannot serves all the same: what engines send and people read needs no token."""
    path = local_token.place(port)
    try:
        if path is None:
            raise FileNotFoundError(errno.ENOENT, "neither XDG_STATE_HOME nor HOME is set")
        local.leave(db, path, owner, port, now_us())
    except OSError as error:
        _log.warning(
            "no admin's token was left for the command line (%s: %s); changes need one of `kvflags tokens create`",
            path,
            error.strerror,
        )


def _shown(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _listen(host: str, port: int, option: str) -> socket.socket:
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[
            0
        ]
    except OSError as error:
        raise OperatorError(f"{host} is no address here: {error.strerror}", hint="check --host") from error
    listener = socket.socket(family, kind)
    # A restart must not wait a minute for connections of the process before it.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        # Bound is not enough: two processes can both bind with SO_REUSEADDR until one of them listens.
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise _cannot_listen(f"{host}:{port}", option, error) from error
    return listener


def _cannot_listen(where: str, option: str, error: OSError) -> OperatorError:
    if error.errno == errno.EADDRINUSE:
        return OperatorError(
            f"{where} is in use",
            hint=f"stop what listens there, or choose another {option}",
            code=ErrorCode.PORT_IN_USE,
        )
    return OperatorError(f"cannot listen on {where}: {error.strerror}", hint=f"check --host and {option}")


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
