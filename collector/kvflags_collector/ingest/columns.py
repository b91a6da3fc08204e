# SPDX-License-Identifier: Apache-2.0
"""Which attribute goes to which column of `spans`, and what becomes of the others: the residue, as plain JSON."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from math import isfinite
from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from kvflags.telemetry.attributes import Name
from kvflags_collector.store.telemetry_tables import spans

__all__ = ["AT", "COLUMNS", "RESOURCE_SLOTS", "SPAN_SLOTS", "document", "fill"]

COLUMNS: tuple[str, ...] = tuple(column.name for column in spans.columns)
AT = {name: position for position, name in enumerate(COLUMNS)}

# Column and, of AnyValue, the field that carries its type. An attribute of another type stays in the residue.
Slot = tuple[int, str]
_TEXT, _INT, _BOOL = "string_value", "int_value", "bool_value"

SPAN_SLOTS: dict[str, Slot] = {
    Name.ERROR_TYPE: (AT["error_type"], _TEXT),
    Name.FLAG: (AT["flag"], _TEXT),
    Name.FLAG_VERSION: (AT["flag_version"], _TEXT),
    Name.VARIANT: (AT["variant"], _TEXT),
    Name.CONTEXT: (AT["deployment"], _TEXT),
    Name.ARM: (AT["arm"], _TEXT),
    Name.REMOTE_ENGINE: (AT["remote_engine"], _TEXT),
    Name.ROLE: (AT["role"], _TEXT),
    Name.MODE: (AT["mode"], _TEXT),
    Name.RANK: (AT["rank"], _INT),
    Name.WORLD_SIZE: (AT["world_size"], _INT),
    Name.BYTES: (AT["bytes"], _INT),
    Name.DESCRIPTORS: (AT["descriptors"], _INT),
    Name.BLOCKS: (AT["blocks"], _INT),
    Name.POST_TIME: (AT["post_ns"], _INT),
    Name.EFFECTIVE: (AT["effective"], _BOOL),
}
RESOURCE_SLOTS: dict[str, Slot] = {
    Name.DEPLOYMENT: (AT["deployment"], _TEXT),
    Name.GENERATION: (AT["generation"], _TEXT),
    Name.EPOCH: (AT["epoch"], _INT),
    Name.ENGINE: (AT["engine_id"], _TEXT),
    Name.BACKEND: (AT["backend"], _TEXT),
}

# Labels become parts of roll-up keys, and no name of ours is longer; a longer one stays in the residue, whole.
_LONGEST_LABEL = 512


def fill(row: list[Any], slots: dict[str, Slot], attributes: Iterable[KeyValue]) -> dict[str, Any]:
    """Put attributes (KeyValue messages) into their columns of `row`; what has no column there is returned."""
    residue: dict[str, Any] = {}
    for attribute in attributes:
        key = attribute.key
        slot = slots.get(key)
        if slot is None or not _promote(row, slot, attribute.value):
            residue[key] = _plain(attribute.value)
    return residue


def document(attributes: Iterable[KeyValue]) -> dict[str, Any]:
    """Attributes (KeyValue messages) as plain JSON values."""
    return {attribute.key: _plain(attribute.value) for attribute in attributes}


def _promote(row: list[Any], slot: Slot, value: AnyValue) -> bool:
    position, kind = slot
    got = getattr(value, kind)
    # A field that is not set reads as its zero, so only a zero has to ask which one was set: that costs as much again.
    if not got and value.WhichOneof("value") != kind:
        return False
    # Sizes, counts and times: less than none would be subtracted from a sum.
    if (kind == _INT and got < 0) or (kind == _TEXT and len(got) > _LONGEST_LABEL):
        return False
    row[position] = got
    return True


def _plain(value: AnyValue) -> object:
    """An AnyValue as JSON: bytes in base64, numbers that JSON lacks by name, as protobuf's own JSON writes them."""
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_plain(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return document(value.kvlist_value.values)
    if kind == "bytes_value":
        return b64encode(value.bytes_value).decode()
    if kind == "double_value" and not isfinite(value.double_value):
        return str(value.double_value)
    return getattr(value, kind) if kind else None
