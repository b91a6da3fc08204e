# SPDX-License-Identifier: Apache-2.0
"""The certificate that both ports show."""

from __future__ import annotations

import ssl
from pathlib import Path

import grpc

from kvflags.errors import OperatorError
from kvflags_collector.settings import Settings

__all__ = ["check", "grpc_credentials"]


def check(settings: Settings) -> None:
    """OperatorError where the certificate and its key cannot be used: said before a port is opened."""
    if settings.tls_cert is None:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.tls_cert, settings.tls_key)
    except OSError as error:
        # ssl.SSLError is one too.
        raise OperatorError(
            f"cannot use {settings.tls_cert} with the key {settings.tls_key}: {error.strerror or error}",
            hint="--tls-cert takes a PEM file with the chain, --tls-key the key that belongs to it, without a password",
        ) from error


def grpc_credentials(settings: Settings) -> grpc.ServerCredentials | None:
    """For gRPC, which reads no files. None without TLS."""
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    key, chain = Path(settings.tls_key).read_bytes(), Path(settings.tls_cert).read_bytes()
    return grpc.ssl_server_credentials([(key, chain)])
