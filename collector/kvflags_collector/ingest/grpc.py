# SPDX-License-Identifier: Apache-2.0
"""OTLP/gRPC: the same receiver on a port of its own, on the server's event loop.

Handlers take bytes and read them themselves: what refuses a request (a full budget, a stalled writer) is asked before
the message is taken off the wire, where flow control holds it back.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc

from kvflags.errors import ErrorCode, OperatorError
from kvflags_collector.access.keyring import Denied, Keyring
from kvflags_collector.access.scopes import Scope
from kvflags_collector.ingest.limits import Refused
from kvflags_collector.ingest.receiver import Receiver
from kvflags_collector.ingest.refusals import retry_info, retry_seconds, status_of
from kvflags_collector.ingest.signals import SIGNALS, Signal
from kvflags_collector.ingest.turns import Turns

__all__ = ["GrpcServer"]

# No valid message begins like this (field 3 of a type that does not exist), so a compressed one is told by its start.
_GZIP = b"\x1f\x8b"
# gRPC hands over whole messages and tells no size before: so many may arrive at once, of at most 64 MiB each.
# Who sends right away needs milliseconds, so few are enough; 200 silent streams cost others 3 s.
_PLACES = 16
_PATIENCE_S = 0.25
_CODES = {code.value[0]: code for code in grpc.StatusCode}


class GrpcServer:
    """One listener. `start` binds it and takes requests; `stop` lets those under way end."""

    def __init__(
        self,
        receiver: Receiver,
        address: str,
        *,
        keyring: Keyring | None = None,
        credentials: grpc.ServerCredentials | None = None,
    ) -> None:
        """`address`: host:port, an IPv6 host in brackets. Without a keyring everybody may send."""
        self._receiver = receiver
        self._address = address
        self._keyring = keyring
        self._credentials = credentials
        self._server: grpc.aio.Server | None = None

    async def start(self) -> int:
        """The port. OperatorError where it cannot be had."""
        self._server = grpc.aio.server(options=_options(self._receiver.limits.body))
        self._server.add_generic_rpc_handlers([_Services(self._receiver, self._keyring)])
        try:
            port = self._bind(self._server)
        except RuntimeError as problem:
            raise OperatorError(
                f"cannot listen on {self._address}: {problem}",
                hint="stop what listens there, or choose another --grpc-port",
                code=ErrorCode.PORT_IN_USE,
            ) from problem
        await self._server.start()
        return port

    def _bind(self, server: grpc.aio.Server) -> int:
        if self._credentials:
            return server.add_secure_port(self._address, self._credentials)
        return server.add_insecure_port(self._address)

    async def stop(self, grace_s: float) -> None:
        """New requests are refused at once; those under way have `grace_s` seconds."""
        if self._server is not None:
            await self._server.stop(grace_s)


class _Services(grpc.GenericRpcHandler):
    def __init__(self, receiver: Receiver, keyring: Keyring | None) -> None:
        turns = Turns(_PLACES, _PATIENCE_S)
        self._exports = {signal.method: _Export(receiver, signal, turns, keyring) for signal in SIGNALS}

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        export = self._exports.get(details.method)
        # As a stream, although only one message comes: only so is the handler called before the message is read.
        return grpc.stream_unary_rpc_method_handler(export.handle) if export else None


class _Export:
    """The handler of one signal."""

    def __init__(self, receiver: Receiver, signal: Signal, turns: Turns, keyring: Keyring | None) -> None:
        self._receiver = receiver
        self._signal = signal
        self._turns = turns
        self._keyring = keyring

    async def handle(self, messages: AsyncIterator[bytes], context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        try:
            self._admit(context)
            return await self._receive(messages)
        except Refused as refusal:
            self._receiver.instruments.refused(self._signal.name, refusal.status)
            await _refuse(context, refusal)
            raise  # `abort` has raised

    def _admit(self, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        """Raises Refused, 401 or 403. Names in a call's metadata are in lower case."""
        if self._keyring is None:
            return
        sent = dict(context.invocation_metadata() or ()).get("authorization")
        try:
            self._keyring.check(sent if isinstance(sent, str) else None, Scope.INGEST)
        except Denied as denied:
            raise Refused(denied.status, f"{denied.message}; {denied.hint}") from denied

    async def _receive(self, messages: AsyncIterator[bytes]) -> bytes:
        self._receiver.admit()
        with self._receiver.budget.hold() as held:
            body = await self._read(messages)
            held.grow(len(body))
            zipped = body.startswith(_GZIP)
            answer = await self._receiver.take(self._signal, body, held, zipped=zipped)
            encoded: bytes = answer.SerializeToString()
            return encoded

    async def _read(self, messages: AsyncIterator[bytes]) -> bytes:
        limit_s = self._receiver.limits.read_s
        try:
            async with self._turns.turn(limit_s):
                async for message in messages:
                    return message
        except TimeoutError:
            raise Refused(408, "the message did not arrive in time") from None
        raise Refused(400, "the call holds no message")


async def _refuse(context: grpc.aio.ServicerContext[Any, Any], refusal: Refused) -> None:
    """Raises. Clients in Go read the wait from the status's details, those in Python from a header of its own."""
    wait_s = retry_seconds(refusal)
    status = status_of(refusal, wait_s)
    trailers = [("grpc-status-details-bin", status.SerializeToString())]
    if wait_s is not None:
        trailers.append(("google.rpc.retryinfo-bin", retry_info(wait_s).SerializeToString()))
    code = _CODES[status.code]
    await context.abort(code, refusal.message, tuple(trailers))


def _options(limit: int) -> list[tuple[str, int]]:
    return [
        # gRPC's own limit is 4 MiB. Beyond ours it answers RESOURCE_EXHAUSTED without RetryInfo, as it should.
        ("grpc.max_receive_message_length", limit),
        # gRPC inflates without any bound (a gzip of 400 KB takes 400 MiB); we do it within the limits.
        ("grpc.per_message_decompression", 0),
        # With it two processes could hold one port, each getting half of what is sent.
        ("grpc.so_reuseport", 0),
        ("grpc.max_concurrent_streams", 16),
        # What is not read yet then stays at 64 KiB a stream; else gRPC takes up to 16 MiB in advance on a fast line.
        ("grpc.http2.bdp_probe", 0),
    ]
