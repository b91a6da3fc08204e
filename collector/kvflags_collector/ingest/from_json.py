# SPDX-License-Identifier: Apache-2.0
"""OTLP/JSON to the same protobuf bytes that every other request comes as. Pure; for any thread.

The specification differs from protobuf's own JSON mapping: ids are hexadecimal, enums are numbers only, names are
lowerCamelCase only, and unknown fields are passed over. `json_format.ParseDict` knows none of that, and takes three to
four times as long. Here the messages' descriptors say what each field is, so all signals have one converter.
"""

from __future__ import annotations

import json
from base64 import b64decode
from binascii import unhexlify
from collections.abc import Callable
from functools import cache
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from kvflags_collector.ingest.limits import Refused

__all__ = ["from_json"]

# Values in one body. The shortest take 95 bytes of memory each, so a body of 64 MiB could take 3 GB; so many take 190
# MiB at worst. A span with 15 attributes has 68, so these are 29,000 spans in 42 MiB.
_MOST_VALUES = 2_000_000
# protobuf's own bound for nested messages; resource, scope, span, attribute and value take ten of them.
_DEEPEST = 100
# Fields of bytes that OTLP/JSON writes in hexadecimal; all others are in base64.
_IDS = frozenset({"trace_id", "span_id", "parent_span_id", "profile_id"})

Convert = Callable[[Any, int], Any]


def from_json(body: bytes, message: type[Message]) -> bytes:
    """`body` as the protobuf encoding of `message`, a class of an Export...ServiceRequest.

    Raises:
        Refused: 400 where it is no such message, 413 where it holds more than two million values.
    """
    if sum(map(body.count, (b",", b"{", b"["))) > _MOST_VALUES:
        raise Refused(413, f"the body holds more than {_MOST_VALUES} values: send less in one request")
    try:
        encoded: bytes = message(**_fields(message.DESCRIPTOR, json.loads(body), 1)).SerializeToString()
    # What the body can be wrong about: its text (ValueError, with UnicodeError), nesting, types and ranges of values.
    except (ValueError, TypeError, RecursionError) as problem:
        raise Refused(400, f"the body is not an {message.DESCRIPTOR.name} in JSON: {problem}"[:1000]) from None
    return encoded


def _fields(message: Descriptor, given: Any, depth: int) -> dict[str, Any]:  # noqa: ANN401 - parsed JSON
    """The keyword arguments that make the message."""
    if not isinstance(given, dict):
        raise TypeError(f"{message.name} is an object, not {_kind(given)}")
    if depth > _DEEPEST:
        raise ValueError(f"nested deeper than {_DEEPEST} levels")
    known = _table(message)
    fields = {}
    for key, value in given.items():
        if value is not None and (field := known.get(key)):
            name, convert = field
            fields[name] = convert(value, depth)
    return fields


@cache
def _table(message: Descriptor) -> dict[str, tuple[str, Convert]]:
    return {field.camelcase_name: (field.name, _converter(field)) for field in message.fields}


def _converter(field: FieldDescriptor) -> Convert:
    one = _single(field)
    if not field.is_repeated:
        return one

    def each(values: Any, depth: int) -> list[Any]:  # noqa: ANN401 - parsed JSON
        if not isinstance(values, list):
            raise TypeError(f"{field.camelcase_name} is an array, not {_kind(values)}")
        return [one(value, depth) for value in values]

    return each


def _single(field: FieldDescriptor) -> Convert:
    if field.message_type is not None:
        message = field.message_type
        return lambda value, depth: _fields(message, value, depth + 1)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return _id if field.name in _IDS else _base64
    return _SCALARS.get(field.cpp_type, _as_is)


def _id(value: Any, _: int) -> bytes:  # noqa: ANN401 - parsed JSON
    return unhexlify(value)


def _base64(value: Any, _: int) -> bytes:  # noqa: ANN401 - parsed JSON
    # protobuf's JSON allows the alphabet of URLs too, and leaving out the padding.
    if not isinstance(value, str):
        raise TypeError(f"bytes are a string in base64, not {_kind(value)}")
    return b64decode(value.translate(_PLAIN) + "=" * (-len(value) % 4), validate=True)


def _whole(value: Any, _: int) -> int:  # noqa: ANN401 - parsed JSON
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise ValueError(f"{value} is not a whole number")
    return int(value)


def _real(value: Any, _: int) -> float:  # noqa: ANN401 - parsed JSON
    if isinstance(value, bool):
        raise TypeError(f"{value} is not a number")
    return float(value)


def _as_is(value: Any, _: int) -> Any:  # noqa: ANN401 - parsed JSON; protobuf checks strings and booleans itself
    return value


def _kind(value: object) -> str:
    return {dict: "an object", list: "an array", str: "a string", bool: "a boolean"}.get(type(value), "a number")


_PLAIN = str.maketrans("-_", "+/")
_SCALARS: dict[int, Convert] = {
    **dict.fromkeys(
        (
            FieldDescriptor.CPPTYPE_INT32,
            FieldDescriptor.CPPTYPE_INT64,
            FieldDescriptor.CPPTYPE_UINT32,
            FieldDescriptor.CPPTYPE_UINT64,
            FieldDescriptor.CPPTYPE_ENUM,
        ),
        _whole,
    ),
    FieldDescriptor.CPPTYPE_DOUBLE: _real,
}
