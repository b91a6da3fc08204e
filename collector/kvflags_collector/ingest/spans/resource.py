# SPDX-License-Identifier: Apache-2.0
"""What a Resource message says: its columns, and the whole of it, once, under a fingerprint."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from kvflags_collector.ingest.spans.residue import compact, document
from kvflags_collector.ingest.spans.slots import RESOURCE_SLOTS, promoted

__all__ = ["RESOURCE_COLUMNS", "Known", "resource_of"]

_ABSENT: dict[str, Any] = {"arm": "", "deployment": "", "generation": "", "engine_id": "", "backend": "", "epoch": 0}
RESOURCE_COLUMNS = (*_ABSENT, "resource")


class Known(NamedTuple):
    """fingerprint: 16 bytes. text: canonical JSON. columns: column of `spans` -> value."""

    fingerprint: bytes
    text: str
    columns: dict[str, Any]


def resource_of(raw: bytes) -> Known:
    """Of one Resource message. An engine sends the same one with every request, so the last ones are remembered.

    Raises:
        google.protobuf.message.DecodeError: it is damaged, or text in it is not UTF-8.
    """
    return _remembered(raw) if len(raw) <= 16_384 else _read(raw)


def _read(raw: bytes) -> Known:
    attributes = Resource.FromString(raw).attributes
    text = compact(document(attributes))
    fingerprint = blake2b(text.encode(), digest_size=16).digest()
    columns = _ABSENT | {"resource": bytearray(fingerprint)}
    for attribute in attributes:
        slot = RESOURCE_SLOTS.get(attribute.key)
        if slot and (value := promoted(slot, attribute.value)) is not None:
            columns[slot.column] = value
    return Known(fingerprint, text, columns)


_remembered = lru_cache(maxsize=512)(_read)
