# SPDX-License-Identifier: Apache-2.0
"""OTLP's trace messages as the decoder reads them: the wire of opentelemetry-proto, cut where columns end.

What is declared as bytes here is parsed later, once for each distinct value, or never: attributes above all, of which
most repeat from span to span. Text is bytes too, so that one string that is not UTF-8 costs its own span and not the
request. Field numbers are those of trace.proto, common.proto and trace_service.proto.
"""

from __future__ import annotations

from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool

__all__ = ["KEY_VALUE", "OUTLINE", "REQUEST"]

_PACKAGE = "kvflags.wire"
_SCALARS = {
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "double": FieldDescriptorProto.TYPE_DOUBLE,
    "fixed64": FieldDescriptorProto.TYPE_FIXED64,
    "int32": FieldDescriptorProto.TYPE_INT32,
    "int64": FieldDescriptorProto.TYPE_INT64,
    "uint32": FieldDescriptorProto.TYPE_UINT32,
}

# message -> {field: (number, type)}; "[]" is repeated. `kind` and `code` are open enums, which are int32 on the wire.
_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "Request": {"resource_spans": (1, "ResourceSpans[]")},
    "ResourceSpans": {"resource": (1, "bytes"), "scope_spans": (2, "ScopeSpans[]")},
    "ScopeSpans": {"scope": (1, "Scope"), "spans": (2, "Span[]")},
    "Scope": {"name": (1, "bytes")},
    "Span": {
        "trace_id": (1, "bytes"),
        "span_id": (2, "bytes"),
        "trace_state": (3, "bytes"),
        "parent_span_id": (4, "bytes"),
        "name": (5, "bytes"),
        "kind": (6, "int32"),
        "start": (7, "fixed64"),
        "end": (8, "fixed64"),
        "attributes": (9, "bytes[]"),
        "dropped_attributes": (10, "uint32"),
        "events": (11, "bytes[]"),
        "links": (13, "bytes[]"),
        "status": (15, "Status"),
    },
    "Status": {"message": (2, "bytes"), "code": (3, "int32")},
    "KeyValue": {"key": (1, "bytes"), "value": (2, "AnyValue")},
    # The other kinds of a value go to the residue, where protobuf's own AnyValue reads them from the raw attribute.
    "AnyValue": {
        "string_value": (1, "bytes"),
        "bool_value": (2, "bool"),
        "int_value": (3, "int64"),
        "double_value": (4, "double"),
        "array_value": (5, "bytes"),
        "kvlist_value": (6, "bytes"),
        "bytes_value": (7, "bytes"),
    },
    # Any message, as far as its fields 1 and 2 go: enough to count what is in a request before it is read.
    "Outline": {"first": (1, "bytes[]"), "second": (2, "bytes[]")},
}


def _message(name: str, fields: dict[str, tuple[int, str]]) -> DescriptorProto:
    message = DescriptorProto(name=name)
    for field, (number, kind) in fields.items():
        bare = kind.removesuffix("[]")
        made = message.field.add(name=field, number=number)
        made.label = FieldDescriptorProto.LABEL_OPTIONAL if bare == kind else FieldDescriptorProto.LABEL_REPEATED
        if bare in _SCALARS:
            made.type = _SCALARS[bare]
        else:
            made.type, made.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{_PACKAGE}.{bare}"
    if name == "AnyValue":
        message.oneof_decl.add(name="value")
        for made in message.field:
            made.oneof_index = 0
    return message


def _pool() -> DescriptorPool:
    file = FileDescriptorProto(name="kvflags/wire.proto", package=_PACKAGE, syntax="proto3")
    file.message_type.extend(_message(name, fields) for name, fields in _MESSAGES.items())
    pool = DescriptorPool()
    pool.Add(file)
    return pool


_POOL = _pool()
REQUEST: Descriptor = _POOL.FindMessageTypeByName(f"{_PACKAGE}.Request")
OUTLINE: Descriptor = _POOL.FindMessageTypeByName(f"{_PACKAGE}.Outline")
KEY_VALUE: Descriptor = _POOL.FindMessageTypeByName(f"{_PACKAGE}.KeyValue")
