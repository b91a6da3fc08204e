# SPDX-License-Identifier: Apache-2.0
"""What of each span has no column, and the spans that have to be refused because a part of them cannot be read."""

from __future__ import annotations

from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import KeyValue

from kvflags.telemetry.attributes import SCOPE_NAME
from kvflags_collector.ingest.spans.residue import DROPPED, clean, plain, uncommon
from kvflags_collector.ingest.spans.wire import RESIDUE, Wire

__all__ = ["Leftovers", "text"]

_OURS = ("", SCOPE_NAME)


class Leftovers:
    """of: span -> its residue, as plain JSON values. unreadable: spans with text that is not UTF-8, or a damaged part.

    Spans are numbered in the order of the wire. The usual `kv.transfer` span is in neither, and costs nothing here.
    """

    def __init__(self, wire: Wire) -> None:
        self.of: dict[int, dict[str, Any]] = {}
        self.unreadable: set[int] = set()
        self._attributes(wire)
        self._parts(wire)
        self._scopes(wire)
        for span in np.flatnonzero(wire.dropped).tolist():
            self._add(span, {DROPPED: self._of(span).get(DROPPED, 0) + int(wire.dropped[span])})

    def _of(self, span: int) -> dict[str, Any]:
        return self.of.setdefault(span, {})

    def _add(self, span: int, values: dict[str, Any]) -> None:
        self._of(span).update(values)

    def _attributes(self, wire: Wire) -> None:
        places = np.flatnonzero(wire.entries.slot[wire.entry] == RESIDUE)
        read: dict[int, tuple[str, object, bool] | None] = {}
        for span, entry in zip(wire.owner[places].tolist(), wire.entry[places].tolist(), strict=True):
            if entry not in read:
                read[entry] = _plain(wire.entries.raw[entry])
            attribute = read[entry]
            if attribute is None:
                self.unreadable.add(span)
                continue
            key, value, whole = attribute
            if key or whole:
                self._add(span, {key: value})
            if not whole:
                self._add(span, {DROPPED: self._of(span).get(DROPPED, 0) + 1})

    def _parts(self, wire: Wire) -> None:
        for span, parts in wire.parts.items():
            try:
                self._add(span, uncommon(parts))
            except (DecodeError, UnicodeDecodeError):
                self.unreadable.add(span)

    def _scopes(self, wire: Wire) -> None:
        for number, raw in enumerate(wire.scopes):
            name = text(raw)
            if name in _OURS:
                continue
            spans = np.flatnonzero(wire.scope_of == number).tolist()
            if name is None:
                self.unreadable.update(spans)
                continue
            for span in spans:
                self._add(span, {"otel.scope.name": name})


def text(raw: bytes) -> str | None:
    """A name of at most 4,096 characters; None where it is not UTF-8."""
    try:
        return clean(raw.decode()[:4096])
    except UnicodeDecodeError:
        return None


def _plain(raw: bytes) -> tuple[str, object, bool] | None:
    try:
        return plain(KeyValue.FromString(raw))
    except DecodeError:
        return None
