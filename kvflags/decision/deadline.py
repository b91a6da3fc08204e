# SPDX-License-Identifier: Apache-2.0
"""Sockets under one deadline: find the address, connect, send. Each step gets what the steps before it left over."""

from __future__ import annotations

import ipaddress
import json
import socket
import subprocess
import sys
import time

__all__ = ["Deadline", "open_socket", "send_all"]

# Run in a process of its own, since getaddrinfo can neither be given a time limit nor be interrupted: a dead resolver
# holds it for 10 s and more. A thread would do for the time, but not for its end: vLLM forks, and exits while it hangs.
_LOOKUP = """
import json, socket, sys
found = socket.getaddrinfo(sys.argv[1], int(sys.argv[2]), type=socket.SOCK_STREAM)
print(json.dumps([[family, address[0]] for family, _, _, _, address in found]))
"""

_Address = tuple[int, str]


class Deadline:
    """A point in time on the monotonic clock, `seconds` from now."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds that are left, above 0; TimeoutError when there are none."""
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("out of time")
        return left


def open_socket(host: str, port: int, deadline: Deadline) -> socket.socket:
    """A connected TCP socket. Raises OSError; the message names the last address that was tried."""
    addresses = _addresses(host, port, deadline)
    last: OSError = OSError(f"{host} has no address")
    for tried, (family, address) in enumerate(addresses):
        connection = socket.socket(family, socket.SOCK_STREAM)
        try:
            # An even share each: one that swallows packets must not use up the time of those behind it.
            connection.settimeout(deadline.left() / (len(addresses) - tried))
            connection.connect((address, port))
        except OSError as error:
            connection.close()
            last = error
        else:
            return connection
    raise last


def send_all(connection: socket.socket, data: bytes, deadline: Deadline) -> None:
    """Like `sendall`, with the deadline over all of it, under TLS too."""
    view = memoryview(data)
    while view:
        connection.settimeout(deadline.left())
        view = view[connection.send(view) :]


def _addresses(host: str, port: int, deadline: Deadline) -> list[_Address]:
    if host == "localhost":
        return [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
    try:
        literal = ipaddress.ip_address(host)
    except ValueError:
        return _looked_up(host, port, deadline)
    return [(socket.AF_INET if literal.version == 4 else socket.AF_INET6, host)]


def _looked_up(host: str, port: int, deadline: Deadline) -> list[_Address]:
    # Isolated and without site-packages: 15 ms to start, and none of the host's plugins.
    command = [sys.executable or "python3", "-I", "-S", "-c", _LOOKUP, host, str(port)]
    try:
        # `run` kills and reaps the process when the time is over.
        found = subprocess.run(command, capture_output=True, timeout=deadline.left(), check=True)  # noqa: S603
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"looking up {host} took too long") from None
    except subprocess.CalledProcessError:
        raise OSError(f"{host} has no address") from None
    return [(int(family), str(address)) for family, address in json.loads(found.stdout)]
