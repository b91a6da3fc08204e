# SPDX-License-Identifier: Apache-2.0
"""Which of the two readers a body goes to."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from kvflags_collector.ingest.spans import fallback, outline

if TYPE_CHECKING:
    from kvflags_collector.ingest.spans.wire import Wire

__all__ = ["read"]

log = logging.getLogger(__name__)

# The native reader costs for one span what the fallback costs for 70 (40 KiB of ours); at 512 it is thrice as fast.
_SMALL = 32 * 1024


def _native() -> Callable[[bytes], Wire] | None:
    try:
        from kvflags_collector.ingest.spans import native  # noqa: PLC0415 - ptars has no build for every platform
    except ImportError:
        return None
    return native.read


_NATIVE = _native()


def read(body: bytes) -> Wire:
    """The spans of a request.

    Raises:
        Refused: 400, where the body is no such message; 413, where it holds too many spans.
    """
    outline.check(body)
    if _NATIVE and len(body) > _SMALL:
        try:
            return _NATIVE(body)
        except ValueError as problem:
            # Whatever it was, the other reader knows it, or says what is wrong.
            log.debug("the native reader refuses a request of %d bytes: %s", len(body), problem)
    return fallback.read(body)
